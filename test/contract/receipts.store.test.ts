// GET /v1/receipts: what an organisation sees of requests that are open or over, and what of others it does not.
import { expect, test } from 'vitest';
import { Receipt } from '../../shared/api/receipt.ts';
import type { Answer } from './api.ts';
import { api, owner } from './api-of-test.ts';
import { openModelsForEachTest, upstream } from './models-of-test.ts';

openModelsForEachTest();

const ask = (key = owner.key): Promise<Answer> =>
  api.call('POST', '/v1/chat/completions', {
    key,
    body: { model: 'small', messages: [{ role: 'user', content: 'hi' }] },
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
