// Rows of payouts, their batches, destinations and disputes: each read takes its own rows, in one order.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Db, sql } from '../../../control-plane/base/db/db.ts';
import { SCHEMA } from '../../../control-plane/foundation.ts';
import {
  disputedAmong,
  disputesOf,
  oldestDisputes,
  pageOfDisputes,
} from '../../../control-plane/money/payouts/disputes.ts';
import * as store from '../../../control-plane/money/payouts/store.ts';
import { openTestDb } from '../../kit/databases.ts';
import { planOf, recordingDb } from '../../kit/recording-db.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

let db: Db;
beforeEach(async () => {
  db = await openTestDb(SCHEMA, virtualClock());
});
afterEach(() => db.close());

const PAYOUT: store.PayoutRow = {
  id: '',
  supplier_id: 's',
  state: 'paid',
  amount_ucents: 10n,
  chain: null,
  address: null,
  period_ms: null,
  batch: null,
  reference: null,
  reason: null,
  created_ms: 100,
  in_flight_ms: null,
  ended_ms: null,
};
const add = (id: string, patch: Partial<store.PayoutRow> = {}): Promise<boolean> =>
  db.tx('add', (tx) => store.insertPayout(tx, { ...PAYOUT, id, ...patch }));
const idsOf = (rows: readonly { id: string }[]): string[] => rows.map(({ id }) => id);
const page = { count: 9 };

describe('a payout', () => {
  test('is made once for a supplier and a period, once while another is due, and once for a reference', async () => {
    expect(await add('a', { period_ms: 1 })).toBe(true);
    expect(await add('b', { period_ms: 1 })).toBe(false);
    expect(await add('c', { period_ms: 2, state: 'due' })).toBe(true);
    expect(await add('d', { period_ms: 3, state: 'due' })).toBe(false);
    expect(await add('e', { period_ms: 1, supplier_id: 's-2' })).toBe(true);
    expect(await add('f', { reference: 'r' })).toBe(true);
    expect(await add('g', { reference: 'r' })).toBe(false);
    expect(await add('h', { reference: 'r', supplier_id: 's-2' })).toBe(true);
    expect((await store.payoutOfReference(db.read, 's', 'r'))?.id).toBe('f');
    expect(await store.payoutOfReference(db.read, 's', 'q')).toBeUndefined();
    expect((await store.payoutOfReference(db.read, 's-2', 'r'))?.id).toBe('h');
  });

  test('of the loop is known by its period, or while it is due', async () => {
    await add('by hand', { state: 'due' });
    await add('paid', { period_ms: 1 });
    const has = (periodMs: number, supplierId = 's'): Promise<boolean> =>
      store.hasPayout(db.read, supplierId, periodMs);
    expect([await has(1), await has(2), await has(1, 's-2')]).toEqual([true, false, false]);
    await add('due', { period_ms: 2, state: 'due' });
    expect([await has(3), await has(3, 's-2')]).toEqual([true, false]);
  });

  test('moves only from the state that was read, and alone', async () => {
    await add('a', { state: 'due' });
    await add('b', { state: 'due' });
    const moved = { ...PAYOUT, id: 'a', state: 'in_flight' as const, batch: 'x', address: '0x', in_flight_ms: 5 };
    const move = (): Promise<boolean> => db.tx('move', (tx) => store.writeMove(tx, 'due', moved));
    expect([await move(), await move()]).toEqual([true, false]);
    expect(await store.findPayout(db.read, 'a')).toEqual(moved);
    expect(await store.findPayout(db.read, 'b')).toMatchObject({ state: 'due', batch: null });
    expect(await store.findPayout(db.read, 'c')).toBeUndefined();
  });
});

describe('payouts are listed', () => {
  beforeEach(async () => {
    await add('b', { state: 'in_flight', batch: 'x' });
    await add('a', { state: 'in_flight', batch: 'x' });
    await add('late', { state: 'in_flight', created_ms: 101, amount_ucents: 5n });
    await add('due', { state: 'due', created_ms: 99, batch: 'y' });
    await add('other', { supplier_id: 's-2' });
  });

  test('from new to old, of one supplier or of all, in one state or in all', async () => {
    const list = async (patch: Partial<Parameters<typeof store.pageOfPayouts>[1]>): Promise<string[]> =>
      idsOf(await store.pageOfPayouts(db.read, { supplierId: undefined, state: undefined, ...patch }, page));
    expect(await list({})).toEqual(['late', 'other', 'b', 'a', 'due']);
    expect(await list({ supplierId: 's' })).toEqual(['late', 'b', 'a', 'due']);
    expect(await list({ state: 'in_flight' })).toEqual(['late', 'b', 'a']);
    expect(await list({ state: 'paid', supplierId: 's' })).toEqual([]);
  });

  test('in the order of ids: those of a state up to a time, those of a batch, and all', async () => {
    const inFlight = async (patch: Partial<Parameters<typeof store.payoutsIn>[2]>): Promise<string[]> =>
      idsOf(await store.payoutsIn(db.read, 'in_flight', { untilMs: 101, afterId: '', limit: 9, ...patch }));
    expect(await inFlight({})).toEqual(['a', 'b', 'late']);
    expect(await inFlight({ untilMs: 100 })).toEqual(['a', 'b']);
    expect(await inFlight({ afterId: 'a', limit: 1 })).toEqual(['b']);
    expect(idsOf(await store.payoutsOfBatch(db.read, 'x'))).toEqual(['a', 'b']);
    expect(idsOf(await store.payoutsAfter(db.read, 'b', 2))).toEqual(['due', 'late']);
  });

  test('as sums of those that are open', async () => {
    expect(await store.countOpen(db.read)).toEqual([
      { state: 'due', count: 1, total_ucents: 10n },
      { state: 'in_flight', count: 3, total_ucents: 25n },
    ]);
  });
});

test('a batch is opened once and closed once, each by its name', async () => {
  const open = (name: string, nowMs: number): Promise<store.BatchRow> =>
    db.tx('open', (tx) => store.openBatch(tx, name, nowMs));
  expect(await open('x', 1)).toEqual({ name: 'x', created_ms: 1, closed_ms: null });
  await open('y', 2);
  for (const nowMs of [5, 6]) await db.tx('close', (tx) => store.closeBatch(tx, 'x', nowMs));
  expect(await open('x', 9)).toEqual({ name: 'x', created_ms: 1, closed_ms: 5 });
  expect(await open('y', 9)).toEqual({ name: 'y', created_ms: 2, closed_ms: null });
});

test('the last two destinations of a supplier are those with the latest times, without cancelled ones', async () => {
  const name = (id: string, inForceMs: number, supplierId = 's'): Promise<void> =>
    db.tx('name', (tx) =>
      store.insertDestination(tx, {
        id,
        supplier_id: supplierId,
        chain: 'base',
        address: id,
        requested_ms: 0,
        in_force_ms: inForceMs,
        cancelled_ms: null,
      }),
    );
  const last = async (): Promise<string[]> => idsOf(await store.lastDestinations(db.read, 's'));
  await name('first', 1);
  await name('a', 5);
  await name('b', 5);
  await name('foreign', 9, 's-2');
  expect(await last()).toEqual(['b', 'a']);
  await name('late', 6);
  expect(await last()).toEqual(['late', 'b']);
  await db.tx('cancel', (tx) => store.cancelDestination(tx, 'late', 7));
  expect(await last()).toEqual(['b', 'a']);
});

describe('cancelled changes of a destination', () => {
  /** Changes of a supplier, each cancelled one millisecond after it was asked for. */
  async function fill(count: number): Promise<void> {
    await db.tx('fill', (tx) =>
      tx.run(sql`insert into payout_destinations (id, supplier_id, chain, address, requested_ms, in_force_ms, cancelled_ms)
        with recursive n(i) as (select 1 union all select i + 1 from n where i < ${count})
        select 'x' || cast(i as text), 's', 'base', 'a', i, i + 1000, i + 1 from n`),
    );
  }
  const changeTime = (nth: number): Promise<number | undefined> => store.timeOfNthChange(db.read, 's', nth);

  test('are not read for the destination, however many there are, and count as changes', async () => {
    await fill(5_000);
    await db.tx('analyze', (tx) => tx.run(sql`analyze payout_destinations`));
    const { db: recorded, sent } = recordingDb(db);
    expect(await store.lastDestinations(recorded.read, 's')).toEqual([]);
    expect(await store.timeOfNthChange(recorded.read, 's', 10)).toBe(4_991);
    const [last = sql``, nth = sql``] = sent;
    expect(await planOf(db, last)).toMatch(/payout_destinations_living/);
    expect(await planOf(db, nth)).toMatch(/payout_destinations_requested/);
    expect([await changeTime(1), await changeTime(5_000), await changeTime(5_001)]).toEqual([5_000, 1, undefined]);
    expect(await store.timeOfNthChange(db.read, 'nobody', 1)).toBeUndefined();
  });

  test('are forgotten at their age limit, oldest first, and no others are', async () => {
    await fill(5);
    const kept = { id: 'kept', supplier_id: 's', chain: 'base', address: 'a', requested_ms: 0 } as const;
    await db.tx('name', (tx) => store.insertDestination(tx, { ...kept, in_force_ms: 0, cancelled_ms: null }));
    const forget = (untilMs: number, limit: number): Promise<number> =>
      store.forgetDestinations(db, { untilMs, limit });
    // They were cancelled at 2 to 6.
    expect([await forget(1, 9), await forget(4, 2), await forget(4, 9)]).toEqual([0, 2, 1]);
    expect(await changeTime(2)).toBe(4);
    expect([await forget(99, 9), idsOf(await store.lastDestinations(db.read, 's'))]).toEqual([2, ['kept']]);
  });
});

test('disputes are listed from new to old, and those of a rental and the open ones from old to new', async () => {
  const dispute = (id: string, instanceId: string, state: string, openedMs: number): Promise<unknown> =>
    db.tx('dispute', (tx) =>
      tx.run(sql`insert into disputes (id, instance_id, since_ms, reason, state, opened_ms)
        values (${id}, ${instanceId}, 0, 'x', ${state}, ${openedMs})`),
    );
  await dispute('b', 'i-1', 'released', 5);
  await dispute('a', 'i-1', 'refunded', 5);
  await dispute('late', 'i-1', 'open', 6);
  await dispute('d', 'i-3', 'open', 4);
  await dispute('c', 'i-2', 'open', 4);
  expect(idsOf(await pageOfDisputes(db.read, page))).toEqual(['late', 'b', 'a', 'd', 'c']);
  expect(idsOf(await disputesOf(db.read, 'i-1'))).toEqual(['a', 'b', 'late']);
  expect(idsOf(await oldestDisputes(db.read, 9))).toEqual(['c', 'd', 'late']);
  expect(idsOf(await oldestDisputes(db.read, 1))).toEqual(['c']);
  await dispute('e', 'i-4', 'released', 4);
  expect(await disputedAmong(db.read, ['i-1', 'i-3', 'i-4', 'i-5'])).toEqual(
    new Map(['i-1', 'i-3'].map((id) => [id, 0])),
  );
  expect(await disputedAmong(db.read, [])).toEqual(new Map());
});
