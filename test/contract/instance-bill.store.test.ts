// GET /v1/instances/{id}/bill: its sums equal the ledger to the microcent, and say what was not charged and why.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { ucents } from '../../control-plane/base/db/columns.ts';
import { heldOf } from '../../control-plane/money/credits/store.ts';
import { sql } from '../../control-plane/base/db/db.ts';
import type { InstanceBill } from '../../shared/api/instance-bill.ts';
import { isoTime } from '../../shared/clock.ts';
import { openOperator } from '../kit/operator.ts';
import { watchFor } from '../kit/watching.ts';
import { type Api, type ApiAccount, openApi } from './api.ts';

const HOUR_MS = 3_600_000;
const DEAD = { ok: false, leg: 'banner', detail: 'banner: the connection was closed' } as const;

let api: Api;
let owner: ApiAccount;
afterEach(async () => {
  await api.world.verify();
  await api.close();
});

async function billOf(id: string, key = owner.key): Promise<InstanceBill> {
  const { status, json } = await api.call('GET', `/v1/instances/${id}/bill`, { key });
  expect(status).toBe(200);
  const bill = json as unknown as InstanceBill;
  await expectEqualsLedger(bill);
  return bill;
}

/** Microcents. */
const exact = (dollars = 'none'): bigint => {
  const [, sign = '', whole = '', fraction = ''] = /^(-?)(\d+)\.(\d+)$/.exec(dollars) ?? [];
  return BigInt(`${sign}${whole}${fraction.padEnd(8, '0')}`);
};
const sum = (dollars: readonly { amount: string }[]): bigint =>
  dollars.reduce((total, { amount }) => total + exact(amount), 0n);

/** The sums agree with each other, with the rows, and with the transfers of the wallet. */
async function expectEqualsLedger({ instance_id: id, segments, refunds, totals }: InstanceBill): Promise<void> {
  const wallet = `customer_wallet:${owner.orgId}`;
  const row = await api.world.db.read.one(
    z.object({ paid: ucents }),
    sql`select cast(coalesce(sum(case when debit_account_id = ${wallet} then amount_ucents else -amount_ucents end), 0) as bigint) as paid
        from transfers where subject_id = ${id} and (debit_account_id = ${wallet} or credit_account_id = ${wallet})`,
  );
  expect(exact(totals.posted)).toBe(row?.paid);
  expect(sum(segments)).toBe(exact(totals.usage));
  expect(sum(refunds)).toBe(exact(totals.refunds));
  const parts = [totals.usage, totals.held_credits].map(exact).reduce((a, b) => a + b, 0n);
  expect(exact(totals.cost)).toBe(parts - exact(totals.uncovered) - exact(totals.refunds));
  expect(exact(totals.posted)).toBe(exact(totals.cost) - exact(totals.unposted));
}

const watch = (ms: number): Promise<void> => watchFor(api.world, ms);
const tick = () => api.world.rooms.metering.tick(new AbortController().signal);

/** Unreachable for five minutes, and reachable again. */
async function outage(id: string): Promise<void> {
  await watch(60_000);
  api.world.probeAnswers.set(id, DEAD);
  await watch(300_000);
  api.world.probeAnswers.delete(id);
  await watch(60_000);
}

describe('the bill of an instance', () => {
  beforeEach(async () => {
    api = await openApi();
    owner = await api.account();
    await api.world.machine({ dollars: 1.29 });
  });

  test('counts a running instance until now, although the ledger gets its hours later', async () => {
    const id = await api.world.run(owner);
    await api.world.clock.advance(1_234_567);
    const bill = await billOf(id);
    expect(bill).toMatchObject({
      instance_id: id,
      currency: 'USD',
      as_of: isoTime(api.world.clock.now()),
      is_complete: false,
      credits: [],
      refunds: [],
    });
    expect(bill.segments).toHaveLength(1);
    expect(bill.segments[0]).toMatchObject({ until: null, price_per_hour: 1.29 });
    expect(exact(bill.totals.cost)).toBe(
      (129_000_000n * BigInt((bill.segments[0]?.seconds ?? 0) * 1000)) / BigInt(HOUR_MS),
    );
    expect(bill.totals).toMatchObject({ posted: '0.00', unposted: bill.totals.cost });
    await api.world.clock.advance(3 * HOUR_MS);
    await tick();
    const later = await billOf(id);
    expect(exact(later.totals.posted)).toBeGreaterThan(0n);
    expect(exact(later.totals.unposted)).toBeGreaterThan(0n);
  });

  test('names the evidence of an outage that was credited, and an operator’s refund', async () => {
    const id = await api.world.run(owner);
    await api.world.clock.advance(2 * HOUR_MS);
    await tick();
    await outage(id);
    await api.world.end(owner, id);
    const refund = { subject_id: id, amount: '0.00000007', reference: 'r1', reason: 'slow disk' };
    await openOperator(api.world).ask('POST', '/admin/corrections/refunds', refund);
    const bill = await billOf(id);
    expect(bill.is_complete).toBe(true);
    expect(bill.segments).toHaveLength(2);
    expect(bill.credits).toEqual([
      {
        cause: 'outage',
        from: bill.segments[0]?.until,
        until: bill.segments[1]?.from,
        seconds: expect.any(Number),
        amount: expect.stringMatching(/^0\.\d+$/),
        status: 'credited',
        held_amount: '0.00',
        reason: expect.stringContaining('failed SSH probes since'),
      },
    ]);
    expect(bill.credits[0]?.seconds).toBeGreaterThan(200);
    expect(exact(bill.credits[0]?.amount)).toBe(
      (129_000_000n * BigInt((bill.credits[0]?.seconds ?? 0) * 1000)) / BigInt(HOUR_MS),
    );
    expect(bill.refunds).toMatchObject([{ amount: '0.00000007', reason: 'slow disk', reference: 'r1' }]);
    expect(bill.totals).toMatchObject({ refunds: '0.00000007', unposted: '0.00', uncovered: '0.00' });
  });

  test('shows an outage that lasts as an open credit', async () => {
    const id = await api.world.run(owner);
    await watch(60_000);
    api.world.probeAnswers.set(id, DEAD);
    await watch(300_000);
    const bill = await billOf(id);
    expect(bill).toMatchObject({
      is_complete: false,
      segments: [{ until: bill.credits[0]?.from }],
      credits: [{ cause: 'outage', status: 'open', until: null, held_amount: '0.00' }],
    });
    const lastsMs = Date.parse(bill.as_of) - Date.parse(bill.credits[0]?.from ?? '');
    expect(bill.credits[0]?.seconds).toBe(lastsMs / 1000);
    expect(exact(bill.credits[0]?.amount)).toBe((129_000_000n * BigInt(lastsMs)) / BigInt(HOUR_MS));
  });

  test('has the time that a dispute took back as a credit', async () => {
    const id = await api.world.run(owner);
    const startMs = api.world.clock.now();
    await api.world.clock.advance(3 * HOUR_MS);
    await api.world.end(owner, id);
    const before = await billOf(id);
    const { disputes } = api.world.rooms.payouts;
    const dispute = await disputes.open({ instanceId: id, sinceMs: startMs + HOUR_MS, reason: 'wrong GPU' });
    await disputes.resolve(dispute.id, { refund: true, note: 'agreed' });
    const bill = await billOf(id);
    expect(bill.credits).toMatchObject([
      { cause: 'dispute', status: 'credited', reason: `refunded after dispute ${dispute.id}` },
    ]);
    expect(bill.credits[0]).toMatchObject({ from: isoTime(startMs + HOUR_MS), until: before.segments[0]?.until });
    expect([bill.credits[0]?.seconds, bill.credits[0]?.held_amount]).toEqual([2 * 3_600, '0.00']);
    expect(bill.segments[0]?.until).toBe(isoTime(startMs + HOUR_MS));
    expect(exact(before.totals.cost) - exact(bill.totals.cost)).toBe(exact(bill.credits[0]?.amount));
  });

  test('of an instance that never ran is empty', async () => {
    const id = await api.world.launch(owner);
    expect(await billOf(id)).toMatchObject({ is_complete: false, segments: [], totals: { cost: '0.00' } });
    await api.call('DELETE', `/v1/instances/${id}`, { key: owner.key });
    expect(await billOf(id)).toMatchObject({ is_complete: true, segments: [], credits: [], totals: { cost: '0.00' } });
  });

  test('of an instance of another organisation is not found', async () => {
    const id = await api.world.run(owner);
    const other = await api.account();
    const { status, json } = await api.call('GET', `/v1/instances/${id}/bill`, { key: other.key });
    expect([status, json['code']]).toEqual([404, 'not_found']);
  });
});

describe('a credit above the bound', () => {
  const lossBounds = { orgCreditsUcents: 1_000n, supplierCreditsUcents: 1_000n, supplierPaymentsUcents: 0n };
  beforeEach(async () => {
    api = await openApi({ settings: { lossBounds } });
    owner = await api.account();
    await api.world.machine({ dollars: 1.29 });
  });

  test.each([
    ['release', 'released'],
    ['refuse', 'refused'],
  ] as const)('stays charged until the operator decides: %s', async (verb, status) => {
    const id = await api.world.run(owner);
    await outage(id);
    await api.world.end(owner, id);
    const held = await billOf(id);
    expect(held).toMatchObject({ is_complete: false, credits: [{ status: 'held' }] });
    expect(exact(held.credits[0]?.held_amount)).toBe(exact(held.credits[0]?.amount) - 1_000n);
    expect(held.totals.held_credits).toBe(held.credits[0]?.held_amount);
    const [waiting] = await heldOf(api.world.db.read, id);
    await api.world.rooms.credits[verb](waiting?.id ?? '', 'seen');
    const decided = await billOf(id);
    expect(decided).toMatchObject({ is_complete: true, credits: [{ status }] });
    expect(decided.totals.held_credits).toBe(verb === 'release' ? '0.00' : held.totals.held_credits);
  });
});

test('what the balance did not cover is not charged', async () => {
  api = await openApi();
  owner = await api.world.customer(100);
  await api.world.machine({ dollars: 1.29 });
  const id = await api.world.run(owner);
  await api.world.clock.advance(3 * HOUR_MS);
  await api.world.end(owner, id);
  const { totals } = await billOf(id);
  expect(totals).toMatchObject({ cost: '1.00', posted: '1.00' });
  expect(exact(totals.uncovered)).toBe(exact(totals.usage) - exact('1.00'));
});
