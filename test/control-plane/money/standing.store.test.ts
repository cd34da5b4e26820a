// What a supplier is owed counts its own entries alone. Another supplier has entries of the same rentals, at the same times.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { type AccountRef, clearing, paidOut, payable } from '../../../control-plane/money/ledger/accounts.ts';
import { isDisputed } from '../../../control-plane/money/payouts/disputes.ts';
import type { Walk } from '../../../control-plane/money/payouts/earnings.ts';
import { UCENTS_PER_CENT } from '../../../shared/money.ts';
import { openWorld, type World } from '../../kit/world.ts';

const DELAY_MS = 48 * 3_600_000;

let world: World;
let count: number;
beforeEach(async () => {
  world = await openWorld(1, { settings: { earningsDelayMs: DELAY_MS } });
  count = 0;
  await earn('s', 'i-1', 500);
  await earn('t', 'i-1', 900);
  await earn('s', 'i-2', 100);
  await takeBack('s', 'i-2', 30);
  await takeBack('t', 'i-2', 40);
  await world.clock.advance(DELAY_MS);
  await pay('s', 200);
  await pay('t', 300);
  await earn('s', 'i-3', 70);
  await earn('t', 'i-3', 11);
  await takeBack('s', 'i-1', 20);
});
afterEach(() => world.close());

async function post(legs: { debit: AccountRef; credit: AccountRef }, kind: string, subjectId: string, cents: number) {
  const id = `t-${(count += 1)}`;
  const transfer = { id, ...legs, kind, subjectId, amountUcents: BigInt(cents) * UCENTS_PER_CENT, effectiveMs: 0 };
  const evidence = kind === 'payout' ? { evidence: id } : {};
  await world.db.tx('post', (tx) => world.rooms.ledger.post(tx, id, [{ ...transfer, ...evidence }]));
}
async function earn(supplierId: string, subjectId: string, cents: number): Promise<void> {
  await post({ debit: clearing, credit: payable(supplierId) }, 'test', subjectId, cents);
  await rent(supplierId, subjectId);
}
/** Writes a segment that costs nothing, which tells that the rental ran on a machine of the supplier. */
const rent = (supplierId: string, subjectId: string): Promise<number> =>
  world.db.tx('rent', (tx) =>
    tx.run(sql`insert into meter_segments (id, subject_id, org_id, supplier_id, gpu_type, gpu_count, rate_ucents_per_hour, supplier_bps, started_ms,
        posted_through_ms, ended_ms)
      values (${`seg-${supplierId}-${subjectId}`}, ${subjectId}, 'o', ${supplierId}, 'H100', 1, 0, 0, 0, 0, 0) on conflict (id) do nothing`),
  );
const takeBack = (supplierId: string, subjectId: string, cents: number): Promise<void> =>
  post({ debit: payable(supplierId), credit: clearing }, 'test', subjectId, cents);
const pay = (supplierId: string, cents: number): Promise<void> =>
  post({ debit: payable(supplierId), credit: paidOut }, 'payout', supplierId, cents);
const dispute = (instanceId: string, state: string, sinceMs = 0): Promise<number> =>
  world.db.tx('dispute', (tx) =>
    tx.run(sql`insert into disputes (id, instance_id, since_ms, reason, state, refunded_ucents, note, opened_ms, resolved_ms)
      values (${`d-${instanceId}`}, ${instanceId}, ${sinceMs}, 'x', ${state}, 0, null, 0, null)`),
  );
/** Accrued, unpaid and payable cents. */
const standing = async (supplierId: string): Promise<number[]> => {
  const { accruedCents, unpaidCents, payableCents } = await world.rooms.payouts.standing(world.db.read, supplierId);
  return [accruedCents, unpaidCents, payableCents].map(Number);
};

test('earned, taken back and paid entries count, and new ones wait', async () => {
  // The new claw-back of the first rental makes no other rental wait less.
  expect([await standing('s'), await standing('t')]).toEqual([
    [620, 420, 350],
    [871, 571, 560],
  ]);
  expect(await standing('nobody')).toEqual([0, 0, 0]);
});

test('a dispute keeps all entries of its rental back, old and new, from every supplier that has some', async () => {
  await dispute('i-2', 'open');
  expect([await standing('s'), await standing('t')]).toEqual([
    [620, 420, 280],
    [871, 571, 560],
  ]);
  await dispute('i-1', 'open');
  expect([await standing('s'), await standing('t')]).toEqual([
    [620, 420, 0],
    [871, 571, 0],
  ]);
});

test('a dispute keeps back only what it can still take: what was earned from its time on, also if that was paid out', async () => {
  await world.clock.advance(DELAY_MS);
  await pay('s', 420);
  // Nothing of it is new any more, and another rental earns.
  const beginMs = world.clock.now() + 1;
  await world.clock.advance(1);
  await earn('s', 'i-5', 40);
  await earn('s', 'i-6', 160);
  await world.clock.advance(DELAY_MS + 1);
  expect(await standing('s')).toEqual([820, 200, 200]);
  await dispute('i-1', 'open', beginMs);
  expect(await standing('s')).toEqual([820, 200, 200]);
  await dispute('i-5', 'open', beginMs);
  expect(await standing('s')).toEqual([820, 200, 160]);
  await pay('s', 160);
  await earn('s', 'i-7', 100);
  await world.clock.advance(DELAY_MS + 1);
  expect(await standing('s')).toEqual([920, 140, 100]);
  await dispute('i-6', 'open', beginMs + 1);
  expect(await standing('s')).toEqual([920, 140, 100]);
  const view = await world.rooms.payouts.earnings('s', { from: undefined, limit: 3 });
  const shown = view.earnings.map(({ entry }) => [entry.subject_id, isDisputed(entry, view.disputed)]);
  expect(Object.fromEntries(shown)).toEqual({ 'i-7': false, 'i-6': false, 'i-5': true });
  // The payout has covered the other rental. A dispute can take that back too, so later earnings wait for it.
  await world.db.tx('earlier', (tx) =>
    tx.run(sql`update disputes set since_ms = ${beginMs} where instance_id = 'i-6'`),
  );
  expect(await standing('s')).toEqual([920, 140, 0]);
});

test('a dispute that is resolved keeps nothing back', async () => {
  await dispute('i-2', 'released');
  expect((await standing('s'))[2]).toBe(350);
});

test('the list of earnings has the entries of the supplier, newest first', async () => {
  const listed = async (supplierId: string): Promise<string[]> => {
    const { earnings } = await world.rooms.payouts.earnings(supplierId, { from: undefined, limit: 10 });
    return earnings.map(({ entry, amountCents }) => `${entry.subject_id} ${amountCents}`);
  };
  expect((await listed('s')).slice(0, 2).toSorted()).toEqual(['i-1 -20', 'i-3 70']);
  expect((await listed('s')).slice(2).toSorted()).toEqual(['i-1 500', 'i-2 -30', 'i-2 100']);
  expect(await listed('t')).toEqual(['i-3 11', 'i-2 -40', 'i-1 900']);
});

test('entries of one moment are in the order of their ids, and pages of one entry skip none of them', async () => {
  for (const cents of [1, 2, 3, 4]) await (cents % 2 === 0 ? takeBack : earn)('s', 'i-4', cents);
  const page = async (from: Walk | undefined, limit: number) =>
    (await world.rooms.payouts.earnings('s', { from, limit })).earnings;
  const all = await page(undefined, 100);
  const order = all.map(({ entry }) => [entry.posted_ms, entry.id] as const);
  expect(order).toEqual(order.toSorted(([aMs, aId], [bMs, bId]) => bMs - aMs || (aId < bId ? 1 : -1)));
  const seen: string[] = [];
  for (let last = (await page(undefined, 1))[0]; last !== undefined;) {
    seen.push(last.entry.id);
    [last] = await page({ after: { postedMs: last.entry.posted_ms, id: last.entry.id }, ...last.next }, 1);
  }
  expect(seen).toEqual(all.map(({ entry }) => entry.id));
});

test('thousands of open disputes of other suppliers and of this one keep back what they can take, and no more', async () => {
  const ids = Array.from({ length: 5_000 }, (_, index) => `i-many-${index}`);
  await world.db.tx('disputes', async (tx) => {
    for (const id of ids)
      await tx.run(
        sql`insert into disputes (id, instance_id, since_ms, reason, state, opened_ms) values (${`d-${id}`}, ${id}, 0, 'x', 'open', 0)`,
      );
  });
  expect(await standing('s')).toEqual([620, 420, 350]);
  for (const id of ids.slice(0, 10)) await earn('s', id, 10);
  expect(await standing('s')).toEqual([720, 520, 350]);
  await world.clock.advance(DELAY_MS + 1);
  expect(await standing('s')).toEqual([720, 520, 420]);
  const view = await world.rooms.payouts.earnings('s', { from: undefined, limit: 100 });
  expect(new Set(view.disputed.keys())).toEqual(new Set(ids.slice(0, 10)));
});
