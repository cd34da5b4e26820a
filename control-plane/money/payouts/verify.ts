// The proof that payouts are valid. The ledger has the transfers that the state of each payout requires, amounts are whole cents, and a
// supplier never got more than it has earned.
import { UCENTS_PER_CENT } from '../../../shared/money.ts';
import type { Query } from '../../base/db/db.ts';
import { accountId, inFlight } from '../ledger/accounts.ts';
import { postedOf } from '../ledger/proof-store.ts';
import { amountsOfPayouts, standings } from '../ledger/suppliers.ts';
import { disputeFaults } from './disputes.ts';
import { transfersOf } from './states.ts';
import * as store from './store.ts';

const PIECE = 500;

/** Returns broken invariants in words; empty if all hold. */
export async function payoutFaults(query: Query): Promise<string[]> {
  const faults: string[] = [];
  for (const { id, earned_ucents: earned, paid_ucents: paid } of await standings(query)) {
    if (paid > earned) faults.push(`${id}: payouts are ${paid}, earned was ${earned}`);
    if (paid % UCENTS_PER_CENT !== 0n) faults.push(`${id}: payouts are ${paid}, which is no whole number of cents`);
  }
  return [...faults, ...(await stateFaults(query)), ...(await disputeFaults(query))];
}

/** The transfers of each payout follow from its state, and the account of what is in flight is the sum of these payouts. */
async function stateFaults(query: Query): Promise<string[]> {
  const posted = await amountsOfPayouts(query);
  const faults: string[] = [];
  let flying = 0n;
  for (let afterId: string | undefined = ''; afterId !== undefined;) {
    const rows: store.PayoutRow[] = await store.payoutsAfter(query, afterId, PIECE);
    for (const row of rows) {
      if (row.state === 'in_flight') flying += row.amount_ucents;
      for (const { id, amountUcents } of transfersOf(row)) {
        const is = posted.get(id) ?? 0n;
        posted.delete(id);
        if (is !== amountUcents) faults.push(`${id}: ${amountUcents} should be posted, the ledger has ${is}`);
      }
    }
    afterId = rows.at(-1)?.id;
  }
  const is = await postedOf(query, accountId(inFlight));
  if (is !== flying) faults.push(`${accountId(inFlight)} has ${is}, ${flying} is in flight`);
  return [...faults, ...[...posted.keys()].map((id) => `${id}: the ledger has it, and no payout explains it`)];
}
