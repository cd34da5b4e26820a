// Earnings in whole cents add up to the total with any claw-backs, pages and groups.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { SupplierEntry } from '../../../control-plane/money/ledger/suppliers.ts';
import { type Earning, earningsFrom } from '../../../control-plane/money/payouts/earnings.ts';
import { centsFloor, UCENTS_PER_CENT } from '../../../shared/money.ts';

/** Amounts from less than a cent to some dollars, a third of them claw-backs. Oldest first. */
const amounts = fc.array(
  fc.oneof(
    { weight: 2, arbitrary: fc.bigInt({ min: 1n, max: 500n * UCENTS_PER_CENT }) },
    { weight: 1, arbitrary: fc.bigInt({ min: -300n * UCENTS_PER_CENT, max: -1n }) },
  ),
  { minLength: 1, maxLength: 60 },
);
const sum = (values: readonly bigint[]): bigint => values.reduce((total, value) => total + value, 0n);
const cents = (earnings: readonly Earning[]): bigint => sum(earnings.map((each) => each.amountCents));

/** The entries in the order of the ledger: newest first. */
function entriesOf(ucents: readonly bigint[]): SupplierEntry[] {
  return ucents
    .map((amount, i) => ({
      id: `t${i}`,
      subject_id: `i-${i % 3}`,
      amount_ucents: amount,
      evidence: null,
      posted_ms: i,
    }))
    .toReversed();
}

function walk(entries: readonly SupplierEntry[], page: number, paidUcents: bigint): Earning[] {
  const totalUcents = sum(entries.map((entry) => entry.amount_ucents));
  let level = { totalUcents, leastUcents: totalUcents };
  const all: Earning[] = [];
  for (let i = 0; i < entries.length; i += page) {
    const earnings = earningsFrom(level, entries.slice(i, i + page), paidUcents);
    level = earnings.at(-1)?.next ?? level;
    all.push(...earnings);
  }
  return all;
}

test('cents add up to the rounded total in every paging and every grouping', () => {
  fc.assert(
    fc.property(amounts, fc.integer({ min: 1, max: 70 }), fc.integer({ min: 1, max: 7 }), (ucents, page, groups) => {
      const entries = entriesOf(ucents);
      const earnings = walk(entries, page, 0n);
      expect(earnings.map((each) => each.entry)).toEqual(entries);
      expect(cents(earnings)).toBe(centsFloor(sum(ucents)));
      expect(earnings.map(({ amountCents }) => amountCents)).toEqual(
        walk(entries, 1, 0n).map(({ amountCents }) => amountCents),
      );
      for (const keyOf of [
        ({ entry }: Earning): unknown => entry.subject_id,
        ({ entry }: Earning): unknown => entry.posted_ms % groups,
        ({ amountCents }: Earning): unknown => amountCents < 0n,
      ]) {
        const parts = [...Map.groupBy(earnings, keyOf).values()].map(cents);
        expect(sum(parts)).toBe(centsFloor(sum(ucents)));
      }
      // No entry differs from its exact amount by a cent or more.
      for (const { entry, amountCents } of earnings) {
        const difference = amountCents * UCENTS_PER_CENT - entry.amount_ucents;
        expect(difference > -UCENTS_PER_CENT && difference < UCENTS_PER_CENT).toBe(true);
      }
    }),
    { seed: 17, numRuns: 500 },
  );
});

test('payouts cover the oldest entries first, and the entries that are not covered add up to what is owed', () => {
  fc.assert(
    fc.property(amounts, amounts, fc.integer({ min: 1, max: 9 }), (before, after, page) => {
      const owed = centsFloor(sum(before));
      if (owed < 0n) return;
      const paid = owed * UCENTS_PER_CENT;
      const then = walk(entriesOf(before), page, paid);
      expect(then.every(({ isPaid }) => isPaid)).toBe(true);
      const now = walk(entriesOf([...before, ...after]), page, paid);
      const oldestFirst = now.map(({ isPaid }) => isPaid).toReversed();
      expect(oldestFirst.slice(0, before.length).every(Boolean)).toBe(true);
      expect(oldestFirst.lastIndexOf(true)).toBe(oldestFirst.filter(Boolean).length - 1);
      // The unpaid entries add up to more than zero, or there are none.
      const unpaid = now.filter(({ isPaid }) => !isPaid).map(({ entry }) => entry.amount_ucents);
      expect(unpaid.length === 0 || sum(unpaid) > 0n).toBe(true);
    }),
    { seed: 18, numRuns: 500 },
  );
});

test.each([
  // Columns: earned amounts, paid out, which entries count as paid.
  [[100, 100], 0, [false, false]],
  [[100, 100], 99, [false, false]],
  [[100, 100], 100, [true, false]],
  [[100, 100], 199, [true, false]],
  [[100, 100], 200, [true, true]],
  [[100, -40, 60], 60, [true, true, false]],
  [[100, -100], 0, [true, true]],
  [[100, -100, 30], 100, [true, true, true]],
  [[100, -100, 130], 100, [true, true, false]],
])('of %j cents with %d paid, paid are %j', (earned, paid, expected) => {
  const ucents = earned.map((each) => BigInt(each) * UCENTS_PER_CENT);
  const earnings = walk(entriesOf(ucents), 2, BigInt(paid) * UCENTS_PER_CENT);
  expect(earnings.map(({ isPaid }) => isPaid).toReversed()).toEqual(expected);
});
