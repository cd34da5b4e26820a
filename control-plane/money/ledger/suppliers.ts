// The SQL of suppliers' accounts: earnings, claw-backs and payouts. Each of them has its own index.
import { z } from 'zod';
import { int, text, ucents } from '../../base/db/columns.ts';
import { join, type Query, type Sql, sql } from '../../base/db/db.ts';
import { accountId, payable } from './accounts.ts';

/** The entry after which a page begins, from new to old. */
export interface EntryCursor {
  postedMs: number;
  /** The id of the transfer. */
  id: string;
}

const EntryRow = z.object({
  id: text,
  subject_id: text,
  /** Negative for a claw-back. */
  amount_ucents: ucents,
  evidence: text.nullable(),
  posted_ms: int,
});
export type SupplierEntry = z.infer<typeof EntryRow>;

/** A payout that came back is no earning. */
export const EARNED = sql`substr(credit_account_id, 1, 17) = 'supplier_payable:' and kind <> 'payout.failed'`;
export const TAKEN_BACK = sql`substr(debit_account_id, 1, 17) = 'supplier_payable:' and kind <> 'payout'`;
export const PAID = sql`kind = 'payout'`;
export const FAILED = sql`kind = 'payout.failed'`;

/** Earnings and claw-backs of the supplier, newest first. */
export function earnedEntries(
  query: Query,
  supplierId: string,
  after: EntryCursor | undefined,
  limit: number,
): Promise<SupplierEntry[]> {
  const account = accountId(payable(supplierId));
  const page = sql`${behind(after)} order by posted_ms desc, id desc limit ${limit}`;
  return query.all(
    EntryRow,
    sql`select id, subject_id, amount_ucents, evidence, posted_ms from (
          select * from (select id, subject_id, amount_ucents, evidence, posted_ms from transfers
            where ${EARNED} and credit_account_id = ${account} and ${page}) as earned
          union all
          select * from (select id, subject_id, -amount_ucents, evidence, posted_ms from transfers
            where ${TAKEN_BACK} and debit_account_id = ${account} and ${page}) as taken_back
        ) as entries order by posted_ms desc, id desc limit ${limit}`,
  );
}

const SubjectSumRow = EntryRow.pick({ subject_id: true, amount_ucents: true });

/** Earnings posted at `sinceMs` or later by rental, minus the claw-backs in the same time. */
export function earnedBySubject(
  query: Query,
  supplierId: string,
  sinceMs: number,
): Promise<z.infer<typeof SubjectSumRow>[]> {
  const account = accountId(payable(supplierId));
  const since = sql`posted_ms >= ${sinceMs}`;
  return query.all(
    SubjectSumRow,
    sql`select subject_id, cast(sum(amount_ucents) as bigint) as amount_ucents from (
          select subject_id, amount_ucents from transfers where ${EARNED} and credit_account_id = ${account} and ${since}
          union all
          select subject_id, -amount_ucents from transfers where ${TAKEN_BACK} and debit_account_id = ${account} and ${since}
        ) as entries group by subject_id order by subject_id`,
  );
}

/** The same for these rentals only. Reads along them, so it is fast for few rentals of a large supplier. */
export function earnedByTheseSubjects(
  query: Query,
  supplierId: string,
  { subjectIds, sinceMs }: { subjectIds: readonly string[]; sinceMs: number },
): Promise<z.infer<typeof SubjectSumRow>[]> {
  if (subjectIds.length === 0) return Promise.resolve([]);
  const account = accountId(payable(supplierId));
  const amount = sql`case when ${EARNED} and credit_account_id = ${account} then amount_ucents
    when ${TAKEN_BACK} and debit_account_id = ${account} then -amount_ucents else 0 end`;
  return query.all(
    SubjectSumRow,
    sql`select subject_id, cast(sum(${amount}) as bigint) as amount_ucents from transfers
        where subject_id in (${join([...subjectIds])}) and posted_ms >= ${sinceMs} group by subject_id order by subject_id`,
  );
}

const SumRow = z.object({ total_ucents: ucents });

/** What the supplier earned by these rentals, minus the claw-backs. Reads along the rentals, like `waitingFor`. */
export async function earnedBySubjects(
  query: Query,
  supplierId: string,
  subjectIds: readonly string[],
): Promise<bigint> {
  if (subjectIds.length === 0) return 0n;
  const isOfThem = sql`subject_id in (${join([...subjectIds])})`;
  const entries = join(entriesOf(accountId(payable(supplierId)), isOfThem, sql` || ''`), ' union all ');
  const row = await query.one(
    SumRow,
    sql`select cast(coalesce(sum(amount_ucents), 0) as bigint) as total_ucents from (${entries}) as entries`,
  );
  return row?.total_ucents ?? 0n;
}

/** The total of all payouts to the supplier that did not come back, in microcents. */
export async function paidTo(query: Query, supplierId: string): Promise<bigint> {
  const account = accountId(payable(supplierId));
  const row = await query.one(
    SumRow,
    sql`select cast(coalesce(sum(amount), 0) as bigint) as total_ucents from (
          select amount_ucents as amount from transfers where ${PAID} and debit_account_id = ${account}
          union all
          select -amount_ucents as amount from transfers where ${FAILED} and credit_account_id = ${account}) as payouts`,
  );
  return row?.total_ucents ?? 0n;
}

/**
 * Earnings that may not be paid out yet: entries posted after `sinceMs`, and entries of disputed rentals that were posted at or after the time
 * from which each is disputed, also if they were paid out. A claw-back of a rental reduces only the entries of that rental. `disputed` selects
 * the `subject_id` of each disputed rental, and that time as `from_ms`.
 */
export async function waitingFor(
  query: Query,
  supplierId: string,
  { sinceMs, disputed }: { sinceMs: number; disputed: Sql },
): Promise<bigint> {
  const account = accountId(payable(supplierId));
  const isNew = sql`posted_ms > ${sinceMs}`;
  // Begins with the disputed rentals and reads their index, not that of the account: a supplier may have a million entries.
  const ofDisputed = (amount: Sql, isEntry: Sql): Sql =>
    sql`select t.subject_id, ${amount} as amount_ucents from disputed d cross join transfers t
        where t.subject_id = d.subject_id and ${isEntry} and (${isNew} or posted_ms >= d.from_ms)`;
  const entries = [
    ...entriesOf(account, sql`${isNew} and subject_id not in (select subject_id from disputed)`),
    ofDisputed(sql`amount_ucents`, sql`${EARNED} and credit_account_id || '' = ${account}`),
    ofDisputed(sql`-amount_ucents`, sql`${TAKEN_BACK} and debit_account_id || '' = ${account}`),
  ];
  const row = await query.one(
    SumRow,
    sql`with disputed as materialized (${disputed})
        select cast(coalesce(sum(case when net_ucents > 0 then net_ucents else 0 end), 0) as bigint) as total_ucents from (
          select subject_id, sum(amount_ucents) as net_ucents from (${join(entries, ' union all ')}) as entries
          group by subject_id) as rentals`,
  );
  return row?.total_ucents ?? 0n;
}

/** Earnings and claw-backs of the account. `apart` keeps the index of the account out of the plan. */
function entriesOf(account: string, which: Sql, apart = sql``): Sql[] {
  return [
    sql`select subject_id, amount_ucents from transfers where ${EARNED} and credit_account_id${apart} = ${account} and ${which}`,
    sql`select subject_id, -amount_ucents from transfers where ${TAKEN_BACK} and debit_account_id${apart} = ${account} and ${which}`,
  ];
}

/** The supplier's earnings from transfers of one kind that were posted after `sinceMs`. */
export async function earnedByKind(
  query: Query,
  supplierId: string,
  { kind, sinceMs }: { kind: string; sinceMs: number },
): Promise<bigint> {
  const row = await query.one(
    SumRow,
    sql`select cast(coalesce(sum(amount_ucents), 0) as bigint) as total_ucents from transfers
        where ${EARNED} and credit_account_id = ${accountId(payable(supplierId))} and posted_ms > ${sinceMs} and kind = ${kind}`,
  );
  return row?.total_ucents ?? 0n;
}

const StandingRow = z.object({ id: text, earned_ucents: ucents, paid_ucents: ucents });

/** The total earnings of each account, and its total payouts that did not come back. */
export function standings(query: Query): Promise<z.infer<typeof StandingRow>[]> {
  return query.all(
    StandingRow,
    sql`select id, cast(max(credits_ucents) - sum(failed) as bigint) as earned_ucents, cast(sum(paid) - sum(failed) as bigint) as paid_ucents
        from (
          select a.id, a.credits_ucents, t.amount_ucents as paid, 0 as failed
          from ledger_accounts a join transfers t on t.debit_account_id = a.id and t.kind = 'payout'
          union all
          select a.id, a.credits_ucents, 0 as paid, t.amount_ucents as failed
          from ledger_accounts a join transfers t on t.credit_account_id = a.id and t.kind = 'payout.failed') as sides
        group by id order by id`,
  );
}

const OwnerRow = z.object({ owner_id: text });

/** Suppliers after `afterId` to whom we owe at least the amount, in order. */
export async function suppliersOwed(
  query: Query,
  leastUcents: bigint,
  { afterId, limit }: { afterId: string; limit: number },
): Promise<string[]> {
  const rows = await query.all(
    OwnerRow,
    sql`select owner_id from ledger_accounts where id > ${accountId(payable(afterId))} and kind = 'supplier_payable'
          and credits_ucents - debits_ucents >= ${leastUcents}
        order by id limit ${limit}`,
  );
  return rows.map((row) => row.owner_id);
}

const AmountRow = z.object({ id: text, amount_ucents: ucents });
type AmountOf = z.infer<typeof AmountRow>;

/** Selects the transfers of payouts. The condition is that of their index. */
const IS_OF_PAYOUT = sql`substr(kind, 1, 6) = 'payout'`;

/** The amounts of the transfers of payouts after `afterId`, in the order of their ids. */
export function amountsOfPayoutsAfter(query: Query, afterId: string, limit: number): Promise<AmountOf[]> {
  return query.all(
    AmountRow,
    sql`select id, amount_ucents from transfers where ${IS_OF_PAYOUT} and id > ${afterId} order by id limit ${limit}`,
  );
}

/** The amounts of those of these transfers that are of payouts. */
export async function amountsOfPayouts(query: Query, ids: readonly string[]): Promise<AmountOf[]> {
  if (ids.length === 0) return [];
  return query.all(
    AmountRow,
    sql`select id, amount_ucents from transfers where ${IS_OF_PAYOUT} and id in (${join([...ids])})`,
  );
}

function behind(position: EntryCursor | undefined): Sql {
  return position === undefined ? sql`1 = 1` : sql`(posted_ms, id) < (${position.postedMs}, ${position.id})`;
}
