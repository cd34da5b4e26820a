// JSON-RPC over HTTP: which answers of a node are a refusal of too many calls.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { isTooMany, openRpc } from '../../../../control-plane/money/deposits/rpc.ts';
import { systemClock } from '../../../../shared/clock.ts';

const errorWith = (code: number): string => JSON.stringify({ jsonrpc: '2.0', id: 1, error: { code, message: 'no' } });

test.each([
  ['status 429 and a page', 429, '<h1>Slow down</h1>', true],
  ['status 429 and a code of its own', 429, errorWith(-32_007), true],
  ['the code 429', 200, errorWith(429), true],
  ['another code', 200, errorWith(-32_007), false],
  ['another status and a page', 503, '<h1>Down</h1>', false],
])('a node that answers with %s', async (_what, status, body, expected) => {
  const server = createServer((_request, response) => response.writeHead(status).end(body));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const rpc = openRpc(`http://127.0.0.1:${port}`, { clock: systemClock() });
  const error = await rpc.call('getSlot', [], z.int()).catch((failure: unknown) => failure);
  expect([isTooMany(error), String(error).includes('getSlot')]).toEqual([expected, true]);
  await rpc.close();
  server.close();
});
