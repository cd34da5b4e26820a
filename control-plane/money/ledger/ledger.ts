// Posts transfers, holds money and reads balances.
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { lesserUcents, shortDollarText } from '../../../shared/money.ts';
import type { Query, Tx } from '../../base/db/db.ts';
import { type AccountRef, accountId, hasTotals, wallet } from './accounts.ts';
import { postedOf } from './proof-store.ts';
import * as store from './store.ts';

/** The view of a wallet: `available` = posted - held. All in microcents. */
export interface Balance {
  postedUcents: bigint;
  heldUcents: bigint;
  availableUcents: bigint;
}

/**
 * A transaction calls these functions last, after its locks of other rows. `post` changes the rows of accounts in the order of their ids.
 * So transactions do not wait for each other in a circle.
 */
export interface Ledger {
  /**
   * Writes all transfers under one batch id, or throws; then the caller's transaction must roll back.
   * Skips a transfer that exists with the same fields. @throws ServiceError `insufficient_balance`
   */
  post(tx: Tx, batchId: string, transfers: store.NewTransfer[]): Promise<void>;
  /** Sets the hold `id` to `amountUcents`; 0 releases it. @throws ServiceError `insufficient_balance` */
  setHold(tx: Tx, id: string, account: AccountRef, amountUcents: bigint): Promise<void>;
  /**
   * Does the same as `setHold` in one round trip. It writes even if the hold already has this amount. @throws ServiceError
   * `insufficient_balance`
   */
  holdAtOnce(tx: Tx, id: string, account: AccountRef, amountUcents: bigint): Promise<void>;
  /** Sets the hold to `wantedUcents`, or to less if the account does not cover it, and returns the amount. */
  coverHold(tx: Tx, id: string, account: AccountRef, wantedUcents: bigint): Promise<bigint>;
  /** @throws ServiceError `insufficient_balance` with what is available and held now, and `advice`, a sentence on how to need less */
  refuse(query: Query, account: AccountRef, neededUcents: bigint, advice?: string): Promise<never>;
  /** Reads what is available and locks the account, so that nobody else spends it before the end of the transaction. */
  availableNow(tx: Tx, account: AccountRef): Promise<bigint>;
  /** Zero for an account that was never used. */
  balance(query: Query, account: AccountRef): Promise<Balance>;
  /** Whether money has ever come into the wallet of the organisation. */
  wasFunded(query: Query, orgId: string): Promise<boolean>;
}

export function openLedger(deps: { clock: Clock }): Ledger {
  const { clock } = deps;

  const balance = async (query: Query, account: AccountRef): Promise<Balance> => {
    const row = hasTotals(account) ? await store.findAccount(query, accountId(account)) : undefined;
    const kept = row === undefined ? 0n : row.credits_ucents - row.debits_ucents;
    const posted = hasTotals(account) ? kept : await postedOf(query, accountId(account));
    const held = row?.held_ucents ?? 0n;
    return { postedUcents: posted, heldUcents: held, availableUcents: posted - held };
  };

  const refuse: Ledger['refuse'] = async (query, account, neededUcents, advice) =>
    fail('insufficient_balance', { detail: refusalText(await balance(query, account), neededUcents, advice) });

  const setHold: Ledger['setHold'] = async (tx, id, account, amountUcents) => {
    if (amountUcents === 0n) return releaseHold(tx, id, account);
    const before = await store.heldBy(tx, id);
    if (before === amountUcents) return;
    const covered =
      before === 0n
        ? await insertHold(tx, { id, account, amountUcents, nowMs: clock.now() })
        : await store.addHeld(tx, accountId(account), amountUcents - before);
    if (!covered) await refuse(tx, account, amountUcents);
    if (before === 0n) return;
    await store.changeHold(tx, { id, accountId: accountId(account), amountUcents, nowMs: clock.now() });
  };

  const availableNow: Ledger['availableNow'] = async (tx, account) => {
    await tx.lock('account', accountId(account));
    return (await balance(tx, account)).availableUcents;
  };

  return {
    balance,
    wasFunded: async (query, orgId) => {
      const row = await store.findAccount(query, accountId(wallet(orgId)));
      return row !== undefined && row.credits_ucents > 0n;
    },
    refuse,
    setHold,
    holdAtOnce: async (tx, id, account, amountUcents) => {
      if (!(await holdAtOnce(tx, { id, account, amountUcents, nowMs: clock.now() })))
        await refuse(tx, account, amountUcents);
    },
    post: async (tx, batchId, transfers) => {
      const nowMs = clock.now();
      const posted = await store.insertTransfers(tx, batchId, transfers, nowMs);
      for (const change of changesOf(posted)) {
        const covered = await store.addTotals(tx, change, nowMs);
        if (!covered) await refuse(tx, change.account, change.debitsUcents);
      }
    },
    availableNow,
    coverHold: async (tx, id, account, wantedUcents) => {
      const availableUcents = await availableNow(tx, account);
      const already = await store.heldBy(tx, id);
      const reachable = availableUcents + already;
      const covered = lesserUcents(wantedUcents, reachable);
      await setHold(tx, id, account, covered);
      return covered;
    },
  };
}

function refusalText({ availableUcents, heldUcents }: Balance, neededUcents: bigint, advice?: string): string {
  const available = shortDollarText(availableUcents, 'down');
  const sentences = [`This needs $${shortDollarText(neededUcents, 'up')} and $${available} is available.`];
  if (heldUcents > 0n)
    sentences.push(
      `$${shortDollarText(heldUcents, 'down')} is held for other requests and rentals that are open. What they do not use comes back when they end.`,
    );
  if (advice !== undefined) sentences.push(advice);
  const isEnoughLater = heldUcents > 0n && availableUcents + heldUcents >= neededUcents;
  return [...sentences, isEnoughLater ? 'Add funds, or try again then.' : 'Add funds and try again.'].join(' ');
}

interface NewHold {
  id: string;
  account: AccountRef;
  amountUcents: bigint;
  nowMs: number;
}

/** False if the account does not cover the amount. */
async function insertHold(tx: Tx, { id, account, amountUcents, nowMs }: NewHold): Promise<boolean> {
  if (!(await store.addHeld(tx, accountId(account), amountUcents))) return false;
  if (await store.insertHold(tx, { id, accountId: accountId(account), amountUcents, nowMs })) return true;
  throw new Error(`the hold ${id} exists already`);
}

/** False if the account does not cover the amount; then the transaction must be rolled back. */
async function holdAtOnce(tx: Tx, { id, account, amountUcents, nowMs }: NewHold): Promise<boolean> {
  if (amountUcents === 0n) return releaseHold(tx, id, account).then(() => true);
  const wanted = { id, accountId: accountId(account), amountUcents, nowMs };
  const [isCovered] = await Promise.all([store.addDifference(tx, wanted), store.upsertHold(tx, wanted)]);
  return isCovered;
}

async function releaseHold(tx: Tx, id: string, account: AccountRef): Promise<void> {
  const before = await store.removeHold(tx, id);
  if (before > 0n) await store.addHeld(tx, accountId(account), -before);
}

/** What the transfers add to the accounts with running totals, in the order of the accounts. */
function changesOf(transfers: readonly store.NewTransfer[]): store.Change[] {
  const changes = new Map<string, store.Change>();
  const changeOf = (account: AccountRef): store.Change => {
    const id = accountId(account);
    const change = changes.get(id) ?? { account, debitsUcents: 0n, creditsUcents: 0n };
    changes.set(id, change);
    return change;
  };
  for (const { debit, credit, amountUcents } of transfers) {
    if (hasTotals(debit)) changeOf(debit).debitsUcents += amountUcents;
    if (hasTotals(credit)) changeOf(credit).creditsUcents += amountUcents;
  }
  return [...changes].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, change]) => change);
}
