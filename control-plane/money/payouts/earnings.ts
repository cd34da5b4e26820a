// Pure: entries of a supplier's account as earnings in whole cents, from new to old.
import { centsFloor } from '../../../shared/money.ts';
import type { SupplierEntry } from '../ledger/suppliers.ts';

/** Where the walk from new to old stands. */
export interface Level {
  /** Earned up to and with the next entry. */
  totalUcents: bigint;
  /** The least that this has been since. */
  leastUcents: bigint;
}

export interface Earning {
  entry: SupplierEntry;
  amountCents: bigint;
  isPaid: boolean;
  /** Behind this entry. */
  next: Level;
}

/**
 * Cents are differences of the rounded total, so they add up to it in whatever pages. An entry is paid once the total has stood, with it
 * or since, at no more than what was paid out: payouts cover the oldest entries first, and what was taken back covers itself.
 */
export function earningsFrom(level: Level, entries: readonly SupplierEntry[], paidUcents: bigint): Earning[] {
  const earnings: Earning[] = [];
  let { totalUcents, leastUcents } = level;
  for (const entry of entries) {
    if (totalUcents < leastUcents) leastUcents = totalUcents;
    const beforeUcents = totalUcents - entry.amount_ucents;
    const amountCents = centsFloor(totalUcents) - centsFloor(beforeUcents);
    const isPaid = centsFloor(leastUcents) <= centsFloor(paidUcents);
    totalUcents = beforeUcents;
    earnings.push({ entry, amountCents, isPaid, next: { totalUcents, leastUcents } });
  }
  return earnings;
}
