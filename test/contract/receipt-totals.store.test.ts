// GET /v1/receipts/totals: what an organisation has spent on models, by time and by model or key.
import { expect, test } from 'vitest';
import { sumReceipts } from '../../control-plane/models/gateway/totals.ts';
import { isoTime } from '../../shared/clock.ts';
import { ReceiptTotals } from '../../shared/api/receipt-totals.ts';
import type { Answer } from './api.ts';
import { api, owner } from './api-of-test.ts';
import { openModelsForEachTest } from './models-of-test.ts';

openModelsForEachTest();

const HOUR_MS = 3_600_000;

const ask = (key = owner.key): Promise<Answer> =>
  api.call('POST', '/v1/chat/completions', {
    key,
    body: { model: 'small', messages: [{ role: 'user', content: 'hi' }] },
  });
const totals = (query = '', key = owner.key): Promise<Answer> =>
  api.call('GET', `/v1/receipts/totals${query}`, { key });
const sumUp = async (): Promise<void> => {
  await api.world.clock.advance(3 * 60_000);
  await sumReceipts(api.world, new AbortController().signal);
};

test('the totals of the last thirty days are the sums of the receipts, and say how far they reach', async () => {
  const other = await api.account();
  const receipts = [await ask(), await ask()];
  await ask(other.key);
  expect((await totals()).json).toMatchObject({ data: [], next_cursor: null });
  await sumUp();
  const { json } = await totals();
  const [row] = ReceiptTotals.parse(json).data;
  expect(receipts.map(({ status }) => status)).toEqual([200, 200]);
  expect(row).toMatchObject({
    model: 'acme/small-chat',
    requests: 2,
    prompt_tokens: 12,
    completion_tokens: 6,
    images: 0,
    cost: '0.0000054',
  });
  expect(json['complete_until']).toBe(isoTime(api.world.clock.now() - 2 * 60_000));
  expect((await totals('?group_by=api_key_id')).json.data).toMatchObject([
    { api_key_id: owner.principalId, requests: 2 },
  ]);
  const [all] = (await totals('?group_by=none&bucket=month')).json.data ?? [];
  expect(Object.keys(all ?? {})).toEqual([
    'bucket_start',
    'requests',
    'prompt_tokens',
    'completion_tokens',
    'images',
    'cost',
  ]);
});

test('a window begins and ends with a bucket, and is refused otherwise', async () => {
  await ask();
  await sumUp();
  const hourMs = Math.floor(api.world.clock.now() / HOUR_MS) * HOUR_MS;
  const [start, end] = [isoTime(hourMs), isoTime(hourMs + HOUR_MS)];
  expect((await totals(`?bucket=hour&start=${start}&end=${end}`)).json.data).toHaveLength(1);
  expect((await totals(`?bucket=hour&start=${end}&end=${isoTime(hourMs + 2 * HOUR_MS)}`)).json.data).toEqual([]);
  for (const [query, field] of [
    [`?bucket=hour&start=${isoTime(hourMs + 1)}`, 'start'],
    [`?start=2026-01-01T01:00:00Z&end=2026-01-02`, 'start'],
    [`?bucket=month&start=2026-01-01&end=2026-02-02`, 'end'],
    [`?start=2026-01-02&end=2026-01-02`, 'start'],
    [`?bucket=hour&start=2026-01-01&end=2026-06-01`, 'start'],
  ]) {
    const answer = await totals(query);
    expect([query, answer.status, answer.json.errors?.[0]?.field]).toEqual([query, 422, field]);
  }
});
