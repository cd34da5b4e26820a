// Payouts never exceed what is owed and count once per reference, and earnings always agree with the ledger.
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, inject, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { type AccountRef, clearing, paidOut, payable } from '../../../control-plane/money/ledger/accounts.ts';
import { earnedBySubject } from '../../../control-plane/money/ledger/suppliers.ts';
import { pageOfPayouts } from '../../../control-plane/money/payouts/store.ts';
import type { Earning } from '../../../control-plane/money/payouts/earnings.ts';
import { centsFloor, UCENTS_PER_CENT } from '../../../shared/money.ts';
import { openWorld, type World } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(() => world.close());

/** Posts earnings in microcents from nowhere. */
async function earn(ucents: bigint, id = `e${world.clock.now()}`): Promise<void> {
  const legs = { debit: clearing, credit: payable('s'), amountUcents: ucents };
  const about = { id, kind: 'test', subjectId: 'i-1', effectiveMs: world.clock.now() };
  await world.db.tx('earn', (tx) => world.rooms.ledger.post(tx, id, [{ ...legs, ...about }]));
  await world.clock.advance(1);
}
const cents = (count: number): bigint => BigInt(count) * UCENTS_PER_CENT;
const pay = (count: number | null, reference = 'r'): Promise<{ amount_ucents: bigint }> =>
  world.rooms.payouts.pay({ supplierId: 's', cents: count, reference });
const standing = async (supplierId = 's'): Promise<[bigint, bigint]> => {
  const { accruedCents, unpaidCents } = await world.rooms.payouts.standing(world.db.read, supplierId);
  return [accruedCents, unpaidCents];
};
const posted = async (account = payable('s')): Promise<bigint> =>
  (await world.rooms.ledger.balance(world.db.read, account)).postedUcents;

test('the earnings since a moment are those of one supplier, less what was taken back from that supplier alone', async () => {
  const move = (id: string, amountUcents: bigint, legs: { debit: AccountRef; credit: AccountRef }): Promise<void> =>
    world.db.tx('move', (tx) => {
      const about = { id, kind: 'test', subjectId: 'i-1', effectiveMs: world.clock.now() };
      return world.rooms.ledger.post(tx, id, [{ ...legs, ...about, amountUcents }]);
    });
  await earn(7n, 'before');
  const sinceMs = world.clock.now();
  await earn(100n);
  await move('of-another', 50n, { debit: clearing, credit: payable('t') });
  await move('back-from-another', 20n, { debit: payable('t'), credit: clearing });
  await move('back', 30n, { debit: payable('s'), credit: clearing });
  const earned = (supplierId: string) => earnedBySubject(world.db.read, supplierId, sinceMs);
  expect(await earned('s')).toEqual([{ subject_id: 'i-1', amount_ucents: 70n }]);
  expect(await earned('t')).toEqual([{ subject_id: 'i-1', amount_ucents: 30n }]);
});

describe('a payout', () => {
  test('takes the owed whole cents, and leaves the rest of a cent', async () => {
    await earn(cents(250) + 999_999n);
    expect(await standing()).toEqual([250n, 250n]);
    expect(await pay(100)).toMatchObject({
      amount_ucents: cents(100),
      reference: 'r',
      supplier_id: 's',
      state: 'paid',
    });
    expect(await standing()).toEqual([250n, 150n]);
    expect(await pay(null, 'rest')).toMatchObject({ amount_ucents: cents(150) });
    expect(await standing()).toEqual([250n, 0n]);
    expect(await posted()).toBe(999_999n);
    expect(await posted(paidOut)).toBe(cents(250));
    await earn(1n);
    expect(await standing()).toEqual([251n, 1n]);
  });

  test.each([101, 1_000_000])('of %d cents is refused if 100 are owed, and nothing is recorded', async (count) => {
    await earn(cents(100));
    await expect(pay(count)).rejects.toThrow('The supplier is owed $1.00. Pay that or less.');
    expect(await posted()).toBe(cents(100));
    await pay(100);
    await expect(pay(1, 'again')).rejects.toThrow('The supplier is owed $0.00. Pay that or less.');
    await expect(pay(null, 'again')).rejects.toThrow('there is nothing to pay');
  });

  test('counts once per reference, and another amount under the same reference is refused', async () => {
    // Payouts lock the row of their supplier. Without it, two at the same moment would not wait for each other.
    await world.db.tx('test.supplier', (tx) =>
      tx.run(
        sql`insert into suppliers (id, org_id, status, created_ms, updated_ms) values ('s', 'org-s', 'active', 0, 0)`,
      ),
    );
    await earn(cents(100));
    const first = await pay(40);
    expect(await pay(40)).toEqual(first);
    expect(await pay(null)).toEqual(first);
    await expect(pay(41)).rejects.toThrow('$0.40 was paid under the reference r. Nothing was changed');
    expect(await standing()).toEqual([100n, 60n]);
    await Promise.all([pay(60, 'x'), pay(60, 'x')]);
    expect(await standing()).toEqual([100n, 0n]);
  });

  test('is listed among all payouts, newest first, or among those of its supplier', async () => {
    await earn(cents(100));
    for (const reference of ['a', 'b', 'c']) {
      await pay(1, reference);
      await world.clock.advance(1);
    }
    const shown = async (supplierId?: string, count = 10): Promise<(string | null)[]> =>
      (await pageOfPayouts(world.db.read, { supplierId, state: undefined }, { count })).map((row) => row.reference);
    expect(await shown()).toEqual(['c', 'b', 'a']);
    expect(await shown('s', 2)).toEqual(['c', 'b']);
    expect(await shown('nobody')).toEqual([]);
  });

  test('of earnings that are clawed back later leaves a debt, which later earnings reduce', async () => {
    await earn(cents(100));
    await pay(null);
    const back = { id: 'back', debit: payable('s'), credit: clearing, amountUcents: cents(30) };
    const about = { kind: 'test', subjectId: 'i-1', effectiveMs: 0 };
    await world.db.tx('back', (tx) => world.rooms.ledger.post(tx, 'back', [{ ...back, ...about }]));
    expect(await standing()).toEqual([70n, -30n]);
    await expect(pay(null, 'late')).rejects.toThrow('The supplier is owed $-0.30: there is nothing to pay.');
    await earn(cents(31));
    expect(await standing()).toEqual([101n, 1n]);
  });
});

describe('the proof of the books', () => {
  test('finds a payout that exceeds the earnings', async () => {
    await earn(cents(1));
    const transfer = { id: 'p', debit: payable('s'), credit: paidOut, amountUcents: cents(2), kind: 'payout' };
    const about = { subjectId: 's', evidence: 'r', effectiveMs: 0 };
    await world.db.tx('bad', (tx) => world.rooms.ledger.post(tx, 'p', [{ ...transfer, ...about }]));
    await expect(world.verify()).rejects.toThrow('supplier_payable:s: payouts are 2000000, earned was 1000000');
  });

  test('finds a payout of a fraction of a cent', async () => {
    await earn(cents(1));
    const transfer = { id: 'p', debit: payable('s'), credit: paidOut, amountUcents: 7n, kind: 'payout' };
    const about = { subjectId: 's', evidence: 'r', effectiveMs: 0 };
    await world.db.tx('bad', (tx) => world.rooms.ledger.post(tx, 'p', [{ ...transfer, ...about }]));
    await expect(world.verify()).rejects.toThrow('which is no whole number of cents');
  });
});

const RUNS = inject('postgresUrl') === undefined ? 30 : 5;

const anyStep = fc.oneof(
  fc.record({ do: fc.constant('rent' as const), dollars: fc.constantFrom(0.37, 1.29, 2.49, 19.99) }),
  fc.record({ do: fc.constant('wait' as const), ms: fc.constantFrom(1, HOUR_MS / 5, HOUR_MS, 3 * HOUR_MS + 7) }),
  fc.record({
    do: fc.constant('end' as const),
    which: fc.nat({ max: 9 }),
    backMs: fc.constantFrom(0, HOUR_MS / 3, 2 * HOUR_MS),
  }),
  fc.record({ do: fc.constant('away' as const), ms: fc.integer({ min: 1, max: HOUR_MS }) }),
  fc.record({ do: fc.constant('pay' as const), part: fc.constantFrom(2n, 1n) }),
);

// Specification 2.17: CommunityEarnings: accrued_cents over the lifetime, and entries that add up to it.
test('earnings add up to the ledger in every paging and grouping, through rentals, dead hosts, outages and payouts', async () => {
  const seen = new Set<string>();
  await fc.assert(
    fc.asyncProperty(fc.array(anyStep, { minLength: 20, maxLength: 40, size: 'max' }), async (steps) => {
      await world.close();
      world = await openWorld();
      const { metering } = world.rooms;
      const { orgId } = await world.customer(100_000_000);
      const open: string[] = [];
      let count = 0;
      for (const step of steps) {
        if (step.do === 'rent') {
          const subjectId = `i-${(count += 1)}`;
          const gpus = { gpuType: 'H100_SXM', gpuCount: 1, supplierBps: 8_500, supplierId: 's', machineId: 'm' };
          const rateUcentsPerHour = BigInt(Math.round(step.dollars * 1e8));
          const startedMs = world.clock.now();
          await world.db.tx('open', (tx) =>
            metering.openSegment(tx, { ...gpus, subjectId, orgId, rateUcentsPerHour, startedMs }),
          );
          open.push(subjectId);
        }
        if (step.do === 'wait') await world.clock.advance(step.ms);
        if (step.do === 'end' && open.length > 0) {
          const [subjectId = ''] = open.splice(step.which % open.length, 1);
          await world.db.tx('close', (tx) =>
            metering.closeSegment(tx, subjectId, world.clock.now() - step.backMs, 'dead'),
          );
        }
        if (step.do === 'away') {
          const fromMs = world.clock.now();
          await world.clock.advance(step.ms);
          await metering.creditOwnOutage({
            fromMs,
            untilMs: world.clock.now(),
            evidence: 'away',
          });
        }
        const [, unpaid] = await standing();
        if (step.do === 'pay' && unpaid / 2n > 0n)
          await pay(Number(unpaid / step.part), `p${world.clock.now()}-${(count += 1)}`);
        await metering.tick(new AbortController().signal);
        for (const kind of await expectExact()) seen.add(kind);
      }
      await world.verify();
    }),
    { seed: 23, numRuns: RUNS },
  );
  expect([...seen].toSorted()).toEqual(['earned', 'earned, paid', 'taken back', 'taken back, paid']);
});

/** Reads all entries in pages of two sizes. Returns the kinds of entries that occur. */
async function expectExact(): Promise<string[]> {
  const [accrued, unpaid] = await standing();
  const paidUcents = await posted(paidOut);
  const earnedUcents = (await posted()) + paidUcents;
  const [small, large] = [await walk(3), await walk(1_000)];
  expect(small.map(({ entry, amountCents, isPaid }) => [entry.id, amountCents, isPaid])).toEqual(
    large.map(({ entry, amountCents, isPaid }) => [entry.id, amountCents, isPaid]),
  );
  const sumOf = (earnings: readonly Earning[]): bigint => earnings.reduce((sum, each) => sum + each.amountCents, 0n);
  expect([accrued, sumOf(large)]).toEqual([centsFloor(earnedUcents), accrued]);
  expect(large.reduce((sum, { entry }) => sum + entry.amount_ucents, 0n)).toBe(earnedUcents);
  const byRental = [...Map.groupBy(large, ({ entry }) => entry.subject_id).values()].map(sumOf);
  expect(byRental.reduce((sum, each) => sum + each, 0n)).toBe(accrued);
  const owed = sumOf(large.filter(({ isPaid }) => !isPaid));
  expect(owed >= unpaid || unpaid < 0n).toBe(true);
  expect(unpaid > 0n || owed === 0n).toBe(true);
  return large.map(
    ({ entry, isPaid }) => `${entry.amount_ucents < 0n ? 'taken back' : 'earned'}${isPaid ? ', paid' : ''}`,
  );
}

async function walk(page: number): Promise<Earning[]> {
  const all: Earning[] = [];
  for (;;) {
    const last = all.at(-1);
    const from = last && { after: { postedMs: last.entry.posted_ms, id: last.entry.id }, ...last.next };
    const { earnings } = await world.rooms.payouts.earnings('s', { from, limit: page });
    all.push(...earnings);
    if (earnings.length < page) return all;
  }
}
