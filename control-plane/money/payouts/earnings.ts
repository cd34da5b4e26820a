// Earnings of a supplier: its account's entries in whole cents from new to old (pure), and the sums of its machines.
import { centsFloor } from '../../../shared/money.ts';
import { type SupplierEntry, earnedBySubject } from '../ledger/suppliers.ts';
import type { Query } from '../../base/db/db.ts';

/** The state of the walk from new to old. */
export interface Level {
  /** Total earnings up to and including the next entry. */
  totalUcents: bigint;
  /** The lowest total since that entry. */
  leastUcents: bigint;
}

export interface Earning {
  entry: SupplierEntry;
  amountCents: bigint;
  isPaid: boolean;
  /** The state after this entry. */
  next: Level;
}

/**
 * Cents are differences of the rounded total, so they add up across pages. Payouts cover the oldest entries first, and a claw-back covers
 * itself. So an entry counts as paid if the total, at this entry or later, was at most the amount that was paid out.
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

/** The machine of each instance. A room above provides this function. */
export type MachinesOf = (query: Query, instanceIds: readonly string[]) => Promise<Map<string, string>>;

export async function earnedByMachine(
  query: Query,
  { supplierId, sinceMs }: { supplierId: string; sinceMs: number },
  machinesOf: MachinesOf,
): Promise<Map<string, bigint>> {
  const earned = await earnedBySubject(query, supplierId, sinceMs);
  const machines = await machinesOf(
    query,
    earned.map(({ subject_id: instanceId }) => instanceId),
  );
  const sums = new Map<string, bigint>();
  for (const { subject_id: instanceId, amount_ucents: ucents } of earned) {
    const machineId = machines.get(instanceId);
    if (machineId !== undefined) sums.set(machineId, (sums.get(machineId) ?? 0n) + ucents);
  }
  return sums;
}
