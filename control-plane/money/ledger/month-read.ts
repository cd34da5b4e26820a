// Reads a month of an account for its bill or statement: the balances and the lines at one moment, however many lines there are.
//
// The summed lines are read in pages with a turn of the event loop after each, so that others are served. A page is no part of the snapshot with
// which the reading began. If lines change meanwhile (the loop in month-lines.ts adds to them, or makes them again), the pages do not add up to what
// the snapshot has counted, and are read again. After some tries all is read in one transaction.
import type { Clock } from '../../../shared/clock.ts';
import type { Db, Query } from '../../base/db/db.ts';
import type { AccountRef } from './accounts.ts';
import type { Ledger } from './ledger.ts';
import * as store from './month-store.ts';
import type { PostedWindow } from './wallets.ts';

export interface MonthReadDeps {
  db: Db;
  clock: Pick<Clock, 'nextTurn'>;
  ledger: Pick<Ledger, 'balance'>;
}

export interface MonthRead {
  /** The balance of the account. */
  nowUcents: bigint;
  /** What was posted since the month began. */
  sinceUcents: bigint;
  /** All changes of the account in the month, in groups, ordered by time. */
  lines: store.MonthLine[];
}

/** What is read of a month. `grouping` is undefined for an account of a supplier. */
interface MonthOf {
  window: PostedWindow;
  grouping: store.Grouping | undefined;
}

/** Number of summed lines that are read in one turn of the event loop: a few milliseconds. */
const LINES_PER_PAGE = 1_000;
/** How often pages are read anew. Lines change once in minutes, and a month is read within a second. */
const TRIES_MAX = 3;

export async function readMonth(
  account: AccountRef,
  month: MonthOf,
  { db, clock, ledger }: MonthReadDeps,
): Promise<MonthRead> {
  const begin = (query: Query) => beginRead(query, account, month, ledger);
  const { fromMs } = month.window;
  for (let tries = 0; tries < TRIES_MAX; tries += 1) {
    const { since, summed, ...balances } = await db.snapshot('month', begin);
    const lines = await readPages(db.read, account, fromMs, () => clock.nextTurn());
    if (isSumOf(summed, lines)) return { ...balances, lines: merged([...lines, ...since]) };
  }
  return db.snapshot('month.whole', async (query) => {
    const { since, summed: _summed, ...balances } = await begin(query);
    const lines = await readPages(query, account, fromMs, () => undefined);
    return { ...balances, lines: merged([...lines, ...since]) };
  });
}

async function beginRead(
  query: Query,
  account: AccountRef,
  month: MonthOf,
  ledger: Pick<Ledger, 'balance'>,
): Promise<Omit<MonthRead, 'lines'> & { since: store.MonthLine[]; summed: store.LinesSum }> {
  const { postedUcents: nowUcents } = await ledger.balance(query, account);
  return {
    nowUcents,
    sinceUcents: await store.changeSince(query, account, month.window.fromMs),
    since: await store.linesSince(query, account, month),
    summed: await store.sumOfLines(query, account, month.window.fromMs),
  };
}

/** All summed lines of the month. `turn` comes after each page. */
async function readPages(
  query: Query,
  account: AccountRef,
  monthMs: number,
  turn: () => Promise<void> | undefined,
): Promise<store.MonthLine[]> {
  const lines: store.MonthLine[] = [];
  for (let page: store.MonthLine[] | undefined; page === undefined || page.length === LINES_PER_PAGE;) {
    page = await store.pageOfLines(query, account, { monthMs, after: lines.at(-1), limit: LINES_PER_PAGE });
    lines.push(...page);
    const turned = turn();
    if (turned !== undefined) await turned;
  }
  return lines;
}

function isSumOf({ count, change_ucents: change }: store.LinesSum, lines: readonly store.MonthLine[]): boolean {
  const sum = lines.reduce((ucents, line) => ucents + line.change_ucents, 0n);
  return lines.reduce((n, line) => n + line.count, 0) === count && sum === change;
}

/** One line for each group, ordered by time and then by group. */
function merged(lines: readonly store.MonthLine[]): store.MonthLine[] {
  const groups = new Map<string, store.MonthLine>();
  for (const line of lines) {
    const key = JSON.stringify([line.kind, line.subject_id, line.batch_id, line.evidence ?? '']);
    const known = groups.get(key);
    groups.set(key, known === undefined ? line : sumOf(known, line));
  }
  return [...groups]
    .toSorted(([a, x], [b, y]) => x.last_posted_ms - y.last_posted_ms || (a < b ? -1 : 1))
    .map(([, line]) => line);
}

function sumOf(one: store.MonthLine, other: store.MonthLine): store.MonthLine {
  return {
    ...one,
    count: one.count + other.count,
    change_ucents: one.change_ucents + other.change_ucents,
    last_posted_ms: Math.max(one.last_posted_ms, other.last_posted_ms),
  };
}
