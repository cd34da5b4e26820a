// The balance of a customer now: the balance in the ledger, minus the cost of rentals since it was last posted.
import { lesserUcents } from '../../../shared/money.ts';
import type { Query } from '../../base/db/db.ts';
import { wallet } from '../ledger/accounts.ts';
import type { Balance, Ledger } from '../ledger/ledger.ts';
import { amountsHeld } from '../ledger/store.ts';
import { holdId, unpostedUcents } from './posting.ts';
import * as store from './store.ts';

export interface BalanceNow extends Balance {
  /** The part of the held amount that running rentals can still use up. */
  rentalHeldUcents: bigint;
}

/**
 * The balance with the cost of running rentals up to now. The cost of a rental is taken from its own hold first. Cost above the hold
 * reduces the available balance.
 */
export async function balanceNow(
  query: Query,
  orgId: string,
  { ledger, nowMs }: { ledger: Pick<Ledger, 'balance'>; nowMs: number },
): Promise<BalanceNow> {
  const inLedger = await ledger.balance(query, wallet(orgId));
  let { postedUcents, heldUcents } = inLedger;
  let rentalHeldUcents = 0n;
  const segments = await store.openSegmentsOf(query, orgId);
  const amounts = await amountsHeld(
    query,
    segments.map((segment) => holdId(segment.subject_id)),
  );
  for (const segment of segments) {
    const cost = unpostedUcents(segment, nowMs);
    const held = amounts.get(holdId(segment.subject_id)) ?? 0n;
    postedUcents -= cost;
    heldUcents -= lesserUcents(cost, held);
    rentalHeldUcents += cost < held ? held - cost : 0n;
  }
  // Cost that a wallet cannot cover becomes bad debt, never a negative balance.
  if (postedUcents < heldUcents) postedUcents = heldUcents;
  return { postedUcents, heldUcents, availableUcents: postedUcents - heldUcents, rentalHeldUcents };
}
