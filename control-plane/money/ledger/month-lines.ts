// Keeps the lines of months: a loop adds settled transfers to their lines, so that a bill reads lines and the transfers of the last minutes.
//
// The lines can miss transfers if the clock was set back by more than a minute: a transfer is then posted before the position. So the loop
// compares the lines of each account with its balance, at its start and once an hour, and makes wrong ones again.
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import type { Db, Query } from '../../base/db/db.ts';
import type { Fold } from '../../base/db/folding.ts';
import { openRowFailures, type RowFailures } from '../../base/db/row-failures.ts';
import { type AccountRef, accountId, isWallet, payable, wallet } from './accounts.ts';
import { lastOf } from './charges.ts';
import { monthAt, SETTLED_MS } from './month.ts';
import * as store from './month-store.ts';
import { tailSums } from './proof-store.ts';
import type { Billed, BilledAs } from './wallets.ts';

/** Accounts that are compared at a time. */
const PIECE = 500;
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
      if (await store.monthLines.run(deps, additionOf(deps), signal)) return true;
      if (signal.aborted || clock.monotonicMs() < nextCheckMs) return false;
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

function additionOf({ billed }: Deps): Fold {
  return {
    body: 'months.add',
    settledMs: SETTLED_MS,
    pieceUntilMs: (postedMs) => monthAt(postedMs).untilMs,
    add: (tx, piece) =>
      store.addLines(tx, piece, { monthMs: monthAt(piece.last.at_ms).fromMs, grouping: groupingOf(billed()) }),
  };
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
    const position = await store.monthLines.lock(tx);
    await store.deleteLines(tx, account);
    const firstMs = await store.firstPostedMs(tx, account, position);
    if (firstMs === undefined) return;
    for (let window = monthAt(firstMs); window.fromMs <= position.at_ms; window = monthAt(window.untilMs)) {
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
  const { at_ms: postedMs, id: transferId } = await store.monthLines.position(query);
  const tail = await tailSums(query, { posted_ms: postedMs, transfer_id: transferId });
  const rows = await store.accountsWithLines(query, afterId, limit);
  const wrong = rows.flatMap(({ id, owner_id: ownerId, posted_ucents: posted, lines_ucents: lines }) => {
    const { credits, debits } = tail.get(id) ?? { credits: 0n, debits: 0n };
    if (lines + credits - debits === posted) return [];
    return [isWallet(id) ? wallet(ownerId) : payable(ownerId)];
  });
  const ids = rows.map(({ id }) => id);
  return { wrong, lastId: lastOf(ids, limit) };
}
