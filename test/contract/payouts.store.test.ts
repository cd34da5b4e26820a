// What a supplier reads and decides about its payouts: where they go, what was paid, and the statement of a month.
import { describe, expect, test } from 'vitest';
import { bucketStart } from '../../control-plane/money/metering/buckets.ts';
import type { Chain, CommunityStatement } from '../../shared/api/payout.ts';
import { isoTime } from '../../shared/clock.ts';
import { DESTINATION_CHANGES_PER_DAY_MAX } from '../../shared/limits.ts';
import { openOperator } from '../kit/operator.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';
import { bringMachine } from './suppliers.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const HOME = '0x52908400098527886E0F7030069857D2E4169EE7';
const AWAY = '0xde709f2102306220921060314715629080e2fb77';
const SOLANA = 'EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v';
const DESTINATION = '/v1/community/payout-destination';

openApiForEachTest();

const ask = (method: 'GET' | 'PUT' | 'DELETE', path: string, body?: object, key = owner.key) =>
  api.call(method, path, { key, ...(body === undefined ? {} : { body }) });
const name = (address: string, chain: Chain = 'base') => ask('PUT', DESTINATION, { chain, address });
const payouts = async () => (await ask('GET', '/v1/community/payouts')).json.data as Record<string, unknown>[];
const makeDue = () => api.world.rooms.payouts.makeDue(new AbortController().signal);

/** A rental of 40 hours at a dollar that has ended: the supplier earns 32 dollars. Returns the machine and the rental. */
async function earn(): Promise<{ machineId: string; id: string }> {
  const machineId = await bringMachine(api, owner, { price_per_hour: 1 });
  const customer = await api.world.customer(1_000_000);
  const id = await api.world.run(customer);
  await api.world.clock.advance(40 * HOUR_MS);
  await api.world.end(customer, id);
  await api.world.clock.advance(1);
  return { machineId, id };
}

describe('the payout destination', () => {
  test('of an organisation that is no supplier is not found, in each of its ways', async () => {
    for (const answer of [
      await ask('GET', DESTINATION),
      await name(HOME),
      await ask('DELETE', `${DESTINATION}/pending`),
    ]) {
      expect(answer).toMatchObject({ status: 404, json: { code: 'not_found' } });
    }
  });

  test('is in force at once if it is the first, pending if it changes, and in force again if the change is cancelled', async () => {
    await bringMachine(api, owner);
    expect((await ask('GET', DESTINATION)).json).toMatchObject({ destination: null, pending: null });
    const since = isoTime(api.world.clock.now());
    const destination = { chain: 'base', address: HOME, since };
    expect(await name(HOME.toLowerCase())).toMatchObject({ status: 200, json: { destination, pending: null } });
    const requestedMs = api.world.clock.now();
    const pending = {
      chain: 'solana',
      address: SOLANA,
      requested_at: isoTime(requestedMs),
      in_force_at: isoTime(requestedMs + 2 * DAY_MS),
    };
    expect((await name(SOLANA, 'solana')).json).toMatchObject({ destination, pending });
    expect((await ask('GET', DESTINATION)).json).toMatchObject({ destination, pending });
    const cancelled = await ask('DELETE', `${DESTINATION}/pending`);
    expect(cancelled).toMatchObject({ status: 200, json: { destination, pending: null } });
    expect(await ask('DELETE', `${DESTINATION}/pending`)).toMatchObject({ status: 409, json: { code: 'conflict' } });
  });

  test('comes with the schedule: a payout is due once in a week, and the next one from the next Monday on', async () => {
    await earn();
    const monday = (ms: number): string => isoTime(bucketStart(ms, 'week'));
    const schedule = {
      every: 'week',
      minimum_cents: 2_500,
      not_before: monday(api.world.clock.now()),
      earnings_delay_hours: 0,
      destination_delay_hours: 48,
    };
    expect((await name(HOME)).json).toMatchObject({ schedule });
    expect((await ask('GET', DESTINATION)).json).toMatchObject({ schedule });
    await makeDue();
    expect(await payouts()).toHaveLength(1);
    const next = { ...schedule, not_before: monday(api.world.clock.now() + 7 * DAY_MS) };
    expect((await ask('GET', DESTINATION)).json).toMatchObject({ schedule: next });
  });

  test(`is changed ${DESTINATION_CHANGES_PER_DAY_MAX} times in any day, and no more`, async () => {
    await bringMachine(api, owner);
    const other = (n: number): string => `0x${String(n).padStart(40, '0')}`;
    expect((await name(HOME)).status).toBe(200);
    await api.world.clock.advance(HOUR_MS);
    for (let n = 2; n <= DESTINATION_CHANGES_PER_DAY_MAX; n += 1) expect((await name(other(n))).status).toBe(200);
    const last = other(DESTINATION_CHANGES_PER_DAY_MAX);
    const refused = await name(AWAY);
    expect(refused).toMatchObject({ status: 429, json: { code: 'rate_limit_exceeded' } });
    expect(refused.headers['retry-after']).toBe(String((DAY_MS - HOUR_MS) / 1_000));
    // A refusal leaves the pending change, which can be named again, and cancelled in both ways.
    expect(await name(last)).toMatchObject({ status: 200, json: { pending: { address: last } } });
    expect(await name(HOME)).toMatchObject({ status: 200, json: { destination: { address: HOME }, pending: null } });
    await api.world.clock.advance(DAY_MS - HOUR_MS - 1);
    expect((await name(AWAY)).status).toBe(429);
    await api.world.clock.advance(1);
    expect(await name(AWAY)).toMatchObject({
      status: 200,
      json: { pending: { address: expect.stringMatching(/^0xde/i) } },
    });
    expect((await ask('DELETE', `${DESTINATION}/pending`)).json).toMatchObject({ pending: null });
    expect((await name(SOLANA, 'solana')).status).toBe(429);
  });

  test.each([
    [{ chain: 'base', address: SOLANA }, 'address', 'this is a Solana address'],
    [{ chain: 'solana', address: HOME }, 'address', 'this is an EVM address'],
    [
      { chain: 'base', address: '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1Beaed' },
      'address',
      'must have the checksum of EIP-55',
    ],
    [{ chain: 'base', address: '' }, 'address', ''],
    [{ chain: 'base', address: 'x'.repeat(65) }, 'address', ''],
    [{ chain: 'bitcoin', address: HOME }, 'chain', ''],
    [{ chain: 'base' }, 'address', ''],
    [{ chain: 'base', address: HOME, memo: '1' }, 'memo', ''],
  ])('%j is 422 and names %s', async (body, field, rule) => {
    await bringMachine(api, owner);
    const { status, json } = await ask('PUT', DESTINATION, body);
    const errors = json.errors as { field: string; rule: string }[];
    expect([status, errors.map((each) => each.field)]).toEqual([422, [field]]);
    expect(errors[0]?.rule).toContain(rule);
    expect((await ask('GET', DESTINATION)).json).toMatchObject({ destination: null });
  });
});

describe('payouts', () => {
  test('show each step: due, why it waits, in flight with its destination, paid with its transaction', async () => {
    const operator = openOperator(api.world);
    await earn();
    await name(HOME);
    await makeDue();
    const created_at = isoTime(api.world.clock.now());
    const due = {
      payout_id: expect.any(String) as string,
      status: 'due',
      amount_cents: 3_200,
      destination: null,
      reference: null,
      reason: null,
      created_at,
      in_flight_at: null,
      paid_at: null,
      failed_at: null,
    };
    expect(await payouts()).toEqual([due]);
    await name(AWAY);
    expect(await payouts()).toMatchObject([{ reason: expect.stringContaining('is pending until') as string }]);
    await ask('DELETE', `${DESTINATION}/pending`);
    const exported = await operator.ask('POST', '/admin/payouts/export', { batch: 'monday' });
    const [payment] = exported['data'] as Record<string, unknown>[];
    expect(payment).toMatchObject({ chain: 'base', asset: 'usdc', address: HOME, amount: '32.00' });
    const destination = { chain: 'base', address: HOME };
    const flying = { ...due, status: 'in_flight', destination, in_flight_at: created_at };
    expect(await payouts()).toEqual([flying]);
    await api.world.clock.advance(HOUR_MS);
    const reference = '0x9a';
    await operator.ask('POST', `/admin/payouts/${String(payment?.['payout_id'])}/sent`, { reference });
    const paid_at = isoTime(api.world.clock.now());
    expect(await payouts()).toEqual([{ ...flying, status: 'paid', reference, paid_at }]);
  });

  test('that fail say why, and the money is owed again', async () => {
    const operator = openOperator(api.world);
    await earn();
    await name(HOME);
    await makeDue();
    const exported = await operator.ask('POST', '/admin/payouts/export', { batch: 'monday' });
    const [payment] = exported['data'] as Record<string, unknown>[];
    const id = String(payment?.['payout_id']);
    await operator.ask('POST', `/admin/payouts/${id}/failed`, { reason: 'the chain is halted' });
    const failed_at = isoTime(api.world.clock.now());
    expect(await payouts()).toMatchObject([
      { status: 'failed', reason: 'the chain is halted', failed_at, paid_at: null },
    ]);
    const { json } = await ask('GET', '/v1/community/earnings');
    expect(json).toMatchObject({ accrued_cents: 3_200, unpaid_cents: 3_200, payable_cents: 3_200 });
    const sent = operator.ask('POST', `/admin/payouts/${id}/sent`, { reference: 'x' });
    await expect(sent).rejects.toMatchObject({ code: 'conflict' });
  });
});

describe('the statement', () => {
  const statement = async (query = ''): Promise<CommunityStatement> => {
    const { status, json } = await ask('GET', `/v1/community/statement${query}`);
    expect(status).toBe(200);
    return json as unknown as CommunityStatement;
  };

  test('has a rental and its payout between two balances, and goes on in the next month', async () => {
    const { machineId, id } = await earn();
    const { supplier_id: supplierId } = (await ask('GET', '/v1/community/supplier')).json;
    await api.world.rooms.payouts.pay({ supplierId: String(supplierId), cents: 3_000, reference: 'wire 7' });
    const month = isoTime(api.world.clock.now()).slice(0, 7);
    const shown = await statement();
    expect(shown).toMatchObject({
      month,
      currency: 'USD',
      is_complete: false,
      opening_balance: '0.00',
      closing_balance: '2.00',
      totals: [
        { section: 'earning', amount: '32.00' },
        { section: 'payout', amount: '-30.00' },
      ],
      lines: [
        { section: 'earning', machine_id: machineId, instance_id: id, payout_id: null, amount: '32.00' },
        { section: 'payout', machine_id: null, instance_id: null, count: 1, amount: '-30.00' },
      ],
    });
    expect(shown.lines[1]?.payout_id).toBe((await payouts())[0]?.['payout_id']);
    const { body, headers } = await ask('GET', '/v1/community/statement?format=csv');
    expect(headers['content-type']).toBe('text/csv; charset=utf-8');
    const rows = body
      .trimEnd()
      .split('\r\n')
      .map((row) => row.split(','));
    expect(rows.map((row) => [row[1], row[7]])).toEqual([
      ['section', 'amount'],
      ['opening_balance', '0.00'],
      ['earning', '32.00'],
      ['payout', '-30.00'],
      ['closing_balance', '2.00'],
    ]);
    await api.world.clock.advance(31 * DAY_MS);
    expect(await statement()).toMatchObject({ opening_balance: '2.00', closing_balance: '2.00', lines: [] });
    expect(await statement(`?month=${month}`)).toEqual({ ...shown, is_complete: true });
  });

  test.each([
    ['2026-13', 'must be a month like 2026-11'],
    ['november', 'must be a month like 2026-11'],
    ['9999-01', 'must not be in the future'],
  ])('of the month %o is 422 with its rule', async (month, rule) => {
    const { status, json } = await ask('GET', `/v1/community/statement?month=${month}`);
    expect([status, json.errors]).toEqual([422, [{ field: 'month', rule }]]);
  });

  test('of a month before the supplier, and of an organisation that is none, is empty', async () => {
    const empty = { opening_balance: '0.00', closing_balance: '0.00', totals: [], lines: [] };
    expect(await statement()).toMatchObject(empty);
    await earn();
    expect(await statement('?month=2001-02')).toMatchObject({ ...empty, is_complete: true });
    const other = await api.account();
    expect((await ask('GET', '/v1/community/statement', undefined, other.key)).json).toMatchObject(empty);
  });
});
