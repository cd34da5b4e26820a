// The proof that the ledger keeps exactly what is held for the operator, and that each decision was posted once, to the microcent.
import { accruedUcents } from '../../../shared/money.ts';
import type { Query } from '../../base/db/db.ts';
import { accountId, suspense } from '../ledger/accounts.ts';
import type { NewTransfer } from '../ledger/store.ts';
import { postedOf } from '../ledger/proof-store.ts';
import { amountsOfHeld } from '../ledger/store.ts';
import { decisionOf, holdingOf } from './posting.ts';
import * as store from './store.ts';

/** Number of uncharged times in one query. There are many: one for each rental and outage. */
const TIMES_AT_ONCE = 500;

/** Returns broken invariants in words; empty if all hold. */
export async function creditFaults(query: Query): Promise<string[]> {
  const rows = await store.allHeld(query);
  return [
    ...(await timeFaults(query, rows)),
    ...(await transferFaults(query, rows)),
    ...(await suspenseFaults(query, rows)),
  ];
}

/** The worth of a time must equal the granted amount plus the held amount. */
async function timeFaults(query: Query, rows: readonly store.HeldCredit[]): Promise<string[]> {
  const heldFor = new Map(rows.map((row) => [row.free_time_id, row.amount_ucents]));
  const faults: string[] = [];
  for (let afterId: string | undefined = ''; afterId !== undefined;) {
    const times: store.FreeTime[] = await store.freeTimesAfter(query, afterId, TIMES_AT_ONCE);
    faults.push(...times.flatMap((time) => faultsOf(time, heldFor.get(time.id) ?? 0n)));
    afterId = times.at(-1)?.id;
  }
  return faults;
}

function faultsOf(time: store.FreeTime, held: bigint): string[] {
  if (time.free_ms === null) return [];
  const worth = accruedUcents(time.rate_ucents_per_hour, time.free_ms);
  const is = time.granted_ucents + time.held_ucents;
  return [
    ...(is === worth ? [] : [`${time.id}: worth ${worth}, of which ${is} was given or held`]),
    ...(held === time.held_ucents ? [] : [`${time.id}: ${time.held_ucents} is to be held, ${held} is`]),
  ];
}

async function transferFaults(query: Query, rows: readonly store.HeldCredit[]): Promise<string[]> {
  const posted = await amountsOfHeld(query);
  const due = new Map(rows.flatMap((row) => dueOf(row).map(({ id, amountUcents }) => [id, amountUcents] as const)));
  return [...new Set([...posted.keys(), ...due.keys()])].flatMap((id) => {
    const [want, is] = [due.get(id) ?? 0n, posted.get(id) ?? 0n];
    return want === is ? [] : [`${id}: ${want} should be posted, the ledger has ${is}`];
  });
}

function dueOf(row: store.HeldCredit): NewTransfer[] {
  const holding = row.kind === 'credit' ? holdingOf(row) : [];
  return row.state === 'held' ? holding : [...holding, ...decisionOf(row, row.state)];
}

async function suspenseFaults(query: Query, rows: readonly store.HeldCredit[]): Promise<string[]> {
  const is = await postedOf(query, accountId(suspense));
  const due = rows
    .filter((row) => row.kind === 'credit' && row.state === 'held')
    .reduce((sum, row) => sum + row.amount_ucents, 0n);
  return is === due ? [] : [`${accountId(suspense)} has ${is}, ${due} is held`];
}
