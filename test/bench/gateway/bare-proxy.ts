// The named peer that is as fast as Node can be: passes each chat on to the same model server, checks nothing and bills nothing.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Pool } from 'undici';
import { type Answer, type Order, serveOrders } from '../side.ts';

serveOrders(serve);

async function serve({ upstream }: Order): Promise<Answer> {
  const pool = new Pool(String(upstream), { connections: 2_048, pipelining: 1, headersTimeout: 0, bodyTimeout: 0 });
  const server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on('data', (piece: Buffer) => pieces.push(piece));
    request.on('end', () => pass(pool, { request, response, body: Buffer.concat(pieces) }));
  });
  server.keepAliveTimeout = 600_000;
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { port: (server.address() as AddressInfo).port };
}

interface Passed {
  request: IncomingMessage;
  response: ServerResponse;
  body: Buffer;
}

function pass(pool: Pool, { request, response, body }: Passed): void {
  let whole: Buffer[] | undefined;
  const headers = { 'content-type': 'application/json' };
  pool.dispatch(
    { method: 'POST', path: request.url ?? '/', headers, body },
    {
      onRequestStart: (controller) => void response.once('close', () => endIfOpen(controller, response)),
      onResponseStart: (_controller, status, answered) => {
        const isWhole = answered['content-length'] !== undefined;
        response.writeHead(status, { 'content-type': String(answered['content-type']) });
        // A whole answer goes out in one write with its head.
        if (isWhole) whole = [];
        else response.flushHeaders();
      },
      onResponseData: (_controller, piece) => {
        if (whole === undefined) response.write(piece);
        else whole.push(piece);
      },
      onResponseEnd: () => void response.end(whole === undefined ? undefined : Buffer.concat(whole)),
      onResponseError: () => void response.destroy(),
    },
  );
}

function endIfOpen(controller: { abort(reason: Error): void }, response: ServerResponse): void {
  if (!response.writableFinished) controller.abort(new Error('the caller has left'));
}
