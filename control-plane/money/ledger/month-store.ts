// The SQL of the lines of a month: transfers in groups, for the bill of a customer and the statement of a supplier.
//
// A row of `month_lines` sums up transfers that were posted up to a position. Readers add the transfers after it, of which there are few.
import { z } from 'zod';
import { int, text, ucents } from '../../base/db/columns.ts';
import { join, type Query, type Sql, type Tx, sql } from '../../base/db/db.ts';
import { openFolding, type Place } from '../../base/db/folding.ts';
import { type AccountRef, accountId } from './accounts.ts';
import { EARNED, FAILED, PAID, TAKEN_BACK } from './suppliers.ts';
import { FROM_WALLET, type PostedWindow, TO_WALLET } from './wallets.ts';

/**
 * The kinds of transfers of a wallet that are summed for each subject, and the kinds that are summed for each evidence. Transfers of all
 * other kinds are summed for each batch. A supplier's account has no grouping: all its transfers are summed for each subject and evidence.
 */
export interface Grouping {
  bySubject: readonly string[];
  byEvidence: readonly string[];
}

/** The lines of all months, and the last transfer in them. */
export const monthLines = openFolding({
  rows: sql`transfers`,
  rowMs: sql`posted_ms`,
  position: sql`month_lines_position`,
  positionMs: sql`posted_ms`,
  positionId: sql`transfer_id`,
});
const { isBehind, isUpTo } = monthLines;

/** Adds the transfers after the position up to `last`, all of one month, to their lines. The caller has moved the position to `last`. */
export async function addLines(
  tx: Tx,
  { position, last }: { position: Place; last: Place },
  { monthMs, grouping }: { monthMs: number; grouping: Grouping },
): Promise<void> {
  const to = (columns: Sql): Sql =>
    sql`select credit_account_id as account_id, ${columns}, amount_ucents as change from piece`;
  const from = (columns: Sql): Sql =>
    sql`select debit_account_id as account_id, ${columns}, -amount_ucents as change from piece`;
  const [ofWallet, ofSupplier] = [columnsOf(grouping), columnsOf(undefined)];
  const sides = join(
    [
      sql`${to(ofWallet)} where ${TO_WALLET}`,
      sql`${from(ofWallet)} where ${FROM_WALLET}`,
      sql`${to(ofSupplier)} where ${TO_SUPPLIER}`,
      sql`${from(ofSupplier)} where ${FROM_SUPPLIER}`,
    ],
    ' union all ',
  );
  await tx.run(
    sql`insert into month_lines (account_id, month_ms, ${LINE})
        with piece as materialized (
          select kind, subject_id, batch_id, evidence, debit_account_id, credit_account_id, amount_ucents, posted_ms from transfers
          where ${isBehind(position)} and ${isUpTo(last)})
        select account_id, cast(${monthMs} as bigint), ${SUMMED} from (${sides}) as sides where 1 = 1 group by account_id, ${KEY}
        on conflict (account_id, month_ms, ${KEY}) do update set count = month_lines.count + excluded.count,
          change_ucents = month_lines.change_ucents + excluded.change_ucents, last_posted_ms = excluded.last_posted_ms`,
  );
}

const FirstRow = z.object({ posted_ms: int.nullable() });

/** The time of the first transfer of the account up to the position; undefined if there is none. */
export async function firstPostedMs(query: Query, account: AccountRef, position: Place): Promise<number | undefined> {
  const sides = sidesOf(account, isUpTo(position), sql`posted_ms`);
  const row = await query.one(FirstRow, sql`select min(posted_ms) as posted_ms from (${sides}) as sides`);
  return row?.posted_ms ?? undefined;
}

/** Deletes all lines of the account. */
export async function deleteLines(tx: Tx, account: AccountRef): Promise<void> {
  await tx.run(sql`delete from month_lines where account_id = ${accountId(account)}`);
}

/** Makes the lines of the account in a month, which has none, from its transfers up to the position. */
export async function insertLines(
  tx: Tx,
  account: AccountRef,
  { window, position, grouping }: { window: PostedWindow; position: Place; grouping: Grouping | undefined },
): Promise<void> {
  const isIn = sql`${isWithin(window)} and ${isUpTo(position)}`;
  await tx.run(
    sql`insert into month_lines (account_id, month_ms, ${LINE})
        select cast(${accountId(account)} as text), cast(${window.fromMs} as bigint), ${SUMMED}
        from (${sidesOf(account, isIn, columnsOf(grouping))}) as sides group by ${KEY}`,
  );
}

const LineRow = z.object({
  kind: text,
  /** Empty for the kinds of `byEvidence`. */
  subject_id: text,
  /** Empty for the kinds of both groupings. */
  batch_id: text,
  evidence: text.transform((evidence) => (evidence === '' ? null : evidence)),
  count: int,
  /** Negative if the account paid. */
  change_ucents: ucents,
  last_posted_ms: int,
});
export type MonthLine = z.infer<typeof LineRow>;

/** The changes of the account in a month by transfers after the position, in groups. */
export async function linesSince(
  query: Query,
  account: AccountRef,
  { window, grouping }: { window: PostedWindow; grouping: Grouping | undefined },
): Promise<MonthLine[]> {
  const isIn = sql`${isBehind(await monthLines.position(query))} and ${isWithin(window)}`;
  return query.all(
    LineRow,
    sql`select ${KEY}, count(*) as count, cast(sum(change) as bigint) as change_ucents, max(posted_ms) as last_posted_ms
        from (${sidesOf(account, isIn, columnsOf(grouping))}) as sides group by ${KEY}`,
  );
}

/** A page of the rows of the account in the month that begins at `monthMs`, ordered by key. `after` is the last row of the page before. */
export function pageOfLines(
  query: Query,
  account: AccountRef,
  { monthMs, after, limit }: { monthMs: number; after: MonthLine | undefined; limit: number },
): Promise<MonthLine[]> {
  const { kind = '', subject_id: subject = '', batch_id: batch = '', evidence = null } = after ?? {};
  return query.all(
    LineRow,
    sql`select ${LINE} from month_lines where account_id = ${accountId(account)} and month_ms = ${monthMs}
          and (${KEY}) > (${kind}, ${subject}, ${batch}, ${evidence ?? ''}) order by ${KEY} limit ${limit}`,
  );
}

const LinesSumRow = z.object({ count: int, change_ucents: ucents });
export type LinesSum = z.infer<typeof LinesSumRow>;

/** The sum of all rows of the account in the month that begins at `monthMs`. */
export async function sumOfLines(query: Query, account: AccountRef, monthMs: number): Promise<LinesSum> {
  const row = await query.one(
    LinesSumRow,
    sql`select cast(coalesce(sum(count), 0) as bigint) as count, cast(coalesce(sum(change_ucents), 0) as bigint) as change_ucents
        from month_lines where account_id = ${accountId(account)} and month_ms = ${monthMs}`,
  );
  return row ?? { count: 0, change_ucents: 0n };
}

const SumRow = z.object({ total_ucents: ucents });

/** The change of the account by all that was posted in a month, which begins at `monthMs`, and in the months after it. */
export async function changeSince(query: Query, account: AccountRef, monthMs: number): Promise<bigint> {
  const isIn = sql`${isBehind(await monthLines.position(query))} and posted_ms >= ${monthMs}`;
  const row = await query.one(
    SumRow,
    sql`select cast(coalesce(sum(change), 0) as bigint) as total_ucents from (
          select change_ucents as change from month_lines where account_id = ${accountId(account)} and month_ms >= ${monthMs}
          union all
          select change from (${sidesOf(account, isIn, sql`posted_ms`)}) as sides) as parts`,
  );
  return row?.total_ucents ?? 0n;
}

const AccountRow = z.object({ id: text, owner_id: text, posted_ucents: ucents, lines_ucents: ucents });

/** Accounts after `afterId`: what was posted to each, and the sum of its lines. */
export function accountsWithLines(query: Query, afterId: string, limit: number): Promise<z.infer<typeof AccountRow>[]> {
  return query.all(
    AccountRow,
    sql`select a.id, a.owner_id, a.credits_ucents - a.debits_ucents as posted_ucents,
          (select cast(coalesce(sum(l.change_ucents), 0) as bigint) from month_lines l where l.account_id = a.id) as lines_ucents
        from ledger_accounts a where a.id > ${afterId} order by a.id limit ${limit}`,
  );
}

const KEY = sql`kind, subject_id, batch_id, evidence`;
const LINE = sql`${KEY}, count, change_ucents, last_posted_ms`;
const SUMMED = sql`${KEY}, count(*), cast(sum(change) as bigint), max(posted_ms)`;
const TO_SUPPLIER = sql`substr(credit_account_id, 1, 17) = 'supplier_payable:'`;
const FROM_SUPPLIER = sql`substr(debit_account_id, 1, 17) = 'supplier_payable:'`;

function isWithin({ fromMs, untilMs }: PostedWindow): Sql {
  return sql`posted_ms >= ${fromMs} and posted_ms < ${untilMs}`;
}

/** The columns of `KEY` and the time of a transfer. */
function columnsOf(grouping: Grouping | undefined): Sql {
  if (grouping === undefined)
    return sql`kind, subject_id, '' as batch_id, coalesce(evidence, '') as evidence, posted_ms`;
  const { bySubject, byEvidence } = grouping;
  const isOneOf = (kinds: readonly string[]): Sql =>
    kinds.length === 0 ? sql`1 = 0` : sql`kind in (${join([...kinds])})`;
  return sql`kind, case when ${isOneOf(byEvidence)} then '' else subject_id end as subject_id,
    case when ${isOneOf([...byEvidence, ...bySubject])} then '' else batch_id end as batch_id,
    coalesce(evidence, '') as evidence, posted_ms`;
}

/** Transfers to the account and from it, each with its `change`. Each side has its own index, whose condition is repeated here. */
function sidesOf(account: AccountRef, isIn: Sql, columns: Sql): Sql {
  const id = accountId(account);
  const to = (is: Sql): Sql =>
    sql`select ${columns}, amount_ucents as change from transfers where ${is} and credit_account_id = ${id} and ${isIn}`;
  const from = (is: Sql): Sql =>
    sql`select ${columns}, -amount_ucents as change from transfers where ${is} and debit_account_id = ${id} and ${isIn}`;
  const sides =
    account.kind === 'customer_wallet'
      ? [to(TO_WALLET), from(FROM_WALLET)]
      : [to(EARNED), to(FAILED), from(TAKEN_BACK), from(PAID)];
  return join(sides, ' union all ');
}
