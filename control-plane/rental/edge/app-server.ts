// The listener of applications: HTTP/1.1 with TLS or behind a proxy that ends it, without limits that a long upload or answer would meet.
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerOptions, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import type { AppProxy } from './app-proxy.ts';

export interface AppServer {
  listen(address: { host: string; port: number }): Promise<{ port: number }>;
  close(): Promise<void>;
}

/** Paths of PEM files. */
export interface TlsFiles {
  certificate_file: string;
  key_file: string;
}

/** Whoever opens a connection says what they want soon; after that an application may take as long as it likes. */
const HEADERS_MS_MAX = 30_000;
const HEADER_BYTES_MAX = 32 * 1024;

/** @throws Error where the files cannot be read or do not fit together */
export function openAppServer(proxy: AppProxy, tls: TlsFiles | undefined): AppServer {
  const options: ServerOptions = { headersTimeout: HEADERS_MS_MAX, requestTimeout: 0, maxHeaderSize: HEADER_BYTES_MAX };
  const server: Server =
    tls === undefined
      ? createServer(options)
      : createTlsServer({
          ...options,
          minVersion: 'TLSv1.2',
          cert: readFileSync(tls.certificate_file),
          key: readFileSync(tls.key_file),
        });
  const upgraded = new Set<Duplex>();
  server.on('request', (request: IncomingMessage, response: ServerResponse) => proxy.onRequest(request, response));
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
    close: async () => {
      const closed = once(server, 'close');
      server.close();
      proxy.close();
      server.closeAllConnections();
      for (const socket of upgraded) socket.destroy();
      await closed;
    },
  };
}
