// Connections that leave HTTP behind: handed to whoever listens on their path, and counted against their address until they are proven.
import type { IncomingMessage, Server } from 'node:http';
import type { Duplex } from 'node:stream';
import proxyAddress from '@fastify/proxy-addr';
import { ServiceError } from '../../../shared/errors.ts';
import type { AddressLimit } from './address-limit.ts';
import type { RateLimits } from './rate-limits.ts';

export interface Upgrade {
  request: IncomingMessage;
  socket: Duplex;
  head: Buffer;
  /** The client's address; behind a trusted proxy, the one that the proxy names. */
  clientIp: string;
  /** To be called once the caller has shown who it is: from then on it counts no more against its address. */
  proven(): void;
}

/** Authentication is the listener's own. */
export type UpgradeListener = (upgrade: Upgrade) => void;

interface UpgradeDeps {
  trustProxy: readonly string[];
  limits: RateLimits | undefined;
  connections: AddressLimit | undefined;
  /** Answers a caller who asks too often, and ends its connection. */
  refuse(refusal: ServiceError, socket: Duplex): void;
}

export interface Upgrades {
  /** Listens on the paths that begin with `pathPrefix`. */
  add(pathPrefix: string, listener: UpgradeListener): void;
  takes(path: string): boolean;
  serve(server: Server): void;
  /** Cuts all that is still open. */
  cut(): void;
}

export function openUpgrades({ trustProxy, limits, connections, refuse }: UpgradeDeps): Upgrades {
  const listeners = new Map<string, UpgradeListener>();
  const open = new Set<Duplex>();
  const isTrusted = proxyAddress.compile([...trustProxy]);
  const listenerOf = (path: string): UpgradeListener | undefined =>
    [...listeners].find(([prefix]) => path.startsWith(prefix))?.[1];

  const onUpgrade = (request: IncomingMessage, socket: Duplex, head: Buffer): void => {
    open.add(socket);
    socket.once('close', () => open.delete(socket));
    // Node listens no more by now, and an error that nobody handles would end the process: a caller need only reset its connection.
    socket.on('error', () => socket.destroy());
    const clientIp = proxyAddress(request, isTrusted) ?? '';
    try {
      limits?.takeForIp(clientIp);
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      return refuse(error, socket);
    }
    const proven = (): void => {
      connections?.letGo(request.socket);
      limits?.giveBackForIp(clientIp);
    };
    listenerOf(request.url ?? '')?.({ request, socket, head, clientIp, proven });
    // A caller who was refused need not agree to the end of it.
    if (socket.writableEnded) socket.once('finish', () => socket.destroy());
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
