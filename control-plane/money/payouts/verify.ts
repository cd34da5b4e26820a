// The proof that payouts are valid. The ledger has the transfers that the state of each payout requires, amounts are whole cents, and a
// supplier never got more than it has earned. There are more payouts with each week, so they are read in pages, and so are their transfers.
import { UCENTS_PER_CENT } from '../../../shared/money.ts';
import type { Query } from '../../base/db/db.ts';
import { accountId, inFlight } from '../ledger/accounts.ts';
import { lastOf, type PagedProof } from '../ledger/charges.ts';
import { postedOf } from '../ledger/proof-store.ts';
import { amountsOfPayouts, amountsOfPayoutsAfter, standings } from '../ledger/suppliers.ts';
import { disputeFaults } from './disputes.ts';
import { payoutOf, transfersOf } from './states.ts';
import * as store from './store.ts';

/** Returns broken invariants in words; empty if all hold. */
export async function payoutFaults(query: Query): Promise<string[]> {
  const faults: string[] = [];
  for (const { id, earned_ucents: earned, paid_ucents: paid } of await standings(query)) {
    if (paid > earned) faults.push(`${id}: payouts are ${paid}, earned was ${earned}`);
    if (paid % UCENTS_PER_CENT !== 0n) faults.push(`${id}: payouts are ${paid}, which is no whole number of cents`);
  }
  return [...faults, ...(await disputeFaults(query))];
}

/** Each payout must have the transfers that follow from its state. The first page also compares the account of what is in flight. */
const proveStates: PagedProof = async (query, afterId, limit) => {
  const rows = await store.payoutsAfter(query, afterId, limit);
  const due = dueOf(rows);
  const posted = new Map((await amountsOfPayouts(query, [...due.keys()])).map((row) => [row.id, row.amount_ucents]));
  const faults = [...due].flatMap(([id, want]) => {
    const is = posted.get(id) ?? 0n;
    return is === want ? [] : [`${id}: ${want} should be posted, the ledger has ${is}`];
  });
  return {
    faults: [...(afterId === '' ? await inFlightFaults(query) : []), ...faults],
    lastId: lastOf(
      rows.map(({ id }) => id),
      limit,
    ),
  };
};

/** Each transfer of a payout in the ledger must follow from the state of that payout. */
const provePosted: PagedProof = async (query, afterId, limit) => {
  const ids = (await amountsOfPayoutsAfter(query, afterId, limit)).map(({ id }) => id);
  const due = dueOf(await store.payoutsWithIds(query, [...new Set(ids.map(payoutOf))]));
  const unexplained = ids.filter((id) => !due.has(id));
  return {
    faults: unexplained.map((id) => `${id}: the ledger has it, and no payout explains it`),
    lastId: lastOf(ids, limit),
  };
};

export const PAYOUT_PROOFS: readonly PagedProof[] = [proveStates, provePosted];

/** The amounts that should be posted, by transfer. */
function dueOf(rows: readonly store.PayoutRow[]): Map<string, bigint> {
  return new Map(rows.flatMap((row) => transfersOf(row).map(({ id, amountUcents }) => [id, amountUcents] as const)));
}

async function inFlightFaults(query: Query): Promise<string[]> {
  const flying = (await store.countOpen(query)).find(({ state }) => state === 'in_flight')?.total_ucents ?? 0n;
  const is = await postedOf(query, accountId(inFlight));
  return is === flying ? [] : [`${accountId(inFlight)} has ${is}, ${flying} is in flight`];
}
