// GET /v1/bill: the statement of a month as JSON and CSV, the months that can be asked for, and who may read it.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { isoTime } from '../../shared/clock.ts';
import { type Api, type ApiAccount, openApi } from './api.ts';

const HOUR_MS = 3_600_000;

let api: Api;
let owner: ApiAccount;
beforeEach(async () => {
  api = await openApi();
  owner = await api.account();
});
afterEach(async () => {
  await api.world.verify();
  await api.close();
});

const bill = (query = ''): ReturnType<Api['call']> => api.call('GET', `/v1/bill${query}`, { key: owner.key });

test('the bill has a rental, its outage credit and a deposit, and its balances add up', async () => {
  await api.world.machine({ dollars: 1 });
  const id = await api.world.run(owner);
  await api.world.clock.advance(2 * HOUR_MS);
  await api.world.end(owner, id);
  const { status, json } = await bill();
  expect(status).toBe(200);
  expect(json).toMatchObject({
    org_id: owner.orgId,
    month: isoTime(api.world.clock.now()).slice(0, 7),
    currency: 'USD',
    is_complete: false,
    opening_balance: '0.00',
    lines: [
      { section: 'rental', subject_id: id, model: null, reason: null },
      { section: 'deposit', subject_id: owner.orgId, amount: '10000.00' },
    ],
  });
  const { json: balance } = await api.call('GET', '/v1/balance', { key: owner.key });
  expect(json['closing_balance']).toBe(balance['balance']);
});

test('the CSV of a bill has the same lines between its two balances', async () => {
  const { status, headers, body } = await bill('?format=csv');
  expect([status, headers['content-type']]).toEqual([200, 'text/csv; charset=utf-8']);
  const rows = body.trimEnd().split('\r\n');
  const month = isoTime(api.world.clock.now()).slice(0, 7);
  expect(rows).toEqual([
    'month,section,subject_id,model,reason,count,amount,currency,posted_at',
    `${month},opening_balance,,,,,0.00,USD,`,
    expect.stringMatching(new RegExp(`^${month},deposit,${owner.orgId},,,1,10000.00,USD,`)),
    `${month},closing_balance,,,,,10000.00,USD,`,
  ]);
});

test.each([
  ['2026-13', 'must be a month like 2026-11'],
  ['2026-1', 'must be a month like 2026-11'],
  ['november', 'must be a month like 2026-11'],
  ['', 'must be a month like 2026-11'],
  ['9999-01', 'must not be in the future'],
])('the month %o is 422 with its rule', async (month, rule) => {
  const { status, json } = await bill(`?month=${month}`);
  expect([status, json.errors]).toEqual([422, [{ field: 'month', rule }]]);
});

test('a month before the organisation is an empty bill', async () => {
  const { json } = await bill('?month=2001-02');
  expect(json).toMatchObject({ opening_balance: '0.00', closing_balance: '0.00', is_complete: true, lines: [] });
});

test('an organisation sees only its own bill', async () => {
  const other = await api.account(['billing:read']);
  const { json } = await api.call('GET', '/v1/bill', { key: other.key });
  expect(json).toMatchObject({ org_id: other.orgId, lines: [{ subject_id: other.orgId }] });
});
