// Sums up closed receipts for each hour, day and month, so that nobody adds up all receipts to see what was spent.
//
// A request writes nothing for this: a loop of the primary adds the receipts in the order of closing. Control planes close receipts with clocks of
// their own, and a transaction takes a while. So a receipt is added only when it was closed longer ago than both together.
import type { Clock } from '../../../shared/clock.ts';
import type { Db, Query } from '../../base/db/db.ts';
import type { Fold } from '../../base/db/folding.ts';
import { monthAt, SETTLED_MS } from '../../money/ledger/month.ts';
import * as store from './totals-store.ts';

/** A secondary warns if its clock differs from the primary's by ten seconds. */
const CLOCKS_MS_MAX = 60_000;
const ADDITION: Fold = {
  body: 'receipts.sum',
  settledMs: CLOCKS_MS_MAX + SETTLED_MS,
  pieceUntilMs: (closedMs) => monthAt(closedMs).untilMs,
  add: (tx, piece) => store.addTotals(tx, piece, monthAt(piece.last.at_ms).fromMs),
};
/** Sums that are read in one turn of the event loop: first as many as a page often needs, and at most a few milliseconds' worth. */
const ROWS_FIRST = 100;
const ROWS_MAX = 1_600;

export type GroupBy = 'model' | 'api_key_id' | 'none';

export interface TotalsQuery {
  orgId: string;
  span: store.Span;
  groupBy: GroupBy;
  /** Inclusive. */
  startMs: number;
  /** Exclusive. */
  endMs: number;
  /** Only rows after this one are returned. */
  after: Pick<Total, 'startMs' | 'group'> | undefined;
  /** The maximum number of rows. */
  limit: number;
}

export interface Total {
  startMs: number;
  /** The model or the API key; empty if rows are not grouped. */
  group: string;
  requests: number;
  promptTokens: number;
  completionTokens: number;
  images: number;
  costUcents: bigint;
}

/** Adds receipts to their sums for a limited time. True if more work is due now. */
export function sumReceipts(deps: { db: Db; clock: Clock }, signal: AbortSignal): Promise<boolean> {
  return store.receiptTotals.run(deps, ADDITION, signal);
}

/** Every receipt that was closed before this time is in the sums: all that have settled, or those before the first that is not in them yet. */
export async function completeUntilMs(query: Query, nowMs: number): Promise<number> {
  const untilMs = nowMs - ADDITION.settledMs;
  const { receiptTotals } = store;
  const [first] = await receiptTotals.behind(query, await receiptTotals.position(query), { untilMs, limit: 1 });
  return first?.at_ms ?? untilMs;
}

/** Rows ordered by time and group. Other work of the process goes on in between. */
export async function totalRows(
  { db, clock }: { db: Pick<Db, 'read'>; clock: Pick<Clock, 'nextTurn'> },
  asked: TotalsQuery,
): Promise<Total[]> {
  const { groupBy, after, limit } = asked;
  const rows: Total[] = [];
  let groups = new Map<string, Total>();
  let startMs: number | undefined;
  /** Sums of one span are read together. The groups before the first row of the page were on the page before. */
  const finish = (): void => {
    const isNext = ({ group }: Total): boolean => startMs !== after?.startMs || group > (after?.group ?? '');
    rows.push(...[...groups.values()].filter(isNext).toSorted((a, b) => (a.group < b.group ? -1 : 1)));
    groups = new Map();
  };
  for await (const page of pagesOf({ db, clock }, asked)) {
    for (const row of page) {
      if (row.start_ms !== startMs) finish();
      if (rows.length >= limit) return rows.slice(0, limit);
      startMs = row.start_ms;
      add(groups, groupOf(row, groupBy), row);
    }
  }
  finish();
  return rows.slice(0, limit);
}

async function* pagesOf(
  { db, clock }: { db: Pick<Db, 'read'>; clock: Pick<Clock, 'nextTurn'> },
  { orgId, span, startMs, endMs, after }: TotalsQuery,
): AsyncGenerator<store.TotalRow[]> {
  const sums = { orgId, span, untilMs: endMs };
  let last: store.TotalKey = { start_ms: after?.startMs ?? startMs, model_id: '', api_key_id: '' };
  for (let limit = ROWS_FIRST; ; limit = Math.min(2 * limit, ROWS_MAX)) {
    const page = await store.pageOfTotals(db.read, sums, last, limit);
    yield page;
    if (page.length < limit) return;
    last = page.at(-1) ?? last;
    await clock.nextTurn();
  }
}

function groupOf({ model_id: model, api_key_id: key }: store.TotalRow, groupBy: GroupBy): string {
  if (groupBy === 'none') return '';
  return groupBy === 'model' ? model : key;
}

function add(groups: Map<string, Total>, group: string, row: store.TotalRow): void {
  const total = groups.get(group) ?? {
    startMs: row.start_ms,
    group,
    requests: 0,
    promptTokens: 0,
    completionTokens: 0,
    images: 0,
    costUcents: 0n,
  };
  groups.set(group, total);
  total.requests += row.requests;
  total.promptTokens += row.prompt_tokens;
  total.completionTokens += row.completion_tokens;
  total.images += row.images;
  total.costUcents += row.cost_ucents;
}
