// The SQL of accounts, transfers and holds.
import { z } from 'zod';
import { int, text, ucents } from '../../base/db/columns.ts';
import { join, type Query, type Sql, type Tx, sql } from '../../base/db/db.ts';
import { type AccountRef, accountId, isPrepaid } from './accounts.ts';

export interface NewTransfer {
  /** Deterministic: it names what is paid and up to when, e.g. `<segment>:<through_ms>:charge`. */
  id: string;
  debit: AccountRef;
  credit: AccountRef;
  /** Always positive. */
  amountUcents: bigint;
  kind: string;
  /** The instance, deposit or payout of the transfer. */
  subjectId: string;
  /** The reason, if the kind does not explain it, e.g. the probes that prove a dead window. */
  evidence?: string;
  effectiveMs: number;
}

const AccountRow = z.object({
  id: text,
  kind: text,
  owner_id: text,
  debits_ucents: ucents,
  credits_ucents: ucents,
  held_ucents: ucents,
});
export type AccountRow = z.infer<typeof AccountRow>;

const TransferRow = z.object({
  debit_account_id: text,
  credit_account_id: text,
  amount_ucents: ucents,
  kind: text,
});
/** The id of a transfer was used for a different one. If we made the id, it is a bug. If a person chose it, it is a mistake. */
export class TransferDiffers extends Error {
  constructor(id: string) {
    super(`transfer ${id} exists with other fields`);
  }
}

const AmountRow = z.object({ amount_ucents: ucents });
const HeldAmountRow = AmountRow.extend({ id: text });

export function findAccount(query: Query, id: string): Promise<AccountRow | undefined> {
  return query.one(
    AccountRow,
    sql`select id, kind, owner_id, debits_ucents, credits_ucents, held_ucents from ledger_accounts where id = ${id}`,
  );
}

/**
 * Writes the transfers whose ids are new, and returns these. The others exist already.
 * @throws TransferDiffers if an id was used for a different transfer
 */
export async function insertTransfers(
  tx: Tx,
  batchId: string,
  transfers: readonly NewTransfer[],
  nowMs: number,
): Promise<NewTransfer[]> {
  const counts = await Promise.all(transfers.map((transfer) => tx.run(insertOf(batchId, transfer, nowMs))));
  for (const [i, transfer] of transfers.entries()) if (counts[i] === 0) await refuseDifferent(tx, transfer);
  return transfers.filter((_, i) => counts[i] === 1);
}

/**
 * The statement has the same text for every transfer, so the drivers prepare it once. PostgreSQL gets the statements of a batch in one
 * packet.
 */
function insertOf(batchId: string, transfer: NewTransfer, nowMs: number): Sql {
  const { id, debit, credit, amountUcents, kind, subjectId, evidence = null, effectiveMs } = transfer;
  return sql`insert into transfers (id, batch_id, debit_account_id, credit_account_id, amount_ucents, kind, subject_id, evidence, effective_ms, posted_ms)
    values (${id}, ${batchId}, ${accountId(debit)}, ${accountId(credit)}, ${amountUcents}, ${kind}, ${subjectId}, ${evidence}, ${effectiveMs}, ${nowMs})
    on conflict (id) do nothing`;
}

async function refuseDifferent(tx: Tx, transfer: NewTransfer): Promise<void> {
  const existing = await tx.one(
    TransferRow,
    sql`select debit_account_id, credit_account_id, amount_ucents, kind from transfers where id = ${transfer.id}`,
  );
  const same =
    existing?.debit_account_id === accountId(transfer.debit) &&
    existing.credit_account_id === accountId(transfer.credit) &&
    existing.amount_ucents === transfer.amountUcents &&
    existing.kind === transfer.kind;
  if (!same) throw new TransferDiffers(transfer.id);
}

/** What a batch of transfers adds to the totals of one account. */
export interface Change {
  account: AccountRef;
  debitsUcents: bigint;
  creditsUcents: bigint;
}

/** False if a prepaid account does not cover the change. The first change of an account makes its row. */
export async function addTotals(tx: Tx, change: Change, nowMs: number): Promise<boolean> {
  const { account, debitsUcents: debits, creditsUcents: credits } = change;
  const id = accountId(account);
  const update = (): Promise<number> =>
    tx.run(
      sql`update ledger_accounts set debits_ucents = debits_ucents + ${debits}, credits_ucents = credits_ucents + ${credits}
          where id = ${id} and (prepaid = 0 or credits_ucents - debits_ucents - held_ucents + ${credits} >= ${debits})`,
    );
  if ((await update()) === 1) return true;
  if (isPrepaid(account.kind) && credits < debits) return false;
  const made = await tx.run(
    sql`insert into ledger_accounts (id, kind, owner_id, prepaid, debits_ucents, credits_ucents, created_ms)
        values (${id}, ${account.kind}, ${account.ownerId}, ${isPrepaid(account.kind)}, ${debits}, ${credits}, ${nowMs})
        on conflict (id) do nothing`,
  );
  // Another transaction has made the row in between.
  return made === 1 || (await update()) === 1;
}

/** Changes the total of the account's holds; false if the account does not cover an increase. */
export async function addHeld(tx: Tx, id: string, changeUcents: bigint): Promise<boolean> {
  const changed = await tx.run(
    sql`update ledger_accounts set held_ucents = held_ucents + ${changeUcents}
        where id = ${id} and credits_ucents - debits_ucents - held_ucents >= ${changeUcents}`,
  );
  return changed === 1;
}

/**
 * Changes the total of the account's holds by the difference between the new and the present amount of this hold; false if the account does
 * not cover it.
 */
export async function addDifference(tx: Tx, { id, accountId: account, amountUcents }: Hold): Promise<boolean> {
  const more = sql`(cast(${amountUcents} as bigint) - coalesce((select amount_ucents from holds where id = ${id}), 0))`;
  const changed = await tx.run(
    sql`update ledger_accounts set held_ucents = held_ucents + ${more}
        where id = ${account} and credits_ucents - debits_ucents - held_ucents >= ${more}`,
  );
  return changed === 1;
}

/** Makes the hold, or gives it another amount. Does nothing for an account that was never used. */
export async function upsertHold(tx: Tx, hold: Hold): Promise<void> {
  await tx.run(
    sql`insert into holds (id, account_id, amount_ucents, updated_ms)
        select ${hold.id}, id, cast(${hold.amountUcents} as bigint), cast(${hold.nowMs} as bigint)
        from ledger_accounts where id = ${hold.accountId}
        on conflict (id) do update set amount_ucents = excluded.amount_ucents, updated_ms = excluded.updated_ms`,
  );
}

export async function heldBy(query: Query, holdId: string): Promise<bigint> {
  const row = await query.one(AmountRow, sql`select amount_ucents from holds where id = ${holdId}`);
  return row?.amount_ucents ?? 0n;
}

/** The amounts of these holds. An id without a hold is not in the map. */
export async function amountsHeld(query: Query, holdIds: readonly string[]): Promise<Map<string, bigint>> {
  if (holdIds.length === 0) return new Map();
  const rows = await query.all(
    HeldAmountRow,
    sql`select id, amount_ucents from holds where id in (${join([...holdIds])})`,
  );
  return new Map(rows.map((row) => [row.id, row.amount_ucents]));
}

/** False if the hold exists already. */
export async function insertHold(tx: Tx, hold: Hold): Promise<boolean> {
  const made = await tx.run(
    sql`insert into holds (id, account_id, amount_ucents, updated_ms)
        values (${hold.id}, ${hold.accountId}, ${hold.amountUcents}, ${hold.nowMs}) on conflict (id) do nothing`,
  );
  return made === 1;
}

interface Hold {
  id: string;
  accountId: string;
  /** Amount of the hold. It must be more than 0. */
  amountUcents: bigint;
  nowMs: number;
}

export async function changeHold(tx: Tx, hold: Hold): Promise<void> {
  await tx.run(
    sql`update holds set amount_ucents = ${hold.amountUcents}, updated_ms = ${hold.nowMs} where id = ${hold.id}`,
  );
}

/** Deletes the hold and returns its amount; 0 if there was none. */
export async function removeHold(tx: Tx, id: string): Promise<bigint> {
  const row = await tx.one(AmountRow, sql`delete from holds where id = ${id} returning amount_ucents`);
  return row?.amount_ucents ?? 0n;
}

const AboutRow = z.object({
  kind: text,
  amount_ucents: ucents,
  evidence: text.nullable(),
  effective_ms: int,
  posted_ms: int,
});
export type TransferAbout = z.infer<typeof AboutRow>;

/** Transfers of a rental that have evidence, newest first. */
export function explainedTransfers(query: Query, subjectId: string, limit: number): Promise<TransferAbout[]> {
  return query.all(
    AboutRow,
    sql`select kind, amount_ucents, evidence, effective_ms, posted_ms from transfers
        where subject_id = ${subjectId} and evidence is not null order by posted_ms desc, id desc limit ${limit}`,
  );
}

const AmountOfRow = z.object({ id: text, amount_ucents: ucents });
export type AmountOf = z.infer<typeof AmountOfRow>;

/** The transfers of these kinds of one subject. */
export function amountsOfSubject(query: Query, subjectId: string, kinds: readonly string[]): Promise<AmountOf[]> {
  return query.all(
    AmountOfRow,
    sql`select id, amount_ucents from transfers where subject_id = ${subjectId} and kind in (${join([...kinds])}) order by id`,
  );
}

const EvidencedRow = AmountOfRow.extend({ subject_id: text, evidence: text, effective_ms: int });
export type EvidencedAmount = z.infer<typeof EvidencedRow>;

/** Selects the transfers of rentals that are no charges of segments. An index has the same condition, so the text must stay equal to that. */
export const BESIDE_SEGMENTS = sql`(kind in ('rental.shortfall', 'rental.refund_charge') or substr(kind, 1, 7) = 'credit.' or substr(kind, 1, 11) = 'correction.')`;

/** The refunds of charges of these rentals whose evidence begins with the prefix, in the order of their times. */
export async function refundsByEvidence(
  query: Query,
  subjectIds: readonly string[],
  prefix: string,
): Promise<EvidencedAmount[]> {
  if (subjectIds.length === 0) return [];
  const rows = await query.all(
    EvidencedRow,
    sql`select id, subject_id, amount_ucents, evidence, effective_ms from transfers
        where subject_id in (${join([...subjectIds])}) and kind = 'rental.refund_charge' and ${BESIDE_SEGMENTS}
          and substr(evidence, 1, ${prefix.length}) = ${prefix}`,
  );
  // Sorted here: an order in the query would make it walk along all transfers of the rental.
  return rows.toSorted((a, b) => a.effective_ms - b.effective_ms || (a.id < b.id ? -1 : 1));
}

const RefundRow = z.object({ evidence: text, total_ucents: ucents });

/** Refunds of customers by evidence, for evidence that begins with the prefix. */
export async function refundTotals(query: Query, evidencePrefix: string): Promise<Map<string, bigint>> {
  const rows = await query.all(
    RefundRow,
    sql`select evidence, cast(sum(amount_ucents) as bigint) as total_ucents from transfers
        where kind = 'rental.refund_charge' and substr(evidence, 1, ${evidencePrefix.length}) = ${evidencePrefix} group by evidence`,
  );
  return new Map(rows.map((row) => [row.evidence, row.total_ucents]));
}

/** Selects the transfers about held credits and payments. The condition is that of their index. */
const IS_HELD = sql`(substr(kind, 1, 7) = 'credit.' or kind = 'own_outage.released')`;

/** The amounts of transfers about held credits and payments after `afterId`, in the order of their ids. */
export function amountsOfHeldAfter(query: Query, afterId: string, limit: number): Promise<AmountOf[]> {
  return query.all(
    AmountOfRow,
    sql`select id, amount_ucents from transfers where ${IS_HELD} and id > ${afterId} order by id limit ${limit}`,
  );
}

/** The amounts of those of these transfers that are about held credits and payments. */
export async function amountsOfHeld(query: Query, ids: readonly string[]): Promise<AmountOf[]> {
  if (ids.length === 0) return [];
  return query.all(
    AmountOfRow,
    sql`select id, amount_ucents from transfers where ${IS_HELD} and id in (${join([...ids])})`,
  );
}
