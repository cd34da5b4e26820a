// The listener of applications: HTTP/1.1 with TLS or behind a proxy that ends it, without limits that a long upload or answer would meet.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerOptions, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Clock } from '../../../shared/clock.ts';
import { TCP_KEEP_ALIVE_MS } from '../../../shared/limits.ts';
import type { AddressLimit } from '../../base/http/address-limit.ts';
import type { Tls } from '../../base/http/tls.ts';
import { hasBody } from './app-headers.ts';
import type { AppProxy } from './app-proxy.ts';

export interface AppServer {
  listen(address: { host: string; port: number }): Promise<{ port: number }>;
  /** Refuses new connections; requests and other streams that are under way may last for `graceMs` more. */
  close(graceMs: number): Promise<void>;
}

/** Whoever opens a connection says what they want soon; after that an application may take as long as it likes. */
const HEADERS_MS_MAX = 30_000;
const HEADER_BYTES_MAX = 32 * 1024;

interface AppServerDeps {
  proxy: AppProxy;
  /** Without it plain HTTP is spoken, for a proxy in front. */
  tls: Tls | undefined;
  /** Who may open one more connection. */
  limit: AddressLimit;
  clock: Pick<Clock, 'after'>;
}

export function openAppServer({ proxy, tls, limit, clock }: AppServerDeps): AppServer {
  const options: ServerOptions = {
    headersTimeout: HEADERS_MS_MAX,
    requestTimeout: 0,
    maxHeaderSize: HEADER_BYTES_MAX,
    keepAlive: true,
    keepAliveInitialDelay: TCP_KEEP_ALIVE_MS,
    // RFC 9110, section 7.8: a server may ignore the wish. With a body nobody could tell where the other protocol begins.
    shouldUpgradeCallback: (request) => !hasBody(request),
  };
  const server = tls === undefined ? createServer(options) : createSecureServer(options, tls);
  const upgraded = new Set<Duplex>();
  server.on('connection', (socket: Socket) => void limit.admit(socket));
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    // A connection that is kept would bring new requests to a server that closes.
    response.once('close', () => void (server.listening || request.socket.end()));
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
      await once(server, 'listening');
      return { port: (server.address() as AddressInfo).port };
    },
    close: async (graceMs) => {
      const closed = once(server, 'close');
      server.close();
      const cut = (): void => {
        server.closeAllConnections();
        for (const socket of upgraded) socket.destroy();
      };
      const cancel = graceMs === 0 ? cut() : clock.after(graceMs, cut);
      await closed;
      cancel?.();
      proxy.close();
    },
  };
}

function createSecureServer(options: ServerOptions, tls: Tls): Server {
  const server = createTlsServer({ ...options, ...tls.options() });
  tls.serve(server);
  return server;
}
