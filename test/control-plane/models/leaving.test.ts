// Callers who hang up, over a real connection: the request to the server is cancelled at once, and the hold is released.
import { request } from 'node:http';
import { once } from 'node:events';
import { beforeEach, expect, test } from 'vitest';
import { wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { api, owner } from '../../contract/api-of-test.ts';
import { openModelsForEachTest, upstream } from '../../contract/models-of-test.ts';
import { BEGIN, HELLO_EVENTS, say } from '../../kit/stream-chunks.ts';

let port: number;
openModelsForEachTest();
beforeEach(async () => {
  ({ port } = await api.http.listen({ host: '127.0.0.1', port: 0 }));
});

function ask(body: object): ReturnType<typeof request> {
  return post('/v1/chat/completions', { model: 'small', messages: [{ role: 'user', content: 'hi' }], ...body });
}

const books = () => api.world.rooms.ledger.balance(api.world.db.read, wallet(owner.orgId));

function post(path: string, body: object): ReturnType<typeof request> {
  const headers = { authorization: `Bearer ${owner.key}`, 'content-type': 'application/json' };
  const asking = request({ host: '127.0.0.1', port, path, method: 'POST', headers });
  asking.on('error', () => undefined);
  asking.end(JSON.stringify(body));
  return asking;
}

test('a caller hangs up while the server is silent', async () => {
  upstream.next({ ending: 'stall' });
  const asking = ask({});
  await upstream.came(1);
  asking.destroy();
  await upstream.wereLeft(1);
  await api.world.rooms.gateway.close();
  expect((await books()).heldUcents).toBe(0n);
});

test('a caller hangs up within a stream', async () => {
  upstream.next({ events: [BEGIN, say('Hello')], ending: 'stall' });
  const asking = ask({ stream: true });
  const [response] = (await once(asking, 'response')) as [NodeJS.ReadableStream];
  await once(response, 'data');
  asking.destroy();
  await upstream.wereLeft(1);
  await api.world.rooms.gateway.close();
  const { heldUcents, postedUcents } = await books();
  expect(heldUcents).toBe(0n);
  expect(postedUcents).toBeLessThan(1_000_000_000_000n);
});

test('a caller that leaves an image pays for it, because its server makes it to the end', async () => {
  const made = Promise.withResolvers<void>();
  upstream.next({ after: made.promise, body: { created: 1, data: [{ b64_json: 'QUFB' }] } });
  const asking = post('/v1/images/generations', { model: 'artist', prompt: 'a cat' });
  await upstream.came(1);
  asking.destroy();
  // The server has noticed the end of that connection before it answers another one.
  await fetch(`http://127.0.0.1:${port}/healthz`);
  expect((await books()).heldUcents).toBe(2_500_001n);
  made.resolve();
  await expect.poll(books).toMatchObject({ heldUcents: 0n, postedUcents: 1_000_000_000_000n - 2_500_001n });
  expect(upstream.left()).toBe(0);
  const { json } = await api.call('GET', '/v1/receipts', { key: owner.key });
  expect(json['data']).toMatchObject([{ ending: 'client_left' }]);
});

test('a caller that leaves an image while it waits for a second server pays nothing, and no further server is asked', async () => {
  const first = Promise.withResolvers<void>();
  upstream.next({ after: first.promise, status: 503 });
  const asking = post('/v1/images/generations', { model: 'artist', prompt: 'a cat' });
  await upstream.came(1);
  asking.destroy();
  await fetch(`http://127.0.0.1:${port}/healthz`);
  first.resolve();
  await expect.poll(books).toMatchObject({ heldUcents: 0n, postedUcents: 1_000_000_000_000n });
  expect(upstream.asked).toHaveLength(1);
});

test('a caller with a complete answer does not count as one who left, and the connection to the server is used again', async () => {
  upstream.usual = ({ body }) => (body['stream'] === true ? { events: HELLO_EVENTS } : {});
  for (const stream of [false, true, true, false]) {
    const [response] = (await once(ask({ stream }), 'response')) as [NodeJS.ReadableStream & { statusCode: number }];
    response.resume();
    await once(response, 'end');
    expect(response.statusCode).toBe(200);
  }
  expect(upstream.left()).toBe(0);
  expect(upstream.connections()).toBe(1);
});
