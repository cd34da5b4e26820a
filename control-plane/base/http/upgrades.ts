// Connections that leave HTTP: passed to the listener of their path, and counted against their address until the caller authenticates.
import type { IncomingMessage, Server } from 'node:http';
import type { Duplex } from 'node:stream';
import proxyAddress from '@fastify/proxy-addr';
import { ServiceError } from '../../../shared/errors.ts';
import type { AddressLimit } from './address-limit.ts';
import { assertHead } from './checks.ts';
import type { PassOn } from './pass-on.ts';
import { OPENED, type Peer } from './peers.ts';
import type { RateLimits } from './rate-limits.ts';
import { unserved } from './unserved.ts';

export interface Upgrade {
  request: IncomingMessage;
  socket: Duplex;
  head: Buffer;
  /** The client's address. Behind a trusted proxy, the address that the proxy reports. */
  clientIp: string;
  /** Called once the caller has authenticated. From then on the connection does not count against its address. */
  proven(): void;
}

/** The listener authenticates the caller. */
export type UpgradeListener = (upgrade: Upgrade) => void;

interface UpgradeDeps {
  trustProxy: readonly string[];
  limits: RateLimits | undefined;
  connections: AddressLimit | undefined;
  passOn: Pick<PassOn, 'primaryFor' | 'upgrade'>;
  /** Answers a caller that sends too many requests, and closes its connection. */
  refuse(refusal: ServiceError, socket: Duplex): void;
}

export interface Upgrades {
  /** Registers a listener for the paths that begin with `pathPrefix`. */
  add(pathPrefix: string, listener: UpgradeListener): void;
  takes(path: string): boolean;
  serve(server: Server): void;
  /** Closes all open connections. */
  cut(): void;
}

export function openUpgrades({ trustProxy, limits, connections, passOn, refuse }: UpgradeDeps): Upgrades {
  const listeners = new Map<string, UpgradeListener>();
  const open = new Set<Duplex>();
  const isTrusted = proxyAddress.compile([...trustProxy]);
  const listenerOf = (path: string): UpgradeListener | undefined =>
    [...listeners].find(([prefix]) => path.startsWith(prefix))?.[1];

  const onUpgrade = (request: IncomingMessage, socket: Duplex, head: Buffer): void => {
    open.add(socket);
    socket.once('close', () => open.delete(socket));
    // Node has removed its own error listener by now. Without this one, a caller could end the process by resetting its connection.
    socket.on('error', () => socket.destroy());
    const clientIp = proxyAddress(request, isTrusted) ?? '';
    const { primary, word } = passOn.primaryFor(request);
    if (word !== undefined) putIntoHead(socket, `${OPENED}: ${word}`);
    if (primary === 'unknown') return refuse(unserved(), socket);
    const refusal = refusalOf(request, primary === 'self' ? clientIp : undefined);
    if (refusal !== undefined) return refuse(refusal, socket);
    if (primary !== 'self') return passTo(primary, { request, socket, head, clientIp });
    // The listener keeps `proven` for as long as the connection lasts, and `request` must not stay in memory with it.
    const { socket: connection } = request;
    const proven = (): void => {
      connections?.letGo(connection);
      limits?.giveBackForIp(clientIp);
    };
    listenerOf(request.url ?? '')?.({ request, socket, head, clientIp, proven });
    // A refused caller may never close its side, so we destroy the socket.
    if (socket.writableEnded) socket.once('finish', () => socket.destroy());
  };

  /**
   * Undefined if the request may go on. An address that is given is counted. It stands here because a function in `onUpgrade` would keep the request
   * in memory.
   */
  const refusalOf = (request: IncomingMessage, counted: string | undefined): ServiceError | undefined => {
    try {
      assertHead(request, () => undefined);
      if (counted !== undefined) limits?.takeForIp(counted);
      return undefined;
    } catch (error) {
      if (error instanceof ServiceError) return error;
      throw error;
    }
  };

  /** The primary limits the rates of clients. Connections count here, because the primary sees all those of this control plane as ours. */
  const passTo = (to: Peer, upgrade: Omit<Upgrade, 'proven'>): void => {
    const { socket } = upgrade;
    const { socket: connection } = upgrade.request;
    const proven = (): void => connections?.letGo(connection);
    passOn.upgrade(to, { ...upgrade, proven, refuse: (refusal) => refuse(refusal, socket) });
  };

  return {
    add: (pathPrefix, listener) => void listeners.set(pathPrefix, listener),
    takes: (path) => listenerOf(path) !== undefined,
    serve: (server) => void server.on('upgrade', onUpgrade),
    cut: () => {
      for (const socket of open) socket.destroy();
    },
  };
}

/**
 * Adds a header to the answer of an upgrade. Listeners and libraries write the head themselves, all of it with the first write. An informational
 * answer before it would not do, because some proxies take it for the last one.
 */
function putIntoHead(socket: Duplex, header: string): void {
  const { write, end } = socket;
  const once = (send: typeof write | typeof end): ((...given: unknown[]) => unknown) =>
    function first(head, ...more) {
      Object.assign(socket, { write, end });
      return Reflect.apply(send, socket, [withHeader(head, header), ...more]) as unknown;
    };
  Object.assign(socket, { write: once(write), end: once(end) });
}

function withHeader(head: unknown, header: string): unknown {
  const add = (text: string): string => text.replace('\r\n', `\r\n${header}\r\n`);
  if (typeof head === 'string') return add(head);
  return head instanceof Uint8Array ? Buffer.from(add(Buffer.from(head).toString('latin1')), 'latin1') : head;
}
