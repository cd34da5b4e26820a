// The proof that the books agree. It works in pieces. Each piece is a short transaction with one consistent view, however many transfers
// there are.
import type { Query, Tx } from '../../base/db/db.ts';
import { accountId, clearing, isWallet } from './accounts.ts';
import { lastOf, type ProofPage } from './charges.ts';
import * as store from './proof-store.ts';

/** The limits of one step of the proof. `untilMs` is so early that no open transaction can still add transfers before it. */
export interface Reach {
  untilMs: number;
  limit: number;
}

/** Adds the next transfers to the proven sums of their accounts. Resolves with their subjects; undefined if there are none. */
export async function advance(tx: Tx, { untilMs, limit }: Reach): Promise<string[] | undefined> {
  const state = await store.lockProofState(tx);
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
  await store.noteWalletKinds(tx, [...new Set(rows.filter(changesWallet).map((row) => row.kind))]);
  const transfers = state.transfers + rows.length;
  await store.writeProofState(tx, { ...state, posted_ms: last.posted_ms, transfer_id: last.id, transfers });
  return [...new Set(rows.map((row) => row.subject_id))];
}

function changesWallet({ debit_account_id: debit, credit_account_id: credit }: store.PostedRow): boolean {
  return isWallet(debit) || isWallet(credit);
}

/** Compares accounts after `afterId` with their proven sums, the transfers since, and their holds. The first piece also checks what has no row. */
export async function accountFaults(query: Query, afterId: string, limit: number): Promise<ProofPage> {
  const faults: string[] = [];
  const tail = await store.tailSums(query, await store.proofState(query));
  if (afterId === '') faults.push(...(await rowlessFaults(query, [...tail.keys()])));
  const rows = await store.accountsAfter(query, afterId, limit);
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
  }
  return {
    faults,
    lastId: lastOf(
      rows.map(({ id }) => id),
      limit,
    ),
  };
}

async function rowlessFaults(query: Query, accountIds: readonly string[]): Promise<string[]> {
  const missing = await store.withoutRow(query, accountIds);
  const left = await store.postedOf(query, accountId(clearing));
  return [
    ...missing.map((id) => `${id}: has entries and no row`),
    ...(left === 0n ? [] : [`${accountId(clearing)} is not zero`]),
  ];
}
