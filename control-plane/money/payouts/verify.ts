// The proof that payouts are valid: whole cents, and never more than the total earnings.
import { UCENTS_PER_CENT } from '../../../shared/money.ts';
import type { Query } from '../../base/db/db.ts';
import { standings } from '../ledger/suppliers.ts';
import { disputeFaults } from './disputes.ts';

/** Returns broken invariants in words; empty if all hold. */
export async function payoutFaults(query: Query): Promise<string[]> {
  const faults: string[] = [];
  for (const { id, earned_ucents: earned, paid_ucents: paid } of await standings(query)) {
    if (paid > earned) faults.push(`${id}: payouts are ${paid}, earned was ${earned}`);
    if (paid % UCENTS_PER_CENT !== 0n) faults.push(`${id}: payouts are ${paid}, which is no whole number of cents`);
  }
  return [...faults, ...(await disputeFaults(query))];
}
