// The proof that the ledger keeps exactly what is held for the operator, and that each decision was posted once, to the microcent. There are many
// rows: one for each rental and outage. So it reads pages, and both sides: from the rows to the ledger and back.
import { accruedUcents } from '../../../shared/money.ts';
import type { Query } from '../../base/db/db.ts';
import { accountId, suspense } from '../ledger/accounts.ts';
import { lastOf, type PagedProof } from '../ledger/charges.ts';
import type { NewTransfer } from '../ledger/store.ts';
import { postedOf } from '../ledger/proof-store.ts';
import { amountsOfHeld, amountsOfHeldAfter } from '../ledger/store.ts';
import { decisionOf, holdingOf } from './posting.ts';
import * as store from './store.ts';

const idsOf = (rows: readonly { id: string }[]): string[] => rows.map(({ id }) => id);

/** The worth of a time must equal the granted amount plus the held amount. */
const proveTimes: PagedProof = async (query, afterId, limit) => {
  const times = await store.freeTimesAfter(query, afterId, limit);
  const held = await store.heldForTimes(query, times);
  const heldFor = new Map(held.map((row) => [row.free_time_id, row.amount_ucents]));
  return {
    faults: times.flatMap((time) => faultsOf(time, heldFor.get(time.id) ?? 0n)),
    lastId: lastOf(idsOf(times), limit),
  };
};

/** Each held amount must be posted. The first page also compares the account of what is held now. */
const proveHeld: PagedProof = async (query, afterId, limit) => {
  const rows = await store.heldAfter(query, afterId, limit);
  const due = dueOfAll(rows);
  const posted = await amountsOfHeld(query, [...due.keys()]);
  return {
    faults: [...(afterId === '' ? await suspenseFaults(query) : []), ...differences(due, posted)],
    lastId: lastOf(idsOf(rows), limit),
  };
};

/** Each transfer in the ledger must belong to a held amount. Its id begins with the id of that. */
const provePosted: PagedProof = async (query, afterId, limit) => {
  const posted = await amountsOfHeldAfter(query, afterId, limit);
  const owners = posted.map(({ id }) => id.slice(0, id.lastIndexOf(':')));
  const due = dueOfAll(await store.heldWithIds(query, [...new Set(owners)]));
  const ofPage = new Map(posted.map(({ id }) => [id, due.get(id) ?? 0n]));
  return { faults: differences(ofPage, posted), lastId: lastOf(idsOf(posted), limit) };
};

export const CREDIT_PROOFS: readonly PagedProof[] = [proveTimes, proveHeld, provePosted];

function faultsOf(time: store.FreeTime, held: bigint): string[] {
  if (time.free_ms === null) return [];
  const worth = accruedUcents(time.rate_ucents_per_hour, time.free_ms);
  const is = time.granted_ucents + time.held_ucents;
  return [
    ...(is === worth ? [] : [`${time.id}: worth ${worth}, of which ${is} was given or held`]),
    ...(held === time.held_ucents ? [] : [`${time.id}: ${time.held_ucents} is to be held, ${held} is`]),
  ];
}

function differences(
  due: ReadonlyMap<string, bigint>,
  posted: readonly { id: string; amount_ucents: bigint }[],
): string[] {
  const amounts = new Map(posted.map((row) => [row.id, row.amount_ucents]));
  return [...due].flatMap(([id, want]) => {
    const is = amounts.get(id) ?? 0n;
    return want === is ? [] : [`${id}: ${want} should be posted, the ledger has ${is}`];
  });
}

/** The amounts that should be posted, by transfer. */
function dueOfAll(rows: readonly store.HeldCredit[]): Map<string, bigint> {
  return new Map(rows.flatMap((row) => dueOf(row).map(({ id, amountUcents }) => [id, amountUcents] as const)));
}

function dueOf(row: store.HeldCredit): NewTransfer[] {
  const holding = row.kind === 'credit' ? holdingOf(row) : [];
  return row.state === 'held' ? holding : [...holding, ...decisionOf(row, row.state)];
}

async function suspenseFaults(query: Query): Promise<string[]> {
  const is = await postedOf(query, accountId(suspense));
  const due = (await store.countHeld(query)).find(({ kind }) => kind === 'credit')?.total_ucents ?? 0n;
  return is === due ? [] : [`${accountId(suspense)} has ${is}, ${due} is held`];
}
