// Opens one guarded connection: a name is resolved once, only allowed addresses are connected to, and the socket is asked whom it reached.
import { once } from 'node:events';
import { isIP, connect as connectTcp, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { messageOf } from '../../../shared/errors.ts';
import { byDns, bySystem } from './names.ts';
import { OutboundError, type OutboundErrorCode } from './outbound-error.ts';
import type { Policy, Target } from './policy.ts';

export type Resolve = (hostname: string) => Promise<string[]>;

export interface ConnectionDeps {
  policy: Policy;
  /** Takes the place of DNS. */
  resolve?: Resolve | undefined;
  /** PEM certificates that are trusted instead of the system's. */
  ca?: string | undefined;
}

/** One address of several gets this long before the next is tried. Node's own quarter of a second is less than a round trip to far away. */
const ADDRESS_MS = 2_500;

/** A connected socket, its TLS handshake over. @throws OutboundError dns, blocked_address, connect, tls */
export async function openConnection(target: Target, deps: ConnectionDeps, signal: AbortSignal): Promise<Socket> {
  const addresses = await addressesOf(target, deps);
  const socket = await openTcp(target, addresses, signal);
  const remoteAddress = socket.remoteAddress ?? null;
  if (remoteAddress === null || !deps.policy.allows(target, remoteAddress)) {
    socket.destroy();
    throw new OutboundError('blocked_address', 'the connection reached an address that is not public', {
      remoteAddress,
    });
  }
  return target.isTls ? await startTls(socket, target, deps.ca) : socket;
}

/** What may be connected to: the literal address, or those of the name's addresses that are allowed. */
async function addressesOf(target: Target, { policy, resolve }: ConnectionDeps): Promise<string[]> {
  const { hostname } = target;
  if (isIP(hostname) !== 0) return [hostname];
  const found = await (resolve ?? (target.isNamed ? bySystem : (name: string) => byDns(name)))(hostname).catch(
    (cause: unknown) => {
      throw new OutboundError('dns', `the name ${hostname} does not resolve (${dnsCode(cause)})`, { cause });
    },
  );
  if (found.length === 0) throw new OutboundError('dns', `the name ${hostname} has no address`);
  const allowed = found.filter((address) => policy.allows(target, address));
  if (allowed.length > 0) return allowed;
  throw new OutboundError('blocked_address', `the name ${hostname} has no public address`);
}

function openTcp(target: Target, addresses: readonly string[], signal: AbortSignal): Promise<Socket> {
  const options = { host: target.hostname, port: target.port, noDelay: true, signal };
  const families = addresses.map((address) => ({ address, family: isIP(address) }));
  const socket = connectTcp({
    ...options,
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: ADDRESS_MS,
    // Never asked for a literal address. Its answer is the one that was judged, so a second DNS answer cannot slip in.
    lookup: (_hostname, _options, callback) => callback(null, families),
  });
  return settled(socket, 'connect', {
    code: 'connect',
    what: `no connection to ${target.hostname} port ${target.port}`,
  });
}

function startTls(socket: Socket, target: Target, ca: string | undefined): Promise<Socket> {
  const secure = connectTls({
    socket,
    host: target.hostname,
    ...(isIP(target.hostname) === 0 ? { servername: target.hostname } : {}),
    ALPNProtocols: ['http/1.1'],
    ...(ca === undefined ? {} : { ca }),
  });
  return settled(secure, 'secureConnect', {
    code: 'tls',
    what: `no TLS connection to ${target.hostname} port ${target.port}`,
    remoteAddress: socket.remoteAddress ?? null,
  });
}

async function settled(
  socket: Socket,
  event: 'connect' | 'secureConnect',
  failure: { code: OutboundErrorCode; what: string; remoteAddress?: string | null },
): Promise<Socket> {
  // Errors are seen as the end that they bring; between two listeners one would end the process.
  socket.on('error', () => undefined);
  try {
    await Promise.race([
      once(socket, event),
      once(socket, 'close').then(() => Promise.reject(new Error('the other side closed it'))),
    ]);
    return socket;
  } catch (cause) {
    socket.destroy();
    throw new OutboundError(failure.code, `${failure.what}: ${reasonOf(cause)}`, { ...failure, cause });
  }
}

/** As DNS names it: ENOTFOUND, ETIMEOUT. Its message would only say the name again. */
function dnsCode(cause: unknown): string {
  return cause instanceof Error && 'code' in cause ? String(cause.code) : messageOf(cause);
}

/** Several addresses fail with one error each, and the sum of them has no message. */
function reasonOf(cause: unknown): string {
  const text = cause instanceof AggregateError ? cause.errors.map(messageOf).join(', ') : messageOf(cause);
  // Customers read this, and Node's advice on how to start Node is not for them.
  return text.replace(/; if the root CA is installed locally.*/, '');
}
