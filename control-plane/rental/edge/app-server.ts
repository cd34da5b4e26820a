// The listener of applications: HTTP/1.1, with TLS or behind a proxy that ends TLS. A long upload or answer has no time limit.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerOptions, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import { TCP_KEEP_ALIVE_MS } from '../../../shared/limits.ts';
import type { AddressLimit } from '../../base/http/address-limit.ts';
import { silentConnections, unboundText } from '../../base/http/listen.ts';
import type { Tls } from '../../base/http/tls.ts';
import { hasBody } from '../../base/http/uploads.ts';
import { logAcceptErrors } from '../../../shared/accept-errors.ts';
import type { AppProxy } from './app-proxy.ts';

export interface AppServer {
  listen(address: { host: string; port: number }): Promise<{ port: number }>;
  /** Refuses new connections. Open requests and streams may go on for `graceMs`. */
  close(graceMs: number): Promise<void>;
}

/** A client must send its headers within this time. The application may then take as long as it likes. */
const HEADERS_MS_MAX = 30_000;
const HEADER_BYTES_MAX = 32 * 1024;

/**
 * Requests that a client may send on a connection ahead of their answers. Each costs memory and a look-up, before the login is checked. Browsers and
 * proxies send none ahead.
 */
const AHEAD_MAX = 100;

interface AppServerDeps {
  proxy: AppProxy;
  /** Undefined: plain HTTP, for a proxy in front of us. */
  tls: Tls | undefined;
  /** Limits the connections of each address. */
  limit: AddressLimit;
  clock: Pick<Clock, 'after' | 'nextTurn' | 'monotonicMs'>;
  log: Log;
}

export function openAppServer({ proxy, tls, limit, ...deps }: AppServerDeps): AppServer {
  const { clock } = deps;
  const options: ServerOptions = {
    headersTimeout: HEADERS_MS_MAX,
    requestTimeout: 0,
    maxHeaderSize: HEADER_BYTES_MAX,
    keepAlive: true,
    keepAliveInitialDelay: TCP_KEEP_ALIVE_MS,
    // A server may ignore an upgrade (RFC 9110, section 7.8). With a body it would be unclear where the other protocol begins. Over HTTP/2 the client
    // would send further requests past the proxy, with headers that only the proxy may set.
    shouldUpgradeCallback: (request) => !hasBody(request) && !/\bh2c\b/i.test(request.headers.upgrade ?? ''),
  };
  const server = tls === undefined ? createServer(options) : createSecureServer(options, tls);
  const upgraded = new Set<Duplex>();
  /** The number of requests on each connection that are not answered. */
  const unanswered = new WeakMap<Duplex, number>();
  const silent = silentConnections(server, tls);
  server.on('connection', (socket: Socket) => void limit.admit(socket));
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    const { socket } = request;
    const count = (unanswered.get(socket) ?? 0) + 1;
    if (count > AHEAD_MAX) return void socket.destroy();
    unanswered.set(socket, count);
    response.once('close', () => {
      unanswered.set(socket, (unanswered.get(socket) ?? 1) - 1);
      // A server that closes must not keep connections alive, because new requests would arrive on them.
      if (!server.listening) socket.end();
    });
    proxy.onRequest(request, response);
  });
  server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    upgraded.add(socket);
    socket.once('close', () => upgraded.delete(socket));
    proxy.onUpgrade(request, socket, head);
  });
  return {
    listen: async ({ host, port }) => {
      server.listen(port, host);
      await once(server, 'listening').catch((error: unknown) => {
        throw new Error(`apps.listen: ${unboundText({ host, port }, error)}`, { cause: error });
      });
      logAcceptErrors(server, { port }, deps);
      return { port: (server.address() as AddressInfo).port };
    },
    close: async (graceMs) => {
      const closed = once(server, 'close');
      server.close();
      // A request that has arrived with its connection is read first. One that has begun to arrive may go on: its head has a time limit.
      await clock.nextTurn();
      for (const socket of silent) if (socket.bytesRead === 0) socket.destroy();
      const cut = (): void => {
        server.closeAllConnections();
        for (const socket of upgraded) socket.destroy();
      };
      let cancel = (): void => undefined;
      if (graceMs === 0) cut();
      else cancel = clock.after(graceMs, cut);
      await closed;
      cancel();
      proxy.close();
    },
  };
}

function createSecureServer(options: ServerOptions, tls: Tls): Server {
  const server = createTlsServer({ ...options, ...tls.options() });
  tls.serve(server);
  return server;
}
