// The SQL of the proof: its progress, and the sums of the proven transfers.
import { z } from 'zod';
import { idRow, int, text, ucents } from '../../base/db/columns.ts';
import { join, type Query, type Tx, sql } from '../../base/db/db.ts';
import { hasTotals } from './accounts.ts';

const StateRow = z.object({
  posted_ms: int,
  transfer_id: text,
  /** How many transfers are in the proven sums. */
  transfers: int,
  faults: int,
  new_proven_ms: int.nullable(),
  whole_proven_ms: int.nullable(),
  /** When a full proof began that has not ended; null if there is none. */
  whole_begun_ms: int.nullable(),
});
export type ProofState = z.infer<typeof StateRow>;

const NOTHING_PROVEN: ProofState = {
  posted_ms: 0,
  transfer_id: '',
  transfers: 0,
  faults: 0,
  new_proven_ms: null,
  whole_proven_ms: null,
  whole_begun_ms: null,
};

const STATE = sql`posted_ms, transfer_id, transfers, faults, new_proven_ms, whole_proven_ms,
  whole_begun_ms`;

/** How far the books were proven, and the result of the last proof. */
export async function proofState(query: Query): Promise<ProofState> {
  return (await query.one(StateRow, sql`select ${STATE} from ledger_proof where id = 1`)) ?? NOTHING_PROVEN;
}

/**
 * The same, and no other transaction can change it until this one ends. Two proofs may run at once, and would count the same transfers twice.
 * Whether the statement inserts the row or leaves it as it is, it locks it. Must begin the transaction.
 */
export async function lockProofState(tx: Tx): Promise<ProofState> {
  const row = await tx.one(
    StateRow,
    sql`insert into ledger_proof (id, posted_ms, transfer_id, faults) values (1, 0, '', 0)
        on conflict (id) do update set id = excluded.id returning ${STATE}`,
  );
  return row ?? NOTHING_PROVEN;
}

/** Writes the row that `lockProofState` has locked. */
export async function writeProofState(tx: Tx, state: ProofState): Promise<void> {
  await tx.run(
    sql`update ledger_proof set posted_ms = ${state.posted_ms}, transfer_id = ${state.transfer_id}, transfers = ${state.transfers},
          faults = ${state.faults}, new_proven_ms = ${state.new_proven_ms}, whole_proven_ms = ${state.whole_proven_ms},
          whole_begun_ms = ${state.whole_begun_ms}
        where id = 1`,
  );
}

/** Lets a full proof begin with the first transfer. */
export async function forgetProven(tx: Tx, nowMs: number): Promise<void> {
  const state = await lockProofState(tx);
  await tx.run(sql`delete from proven_accounts`);
  await tx.run(sql`delete from proven_wallet_kinds`);
  await writeProofState(tx, { ...state, posted_ms: 0, transfer_id: '', transfers: 0, whole_begun_ms: nowMs });
}

/** Stores the result of a proof. A full proof also covers the new transfers. */
export async function noteProven(tx: Tx, proof: { isWhole: boolean; faults: number; nowMs: number }): Promise<void> {
  const { isWhole, faults, nowMs } = proof;
  const before = await lockProofState(tx);
  const whole = isWhole ? { whole_proven_ms: nowMs, whole_begun_ms: null } : {};
  await writeProofState(tx, { ...before, faults, new_proven_ms: nowMs, ...whole });
}

const PostedRow = z.object({
  id: text,
  debit_account_id: text,
  credit_account_id: text,
  amount_ucents: ucents,
  kind: text,
  subject_id: text,
  posted_ms: int,
});
export type PostedRow = z.infer<typeof PostedRow>;

/** Transfers after the position that were posted before `untilMs`, ordered by time. */
export function unproven(query: Query, state: ProofState, untilMs: number, limit: number): Promise<PostedRow[]> {
  return query.all(
    PostedRow,
    sql`select id, debit_account_id, credit_account_id, amount_ucents, kind, subject_id, posted_ms from transfers
        where (posted_ms, id) > (${state.posted_ms}, ${state.transfer_id}) and posted_ms < ${untilMs}
        order by posted_ms, id limit ${limit}`,
  );
}

export async function addToProven(tx: Tx, accountId: string, { debits, credits }: Sums): Promise<void> {
  await tx.run(
    sql`insert into proven_accounts (account_id, debits_ucents, credits_ucents) values (${accountId}, ${debits}, ${credits})
        on conflict (account_id) do update set debits_ucents = proven_accounts.debits_ucents + excluded.debits_ucents,
          credits_ucents = proven_accounts.credits_ucents + excluded.credits_ucents`,
  );
}

export async function noteWalletKinds(tx: Tx, kinds: readonly string[]): Promise<void> {
  if (kinds.length === 0) return;
  const rows = kinds.map((kind) => sql`(${kind})`);
  await tx.run(sql`insert into proven_wallet_kinds (kind) values ${join(rows)} on conflict (kind) do nothing`);
}

const KindRow = z.object({ kind: text });

/** The kinds of all proven transfers that changed a wallet. */
export async function provenWalletKinds(query: Query): Promise<string[]> {
  const rows = await query.all(KindRow, sql`select kind from proven_wallet_kinds order by kind`);
  return rows.map(({ kind }) => kind);
}

export interface Sums {
  debits: bigint;
  credits: bigint;
}

const TailRow = z.object({ account_id: text, debits_ucents: ucents, credits_ucents: ucents });

/** The sums of the transfers after the position, by account. */
export async function tailSums(
  query: Query,
  state: Pick<ProofState, 'posted_ms' | 'transfer_id'>,
): Promise<Map<string, Sums>> {
  const isBehind = sql`(posted_ms, id) > (${state.posted_ms}, ${state.transfer_id})`;
  const rows = await query.all(
    TailRow,
    sql`select account_id, cast(sum(debit) as bigint) as debits_ucents, cast(sum(credit) as bigint) as credits_ucents from (
          select debit_account_id as account_id, amount_ucents as debit, 0 as credit from transfers where ${isBehind}
          union all
          select credit_account_id as account_id, 0 as debit, amount_ucents as credit from transfers where ${isBehind}
        ) as sides group by account_id`,
  );
  return new Map(rows.map((row) => [row.account_id, { debits: row.debits_ucents, credits: row.credits_ucents }]));
}

const PostedSumRow = z.object({ posted_ucents: ucents });

/** The balance of an account without a row: its credits minus its debits, summed from the proven sums and the transfers since. */
export async function postedOf(query: Query, accountId: string): Promise<bigint> {
  const state = await proofState(query);
  const isBehind = sql`(posted_ms, id) > (${state.posted_ms}, ${state.transfer_id})`;
  const row = await query.one(
    PostedSumRow,
    sql`select cast(coalesce(sum(amount), 0) as bigint) as posted_ucents from (
          select credits_ucents - debits_ucents as amount from proven_accounts where account_id = ${accountId}
          union all
          select amount_ucents as amount from transfers where credit_account_id = ${accountId} and ${isBehind}
          union all
          select -amount_ucents as amount from transfers where debit_account_id = ${accountId} and ${isBehind}
        ) as parts`,
  );
  return row?.posted_ucents ?? 0n;
}

/** Ids among the proven accounts and `others` that have no row in `ledger_accounts` although they should. */
export async function withoutRow(query: Query, others: readonly string[]): Promise<string[]> {
  const proven = await query.all(
    idRow,
    sql`select account_id as id from proven_accounts p where not exists (select 1 from ledger_accounts a where a.id = p.account_id)`,
  );
  const known =
    others.length === 0
      ? []
      : await query.all(idRow, sql`select id from ledger_accounts where id in (${join([...others])})`);
  const isKnown = new Set(known.map(({ id }) => id));
  const missing = [...proven.map(({ id }) => id), ...others.filter((id) => !isKnown.has(id))];
  return [...new Set(missing)].filter(hasTotals).toSorted();
}

const AccountRow = z.object({
  id: text,
  kind: text,
  debits_ucents: ucents,
  credits_ucents: ucents,
  held_ucents: ucents,
  proven_debits_ucents: ucents,
  proven_credits_ucents: ucents,
  holds_ucents: ucents,
});

/** Accounts after `afterId` with their proven sums and the sum of their holds. */
export function accountsAfter(query: Query, afterId: string, limit: number): Promise<z.infer<typeof AccountRow>[]> {
  return query.all(
    AccountRow,
    sql`select a.id, a.kind, a.debits_ucents, a.credits_ucents, a.held_ucents,
          coalesce(p.debits_ucents, 0) as proven_debits_ucents, coalesce(p.credits_ucents, 0) as proven_credits_ucents,
          (select cast(coalesce(sum(h.amount_ucents), 0) as bigint) from holds h where h.account_id = a.id) as holds_ucents
        from ledger_accounts a left join proven_accounts p on p.account_id = a.id
        where a.id > ${afterId} order by a.id limit ${limit}`,
  );
}

/** Subjects of transfers after `afterId`, in order. */
export async function subjectsAfter(query: Query, afterId: string, limit: number): Promise<string[]> {
  const rows = await query.all(
    idRow,
    sql`select distinct subject_id as id from transfers where subject_id > ${afterId} order by subject_id limit ${limit}`,
  );
  return rows.map((row) => row.id);
}

const CountedRow = z.object({ id: text, count: int });

/** The first of the subjects that have at most `limit` transfers together, or the first one. `subjectIds` are in order. */
export async function firstWithin(
  query: Query,
  subjectIds: readonly string[],
  limit: number,
): Promise<readonly string[]> {
  if (subjectIds.length < 2) return subjectIds;
  const rows = await query.all(
    CountedRow,
    sql`select subject_id as id, count(*) as count from (
          select subject_id from transfers where subject_id in (${join([...subjectIds])})
          order by subject_id limit ${limit + 1}) as counted group by subject_id order by subject_id`,
  );
  const last = rows.at(-1);
  if (last === undefined || rows.reduce((sum, { count }) => sum + count, 0) <= limit) return subjectIds;
  return subjectIds.slice(0, Math.max(1, subjectIds.indexOf(last.id)));
}

const SubjectTotalRow = z.object({ subject_id: text, kind: text, total_ucents: ucents });

/** The sums of the transfers of these subjects, by kind. */
export async function totalsOf(query: Query, subjectIds: readonly string[]): Promise<Map<string, Map<string, bigint>>> {
  const totals = new Map(subjectIds.map((id) => [id, new Map<string, bigint>()]));
  if (subjectIds.length === 0) return totals;
  const rows = await query.all(
    SubjectTotalRow,
    sql`select subject_id, kind, cast(sum(amount_ucents) as bigint) as total_ucents from transfers
        where subject_id in (${join([...subjectIds])}) group by subject_id, kind`,
  );
  for (const { subject_id: id, kind, total_ucents: total } of rows) totals.get(id)?.set(kind, total);
  return totals;
}
