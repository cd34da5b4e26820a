// Keeps the lines of months: a loop adds settled transfers to their lines, so that a bill reads lines and the transfers of the last minutes.
//
// The lines can miss transfers if the clock was set back by more than a minute: a transfer is then posted before the position. So the loop
// compares the lines of each account with its balance, at its start and once an hour, and makes wrong ones again.
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import type { Db, Query } from '../../base/db/db.ts';
import { openRowFailures, type RowFailures } from '../../base/db/row-failures.ts';
import { type AccountRef, accountId, isWallet, payable, wallet } from './accounts.ts';
import { lastOf } from './charges.ts';
import { monthAt, SETTLED_MS } from './month.ts';
import * as store from './month-store.ts';
import { tailSums } from './proof-store.ts';
import type { Billed, BilledAs } from './wallets.ts';

const PIECE = 500;
/** A run ends after this time and the next one continues, because a long run counts as hanging. */
const SLICE_MS = 60_000;
const CHECK_PERIOD_MS = 3_600_000;

export interface MonthLines {
  /** Adds settled transfers to their lines for a limited time, and mends wrong lines. True if more work is due now. */
  run(signal: AbortSignal): Promise<boolean>;
}

interface Deps {
  db: Db;
  clock: Clock;
  log: Log;
  /** How each kind of transfer appears on a bill. Each room states this for its own kinds. */
  billed(): Billed;
}

export function openMonthLines(deps: Deps): MonthLines {
  const { clock } = deps;
  let nextCheckMs = 0;
  return {
    run: async (signal) => {
      const untilMs = clock.monotonicMs() + SLICE_MS;
      while (await advance(deps)) if (signal.aborted || clock.monotonicMs() >= untilMs) return !signal.aborted;
      if (clock.monotonicMs() < nextCheckMs) return false;
      const failures = await mend(deps, signal);
      // An account that fails is tried again in the next check. It would otherwise make each run check all accounts.
      nextCheckMs = clock.monotonicMs() + CHECK_PERIOD_MS;
      failures.throwAll();
      return false;
    },
  };
}

export function groupingOf(billed: Billed): store.Grouping {
  const kindsBy = (by: BilledAs['by']): string[] => Object.keys(billed).filter((kind) => billed[kind]?.by === by);
  return { bySubject: kindsBy('subject'), byEvidence: kindsBy('model') };
}

/** Adds the next transfers to their lines. True if there may be more. Settled transfers do not change, so they are found before the transaction. */
async function advance({ db, clock, billed }: Deps): Promise<boolean> {
  const position = await store.linesPosition(db.read);
  const reach = { untilMs: clock.now() - SETTLED_MS, limit: PIECE };
  const transfers = await store.positionsBehind(db.read, position, reach);
  const [first] = transfers;
  if (first === undefined) return false;
  const { fromMs: monthMs, untilMs } = monthAt(first.posted_ms);
  const last = transfers.findLast(({ posted_ms: postedMs }) => postedMs < untilMs) ?? first;
  return db.tx('months.add', async (tx) => {
    // Another process is adding them.
    if (!(await store.moveLinesPosition(tx, position, last))) return false;
    await store.addLines(tx, position, { last, monthMs, grouping: groupingOf(billed()) });
    return true;
  });
}

async function mend(deps: Deps, signal: AbortSignal): Promise<RowFailures> {
  const { db, log } = deps;
  const failures = openRowFailures();
  for (let afterId: string | undefined = ''; afterId !== undefined && !signal.aborted;) {
    const from: string = afterId;
    const { wrong, lastId } = await db.snapshot('months.wrong', (query) => wrongLines(query, from, PIECE));
    for (const account of wrong) {
      log.warn(
        { account_id: accountId(account) },
        'the lines of an account differ from its balance and are made again',
      );
      await failures.note(`the lines of ${accountId(account)} could not be made again`, makeAgain(account, deps));
    }
    afterId = lastId;
  }
  return failures;
}

async function makeAgain(account: AccountRef, { db, billed }: Deps): Promise<void> {
  const grouping = isWallet(accountId(account)) ? groupingOf(billed()) : undefined;
  await db.tx('months.again', async (tx) => {
    const position = await store.lockLinesPosition(tx);
    await store.deleteLines(tx, account);
    const firstMs = await store.firstPostedMs(tx, account, position);
    if (firstMs === undefined) return;
    for (let window = monthAt(firstMs); window.fromMs <= position.posted_ms; window = monthAt(window.untilMs)) {
      await store.insertLines(tx, account, { window, position, grouping });
    }
  });
}

/** The accounts of a page whose lines do not sum to their balance. */
async function wrongLines(
  query: Query,
  afterId: string,
  limit: number,
): Promise<{ wrong: AccountRef[]; lastId: string | undefined }> {
  const tail = await tailSums(query, await store.linesPosition(query));
  const rows = await store.accountsWithLines(query, afterId, limit);
  const wrong = rows.flatMap(({ id, owner_id: ownerId, posted_ucents: posted, lines_ucents: lines }) => {
    const { credits, debits } = tail.get(id) ?? { credits: 0n, debits: 0n };
    if (lines + credits - debits === posted) return [];
    return [isWallet(id) ? wallet(ownerId) : payable(ownerId)];
  });
  const ids = rows.map(({ id }) => id);
  return { wrong, lastId: lastOf(ids, limit) };
}
