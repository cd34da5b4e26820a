// Posts transfers, holds money and reads balances.
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { dollarText } from '../../../shared/money.ts';
import type { Query, Tx } from '../../base/db/db.ts';
import { type AccountRef, accountId } from './accounts.ts';
import * as store from './store.ts';

/** The view of a wallet: `available` = posted - held. All in microcents. */
export interface Balance {
  postedUcents: bigint;
  heldUcents: bigint;
  availableUcents: bigint;
}

export interface Ledger {
  /**
   * Writes all transfers under one batch id, or throws; then the caller's transaction must roll back.
   * Skips a transfer that exists with the same fields. @throws ServiceError `insufficient_balance`
   */
  post(tx: Tx, batchId: string, transfers: store.NewTransfer[]): Promise<void>;
  /** Sets the hold `id` to `amountUcents`; 0 releases it. @throws ServiceError `insufficient_balance` */
  setHold(tx: Tx, id: string, account: AccountRef, amountUcents: bigint): Promise<void>;
  /** Sets the hold to `wantedUcents`, or to less if the account does not cover it, and returns the amount. */
  coverHold(tx: Tx, id: string, account: AccountRef, wantedUcents: bigint): Promise<bigint>;
  /** Zero for an account that was never used. */
  balance(query: Query, account: AccountRef): Promise<Balance>;
}

export function openLedger(deps: { clock: Clock }): Ledger {
  const { clock } = deps;

  const balance = async (query: Query, account: AccountRef): Promise<Balance> => {
    const row = await store.findAccount(query, accountId(account));
    const posted = row === undefined ? 0n : row.credits_ucents - row.debits_ucents;
    const held = row?.held_ucents ?? 0n;
    return { postedUcents: posted, heldUcents: held, availableUcents: posted - held };
  };

  const setHold: Ledger['setHold'] = async (tx, id, account, amountUcents) => {
    const now = clock.now();
    await store.ensureAccount(tx, account, now);
    const before = await store.heldBy(tx, id);
    if (before === amountUcents) return;
    const covered = await store.addHeld(tx, accountId(account), amountUcents - before);
    if (!covered) await refuse(tx, account, amountUcents);
    await store.writeHold(tx, { id, accountId: accountId(account), amountUcents, nowMs: now });
  };

  const refuse = async (tx: Tx, account: AccountRef, neededUcents: bigint): Promise<never> => {
    const { availableUcents } = await balance(tx, account);
    const needed = dollarText(neededUcents);
    return fail('insufficient_balance', {
      detail: `This needs $${needed} and $${dollarText(availableUcents)} is available. Add funds and try again.`,
    });
  };

  return {
    balance,
    setHold,
    post: async (tx, batchId, transfers) => {
      const now = clock.now();
      for (const transfer of transfers) {
        await store.ensureAccount(tx, transfer.debit, now);
        await store.ensureAccount(tx, transfer.credit, now);
        const isNew = await store.insertTransfer(tx, batchId, transfer, now);
        if (!isNew) continue;
        const covered = await store.addDebit(tx, accountId(transfer.debit), transfer.amountUcents);
        if (!covered) await refuse(tx, transfer.debit, transfer.amountUcents);
        await store.addCredit(tx, accountId(transfer.credit), transfer.amountUcents);
      }
    },
    coverHold: async (tx, id, account, wantedUcents) => {
      const { availableUcents } = await balance(tx, account);
      const already = await store.heldBy(tx, id);
      const reachable = availableUcents + already;
      const covered = wantedUcents < reachable ? wantedUcents : reachable;
      await setHold(tx, id, account, covered);
      return covered;
    },
  };
}
