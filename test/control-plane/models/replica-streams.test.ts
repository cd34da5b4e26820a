// Streams of a replica: silent while they wait, then pings; a failure is reported in the form that is still possible; and who counts the tokens.
import { expect, test } from 'vitest';
import { api, owner } from '../../contract/api-of-test.ts';
import { dataOf } from '../../kit/stream-chunks.ts';
import { chat, live, openReplicasForEachTest, server, startAll, tick, trusted, waiting } from './replica-world.ts';

openReplicasForEachTest(() => ({ engine: 'vllm' }));

const CHUNKS = [
  { choices: [{ index: 0, delta: { role: 'assistant', content: 'Hello' }, finish_reason: null }] },
  { choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] },
  { choices: [], usage: { prompt_tokens: 6, completion_tokens: 1, total_tokens: 7 } },
  'data: [DONE]\n\n',
];

/** The server answers readiness checks whole, and requests of callers as a stream. */
function streams(): void {
  server.usual = ({ body }) => (body['stream'] === true ? { events: CHUNKS } : {});
}

const ending = async (): Promise<unknown> => {
  const { json } = await api.call('GET', '/v1/receipts', { key: owner.key });
  return json.data?.map((receipt) => [receipt['ending'], receipt['cost']]);
};

test('a wait of up to five seconds begins with the answer, without a ping', async () => {
  streams();
  await trusted();
  const answer = chat({ stream: true });
  await waiting(1);
  await tick(4_999);
  await startAll();
  const { status, body } = await answer;
  expect([status, body.includes(': ping')]).toEqual([200, false]);
  expect(dataOf(body).at(-1)).toBe('[DONE]');
});

test('a longer wait begins with a ping, has more of them, and ends with the answer', async () => {
  streams();
  await trusted();
  const answer = chat({ stream: true });
  await waiting(1);
  for (const { instance_id: id } of await live()) await api.world.observe(id ?? '', { phase: 'pulling' });
  for (let n = 0; n < 6; n += 1) await tick(10_000);
  await startAll();
  await tick();
  const { status, headers, body } = await answer;
  expect([status, headers['content-type']]).toEqual([200, 'text/event-stream; charset=utf-8']);
  expect(headers['x-receipt-id']).toMatch(/^rcp_/);
  expect(body).toMatch(/^: ping\n(: ping\n)+data: /);
  const [first] = dataOf(body);
  expect(first).toMatchObject({ model: 'acme/tiny', choices: [{ delta: { role: 'assistant' } }] });
  expect(dataOf(body).at(-1)).toBe('[DONE]');
  expect(await ending()).toEqual([['completed', '0.0000015']]);
});

test('a failure after the headers is the only event before [DONE], and is free of charge', async () => {
  await trusted();
  const answer = chat({ stream: true });
  await waiting(1);
  for (let n = 0; n < 13; n += 1) await tick(10_000);
  const { status, body } = await answer;
  expect(status).toBe(200);
  expect(dataOf(body)).toMatchObject([{ error: { code: 'upstream_unavailable', type: 'server_error' } }, '[DONE]']);
  expect(await ending()).toEqual([['upstream_failed', '0.00']]);
});

test('a wait ends without a charge when the service stops', async () => {
  await trusted();
  const answer = chat({ stream: true });
  await waiting(1);
  await tick(6_000);
  await api.world.rooms.gateway.drain(0);
  const { body } = await answer;
  expect(dataOf(body)).toMatchObject([
    { error: { message: expect.stringContaining('The service restarts') } },
    '[DONE]',
  ]);
  expect(await ending()).toEqual([['process_ended', '0.00']]);
});

test('a replica that was still loading its model is asked again after the wait', async () => {
  await trusted();
  const loading = { error: { code: 503, message: 'Loading model', type: 'unavailable_error' } };
  let asked = 0;
  const answer = chat();
  await waiting(1);
  server.usual = () => ((asked += 1) === 2 ? { status: 503, body: loading } : {});
  await startAll();
  for (let n = 0; n < 10; n += 1) await tick();
  expect((await answer).status).toBe(200);
  expect(asked).toBeGreaterThan(2);
});

test('a replica that says that it is busy is asked once a second by each request that waits for it, and no more often', async () => {
  await trusted();
  const answers = [chat(), chat(), chat()];
  await waiting(3);
  let asked = 0;
  let isBusy = true;
  server.usual = ({ body }) => {
    if (body['max_tokens'] === 1) return {};
    asked += 1;
    return isBusy ? { status: 429, body: {} } : {};
  };
  await startAll();
  for (let n = 0; n < 5; n += 1) await tick();
  expect(asked).toBeGreaterThan(3);
  expect(asked).toBeLessThanOrEqual(3 * 6);
  isBusy = false;
  for (let n = 0; n < 3; n += 1) await tick();
  expect((await Promise.all(answers)).map(({ status }) => status)).toEqual([200, 200, 200]);
});

test('an answer that the server of a replica has not counted is counted by its tokenizer', async () => {
  server.usual = ({ path, body }) => {
    if (path === '/tokenize') return { body: { count: body['messages'] === undefined ? 2 : 7, max_model_len: 10 } };
    return body['stream'] === true ? { events: [...CHUNKS.slice(0, 2), 'data: [DONE]\n\n'] } : {};
  };
  await trusted();
  const answer = chat({ stream: true });
  await waiting(1);
  await startAll();
  expect((await answer).status).toBe(200);
  const { json } = await api.call('GET', '/v1/receipts', { key: owner.key });
  expect(json.data).toMatchObject([{ counted_by: 'tokenizer', prompt_tokens: 7, completion_tokens: 2 }]);
});
