// Opens one guarded connection: resolves a name once, connects only to allowed addresses, and checks which address the socket reached.
import { lookup, Resolver } from 'node:dns/promises';
import { once } from 'node:events';
import { isIP, connect as connectTcp, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { codeOf, messageOf } from '../../../shared/errors.ts';
import { OutboundError, type OutboundErrorCode, type Policy, type Target } from './policy.ts';

export type Resolve = (hostname: string) => Promise<string[]>;

export interface ConnectionDeps {
  policy: Policy;
  /** Replaces DNS. */
  resolve?: Resolve | undefined;
  /** PEM certificates to trust instead of those of the system. */
  ca?: string | undefined;
}

/** Time for one of several addresses before the next one is tried. Node's default of 250 ms is shorter than a long round trip. */
const ADDRESS_MS = 2_500;
/** Time limit of one DNS query. After two queries without an answer, the name does not resolve. */
const DNS_TRY_MS = 3_000;

/** Connects a socket and completes the TLS handshake. @throws OutboundError dns, blocked_address, connect, tls */
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
  return target.isTls ? await startTls(socket, target, { ca: deps.ca, signal }) : socket;
}

/**
 * Returns IPv4 addresses first. It does not use getaddrinfo, which blocks one of the few threads that files and hashes need too. `servers`
 * (`address:port`) replace the system's servers. @throws Error if the name has no address
 */
export async function byDns(hostname: string, servers?: readonly string[]): Promise<string[]> {
  const resolver = new Resolver({ timeout: DNS_TRY_MS, tries: 2 });
  if (servers !== undefined) resolver.setServers(servers);
  const [v4, v6] = await Promise.allSettled([resolver.resolve4(hostname), resolver.resolve6(hostname)]);
  if (v4.status === 'rejected' && v6.status === 'rejected') throw v4.reason;
  return [v4, v6].flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []));
}

/** The addresses that may be tried: the literal address, or the allowed addresses of the name. */
async function addressesOf(target: Target, { policy, resolve }: ConnectionDeps): Promise<string[]> {
  const { hostname } = target;
  if (isIP(hostname) !== 0) return [hostname];
  const resolveName = resolve ?? (target.isNamed ? bySystem : byDns);
  const found = await resolveName(hostname).catch((cause: unknown) => {
    throw new OutboundError('dns', `the name ${hostname} does not resolve (${dnsCode(cause)})`, { cause });
  });
  if (found.length === 0) throw new OutboundError('dns', `the name ${hostname} has no address`);
  const allowed = found.filter((address) => policy.allows(target, address));
  if (allowed.length > 0) return allowed;
  throw new OutboundError('blocked_address', `the name ${hostname} has no public address`);
}

function openTcp(target: Target, addresses: readonly string[], signal: AbortSignal): Promise<Socket> {
  const options = { host: target.hostname, port: target.port, noDelay: true };
  const families = addresses.map((address) => ({ address, family: isIP(address) }));
  const socket = connectTcp({
    ...options,
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: ADDRESS_MS,
    // Node does not call this for a literal address. It returns the addresses that were checked, so a second DNS answer cannot replace
    // them.
    lookup: (_hostname, _options, callback) => callback(null, families),
  });
  const failure = { code: 'connect', what: `no connection to ${target.hostname} port ${target.port}` } as const;
  return settled(socket, 'connect', failure, signal);
}

function startTls(
  socket: Socket,
  target: Target,
  { ca, signal }: { ca: string | undefined; signal: AbortSignal },
): Promise<Socket> {
  const secure = connectTls({
    socket,
    host: target.hostname,
    ...(isIP(target.hostname) === 0 ? { servername: target.hostname } : {}),
    ALPNProtocols: ['http/1.1'],
    ...(ca === undefined ? {} : { ca }),
  });
  const what = `no TLS connection to ${target.hostname} port ${target.port}`;
  const failure = { code: 'tls', what, remoteAddress: socket.remoteAddress ?? null } as const;
  return settled(secure, 'secureConnect', failure, signal);
}

async function settled(
  socket: Socket,
  event: 'connect' | 'secureConnect',
  failure: { code: OutboundErrorCode; what: string; remoteAddress?: string | null },
  signal: AbortSignal,
): Promise<Socket> {
  // Node's own option would watch the socket for as long as it lives. An open connection is ended by its owner.
  const leave = (): void => void socket.destroy();
  if (signal.aborted) leave();
  signal.addEventListener('abort', leave);
  // This listener ignores errors, because `once` and the close that follows report them. Without a listener, a later error would end the
  // process.
  socket.on('error', () => undefined);
  try {
    await Promise.race([
      once(socket, event),
      once(socket, 'close').then(() => Promise.reject(new Error('the other side closed it'))),
    ]);
    return socket;
  } catch (cause) {
    socket.destroy();
    const { code, what, remoteAddress = null } = failure;
    throw new OutboundError(code, `${what}: ${reasonOf(cause)}`, { remoteAddress, cause });
  } finally {
    signal.removeEventListener('abort', leave);
  }
}

/** The DNS error code, such as ENOTFOUND or ETIMEOUT. The message would only repeat the name. */
function dnsCode(cause: unknown): string {
  return codeOf(cause) ?? messageOf(cause);
}

function reasonOf(cause: unknown): string {
  // Customers read this text, and Node's hint about its own start options does not help them.
  return messageOf(cause).replace(/; if the root CA is installed locally.*/, '');
}

/** Resolves as the system does, with `/etc/hosts`. */
async function bySystem(hostname: string): Promise<string[]> {
  return (await lookup(hostname, { all: true })).map(({ address }) => address);
}
