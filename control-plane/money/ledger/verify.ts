// The proof that the books agree. It works in pieces. Each piece is a short transaction with one consistent view, however many transfers
// there are.
import { z } from 'zod';
import { ucents } from '../../base/db/columns.ts';
import { type Query, type Tx, sql } from '../../base/db/db.ts';
import * as store from './proof-store.ts';

/** Transfers are summed up to this position. It stays behind the transfers of transactions that may still be open. */
export interface Reach {
  untilMs: number;
  limit: number;
}

/** Adds the next transfers to the proven sums of their accounts. Resolves with their subjects; undefined if there are none. */
export async function advance(tx: Tx, { untilMs, limit }: Reach): Promise<string[] | undefined> {
  const state = await store.proofState(tx);
  const rows = await store.unproven(tx, state, untilMs, limit);
  const last = rows.at(-1);
  if (last === undefined) return undefined;
  const sums = new Map<string, store.Sums>();
  const sumsOf = (accountId: string): store.Sums => {
    const known = sums.get(accountId) ?? { debits: 0n, credits: 0n };
    sums.set(accountId, known);
    return known;
  };
  for (const row of rows) {
    sumsOf(row.debit_account_id).debits += row.amount_ucents;
    sumsOf(row.credit_account_id).credits += row.amount_ucents;
  }
  for (const [accountId, sum] of sums) await store.addToProven(tx, accountId, sum);
  await store.writeProofState(tx, { ...state, posted_ms: last.posted_ms, transfer_id: last.id });
  return [...new Set(rows.map((row) => row.subject_id))];
}

export interface AccountsPiece {
  faults: string[];
  /** Undefined after the last account. */
  lastId: string | undefined;
}

/** Compares accounts after `afterId` with their proven sums, the transfers since, and their holds. */
export async function accountFaults(tx: Tx, afterId: string, limit: number): Promise<AccountsPiece> {
  const faults: string[] = [];
  const tail = await store.tailSums(tx, await store.proofState(tx));
  const rows = await store.accountsAfter(tx, afterId, limit);
  for (const row of rows) {
    const since = tail.get(row.id) ?? { debits: 0n, credits: 0n };
    const sides = [
      ['debits', row.debits_ucents, row.proven_debits_ucents + since.debits],
      ['credits', row.credits_ucents, row.proven_credits_ucents + since.credits],
      ['holds', row.held_ucents, row.holds_ucents],
    ] as const;
    for (const [what, kept, summed] of sides) {
      if (kept !== summed) faults.push(`${row.id}: ${what} kept ${kept}, entries sum to ${summed}`);
    }
    if (row.kind === 'rental_clearing' && row.debits_ucents !== row.credits_ucents)
      faults.push(`${row.id} is not zero`);
  }
  return { faults, lastId: rows.length < limit ? undefined : rows.at(-1)?.id };
}

const SumsRow = z.object({ debits: ucents, credits: ucents });

export async function sumFaults(query: Query): Promise<string[]> {
  const sums = await query.one(
    SumsRow,
    sql`select cast(coalesce(sum(debits_ucents), 0) as bigint) as debits, cast(coalesce(sum(credits_ucents), 0) as bigint) as credits
        from ledger_accounts`,
  );
  return sums === undefined || sums.debits === sums.credits
    ? []
    : [`debits ${sums.debits} differ from credits ${sums.credits}`];
}
