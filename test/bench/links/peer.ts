// The peer of a bench of links: a bare server of the package `ws` that pings its connections as often as a link is pinged.
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { WebSocketServer } from 'ws';
import { LINK_PING_MS } from '../../../shared/limits.ts';
import { type Answer, type Order, serveOrders } from '../side.ts';
import { memoryNow } from './memory.ts';

serveOrders(async (order) => (order.kind === 'memory' ? { ...(await memoryNow()) } : serve(order)));

/** The server uses TLS if `key` and `cert` are given. */
async function serve({ key, cert }: Order): Promise<Answer> {
  const http = key === undefined ? createServer() : createSecureServer({ key: String(key), cert: String(cert) });
  new WebSocketServer({ server: http, perMessageDeflate: false }).on('connection', (socket) => {
    const ping = setInterval(() => socket.ping(), LINK_PING_MS);
    socket.on('message', () => undefined);
    socket.on('close', () => clearInterval(ping));
  });
  http.listen({ host: '127.0.0.1', port: 0 });
  await once(http, 'listening');
  return { port: (http.address() as AddressInfo).port };
}
