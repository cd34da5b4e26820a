// GET /v1/receipts: what an organisation sees of requests that are open or over, and what of others it does not.
import { expect, test } from 'vitest';
import { Receipt } from '../../shared/api/receipt.ts';
import type { Answer } from './api.ts';
import { api, owner } from './api-of-test.ts';
import { openModelsForEachTest, upstream } from './models-of-test.ts';

openModelsForEachTest();

const ask = (key = owner.key, more: object = {}): Promise<Answer> =>
  api.call('POST', '/v1/chat/completions', {
    key,
    body: { model: 'small', messages: [{ role: 'user', content: 'hi' }], ...more },
  });
const list = (query = '', key = owner.key): Promise<Answer> => api.call('GET', `/v1/receipts${query}`, { key });

test('a request under way has an open receipt, which shows the hold and nothing else', async () => {
  const gate = Promise.withResolvers<void>();
  upstream.next({ after: gate.promise });
  const asking = ask();
  await upstream.came(1);
  const [receipt] = (await list()).json.data ?? [];
  expect(Receipt.parse(receipt)).toMatchObject({
    state: 'open',
    ending: null,
    closed_at: null,
    prompt_tokens: null,
    counted_by: null,
    cost: '0.00',
    held: '0.0006555',
  });
  gate.resolve();
  expect((await asking).status).toBe(200);
});

test('an organisation sees its own receipts, page by page, and cannot read receipts or pages of others', async () => {
  const other = await api.account();
  for (let i = 0; i < 3; i += 1) await ask();
  const theirs = await ask(other.key);
  const first = await list('?limit=2');
  expect(first.json.data).toHaveLength(2);
  const cursor = String(first.json.next_cursor);
  const second = await list(`?limit=2&cursor=${cursor}`);
  expect(second.json).toMatchObject({ data: [expect.anything()], next_cursor: null });
  const ids = [...(first.json.data ?? []), ...(second.json.data ?? [])].map(({ id }) => id);
  expect(new Set(ids).size).toBe(3);
  expect((await list('', other.key)).json.data).toMatchObject([{ id: theirs.headers['x-receipt-id'] }]);
  expect((await list(`?cursor=${cursor}`, other.key)).status).toBe(422);
  expect((await api.call('GET', `/v1/receipts/${String(ids[0])}`, { key: other.key })).status).toBe(404);
});

test('a receipt keeps the user and the metadata of any request, and the list can be of one user', async () => {
  const metadata = { team: 'ü', job: '7' };
  const chat = await ask(owner.key, { user: 'ann', metadata });
  const data = [{ index: 0, embedding: [1] }];
  upstream.next({ body: { data, usage: { prompt_tokens: 2 } } });
  const embedding = { model: 'acme/embedder', input: 'a', user: 'ann' };
  await api.call('POST', '/v1/embeddings', { key: owner.key, body: embedding });
  upstream.next({ body: { data: [{ b64_json: 'QUJD' }] } });
  const image = { model: 'artist', prompt: 'a cat', user: 'bob' };
  await api.call('POST', '/v1/images/generations', { key: owner.key, body: image });
  await ask();
  expect((await list('?user=ann')).json.data).toMatchObject([
    { model: 'acme/embedder', user: 'ann', metadata: {} },
    { id: chat.headers['x-receipt-id'], user: 'ann', metadata },
  ]);
  expect((await list('?user=bob')).json.data).toMatchObject([{ model: 'acme/artist', user: 'bob' }]);
  expect((await list()).json.data).toHaveLength(4);
  expect(JSON.stringify(upstream.asked)).not.toMatch(/ann|bob|team/);
});

test('a receipt keeps the safety_identifier of a chat in place of a user, and no prompt_cache_key reaches a server', async () => {
  await ask(owner.key, { safety_identifier: 'sha-1', prompt_cache_key: 'key-1' });
  await ask(owner.key, { safety_identifier: 'sha-1', user: 'ann' });
  expect((await list()).json.data).toMatchObject([{ user: 'ann' }, { user: 'sha-1' }]);
  expect(JSON.stringify(upstream.asked)).not.toMatch(/sha-1|key-1/);
});

test('a page of the receipts of one user leads on to receipts of that user only', async () => {
  for (const user of ['ann', 'bob', 'ann']) await ask(owner.key, { user });
  const cursor = String((await list('?user=ann&limit=1')).json.next_cursor);
  expect((await list(`?user=ann&limit=1&cursor=${cursor}`)).json).toMatchObject({
    data: [{ user: 'ann' }],
    next_cursor: null,
  });
  expect((await list(`?user=bob&cursor=${cursor}`)).status).toBe(422);
});
