// The SQL of wallets: what subjects changed in them, how their transfers appear on a bill, and the transfers of all accounts for the
// operator's export.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { int, text, ucents } from '../../base/db/columns.ts';
import { join, type Query, type Sql, sql } from '../../base/db/db.ts';
import { accountId, wallet } from './accounts.ts';
import { BESIDE_SEGMENTS } from './store.ts';
import type { EntryCursor } from './suppliers.ts';
import type { BillSection } from '../../../shared/api/bill.ts';

/** The first time is inclusive, the second is exclusive. Both are times of posting. */
export interface PostedWindow {
  fromMs: number;
  untilMs: number;
}

export const FROM_WALLET = sql`substr(debit_account_id, 1, 16) = 'customer_wallet:'`;
export const TO_WALLET = sql`substr(credit_account_id, 1, 16) = 'customer_wallet:'`;

const SubjectEntryRow = z.object({
  account_id: text,
  kind: text,
  /** Negative if the account paid. */
  net_ucents: ucents,
});
export type SubjectEntry = z.infer<typeof SubjectEntryRow>;

/** What the transfers of one subject changed in each account, by kind. */
export function subjectEntries(query: Query, subjectId: string): Promise<SubjectEntry[]> {
  return query.all(
    SubjectEntryRow,
    sql`select account_id, kind, cast(sum(change) as bigint) as net_ucents from (
          select credit_account_id as account_id, kind, amount_ucents as change from transfers where subject_id = ${subjectId}
          union all
          select debit_account_id as account_id, kind, -amount_ucents as change from transfers where subject_id = ${subjectId}
        ) as sides group by account_id, kind order by account_id, kind`,
  );
}

const BesideRow = z.object({ id: text, wallet_ucents: ucents, shortfall_ucents: ucents });

/**
 * The transfers of these rentals that are no charge of a segment, summed: `wallet_ucents` is what their wallets received (negative if they
 * paid), and `shortfall_ucents` is what the wallets could not cover.
 */
export async function besideSegments(
  query: Query,
  subjectIds: readonly string[],
): Promise<Map<string, z.infer<typeof BesideRow>>> {
  if (subjectIds.length === 0) return new Map();
  const rows = await query.all(
    BesideRow,
    sql`select subject_id as id,
          cast(sum(case when substr(kind, 1, 7) = 'rental.' then 0 when ${TO_WALLET} then amount_ucents when ${FROM_WALLET} then -amount_ucents else 0 end)
            as bigint) as wallet_ucents,
          cast(sum(case when kind = 'rental.shortfall' then amount_ucents else 0 end) as bigint) as shortfall_ucents
        from transfers where subject_id in (${join([...subjectIds])}) and ${BESIDE_SEGMENTS} group by subject_id`,
  );
  return new Map(rows.map((row) => [row.id, row]));
}

const PaidRow = z.object({ id: text, paid_ucents: ucents });

/** What wallets have paid for each of these subjects and did not get back. */
export async function paidOfSubjects(query: Query, subjectIds: readonly string[]): Promise<Map<string, bigint>> {
  if (subjectIds.length === 0) return new Map();
  const rows = await query.all(
    PaidRow,
    sql`select subject_id as id, cast(sum(case when ${FROM_WALLET} then amount_ucents when ${TO_WALLET} then -amount_ucents else 0 end) as bigint)
          as paid_ucents
        from transfers where subject_id in (${join([...subjectIds])}) group by subject_id order by subject_id`,
  );
  return new Map(rows.map((row) => [row.id, row.paid_ucents]));
}

const CorrectedRow = z.object({ id: text, amount_ucents: ucents });

/** The sums of the transfers of corrections, by the id of the correction, with which the ids of the transfers begin. */
export async function correctedUcents(query: Query): Promise<Map<string, bigint>> {
  const rows = await query.all(
    CorrectedRow,
    sql`select id, amount_ucents from transfers where substr(kind, 1, 11) = 'correction.'`,
  );
  const sums = new Map<string, bigint>();
  for (const { id, amount_ucents: amount } of rows) {
    const [correction = ''] = id.split(':');
    sums.set(correction, (sums.get(correction) ?? 0n) + amount);
  }
  return sums;
}

const DepositKindRow = z.object({ subject_id: text, kind: text, amount_ucents: ucents });

const SubjectRow = DepositKindRow.pick({ subject_id: true });

/** The deposits with transfers after `afterId`, in the order of their ids. */
export async function depositsPostedAfter(query: Query, afterId: string, limit: number): Promise<string[]> {
  const rows = await query.all(
    SubjectRow,
    sql`select distinct subject_id from transfers where substr(kind, 1, 8) = 'deposit.' and subject_id > ${afterId}
        order by subject_id limit ${limit}`,
  );
  return rows.map((row) => row.subject_id);
}

/** The sums of the transfers of these deposits, by kind. */
export async function depositsPosted(query: Query, ids: readonly string[]): Promise<Map<string, Map<string, bigint>>> {
  if (ids.length === 0) return new Map();
  const rows = await query.all(
    DepositKindRow,
    sql`select subject_id, kind, cast(sum(amount_ucents) as bigint) as amount_ucents from transfers
        where substr(kind, 1, 8) = 'deposit.' and subject_id in (${join([...ids])}) group by subject_id, kind order by subject_id, kind`,
  );
  const bySubject = Map.groupBy(rows, (row) => row.subject_id);
  return new Map([...bySubject].map(([id, kinds]) => [id, new Map(kinds.map((row) => [row.kind, row.amount_ucents]))]));
}

const TransferRow = z.object({
  id: text,
  batch_id: text,
  debit_account_id: text,
  credit_account_id: text,
  amount_ucents: ucents,
  kind: text,
  subject_id: text,
  evidence: text.nullable(),
  effective_ms: int,
  posted_ms: int,
});
export type TransferRow = z.infer<typeof TransferRow>;

export interface TransferFilter {
  /** If set, only transfers that changed the wallet of this organisation. */
  orgId?: string | undefined;
  /** If set, only transfers of this instance, receipt, job, deposit or payout. */
  subjectId?: string | undefined;
  /** If set, only transfers of this kind. Another filter must be set too, because no index covers all kinds. */
  kind?: string | undefined;
}

/** Transfers that a search by kind reads in one turn of the event loop: a few milliseconds. */
const SEARCHED = 5_000;

/**
 * Transfers of the window that the filter lets through, after a position, in the order of posting. No index has the kinds of a wallet, so they are
 * searched in pieces. Other work of the process goes on in between.
 */
export async function transfersIn(
  query: Query,
  { fromMs, untilMs, ...filter }: PostedWindow & TransferFilter,
  { after = { postedMs: fromMs, id: '' }, limit }: { after: EntryCursor | undefined; limit: number },
  clock: Pick<Clock, 'nextTurn'>,
): Promise<TransferRow[]> {
  const { orgId, kind, subjectId } = filter;
  const isBefore = sql`posted_ms < ${untilMs}`;
  const isSearched = orgId !== undefined && kind !== undefined && subjectId === undefined;
  if (!isSearched)
    return query.all(TransferRow, selectTransfers(TRANSFER, filter, sql`${isBehind(after)} and ${isBefore}`, limit));
  const found: TransferRow[] = [];
  for (let at: EntryCursor | undefined = after; at !== undefined && found.length < limit;) {
    const piece: Sql = sql`${isBehind(at)} and ${isBefore}`;
    const positions = selectTransfers(sql`posted_ms, id`, { orgId }, piece, SEARCHED);
    const last = await query.one(
      PositionRow,
      sql`select posted_ms, id from (${positions}) as positions order by posted_ms, id limit 1 offset ${SEARCHED - 1}`,
    );
    const isUpTo: Sql = last === undefined ? sql`1 = 1` : sql`(posted_ms, id) <= (${last.posted_ms}, ${last.id})`;
    const rows = selectTransfers(TRANSFER, filter, sql`${piece} and ${isUpTo}`, limit - found.length);
    found.push(...(await query.all(TransferRow, rows)));
    at = last && { postedMs: last.posted_ms, id: last.id };
    await clock.nextTurn();
  }
  return found;
}

const PositionRow = TransferRow.pick({ posted_ms: true, id: true });

/** Columns of the transfers that the filter lets through, in the order of posting. */
function selectTransfers(columns: Sql, { orgId, subjectId, kind }: TransferFilter, isIn: Sql, limit: number): Sql {
  const isKind = kind === undefined ? sql`1 = 1` : sql`kind = ${kind}`;
  const order = sql`order by posted_ms, id limit ${limit}`;
  const of = (which: Sql): Sql =>
    sql`select ${columns} from transfers where ${which} and ${isKind} and ${isIn} ${order}`;
  const sides = orgId === undefined ? undefined : sidesOfWallet(orgId);
  if (subjectId !== undefined) {
    const isSide = sides === undefined ? sql`1 = 1` : sql`(${sides.to} or ${sides.from})`;
    return of(sql`subject_id = ${subjectId} and ${isSide}`);
  }
  if (sides === undefined) return of(sql`1 = 1`);
  const side = (which: Sql): Sql => sql`select * from (${of(which)}) as side`;
  return sql`select ${columns} from (${side(sides.to)} union all ${side(sides.from)}) as sides ${order}`;
}

/** How the transfers of a kind appear on the bill of a customer. Each room states it for the kinds with which it changes wallets. */
export interface BilledAs {
  /** The section may depend on the evidence of the transfer. */
  section: BillSection | ((evidence: string | null) => BillSection);
  /**
   * What one line sums up. `subject`: all transfers of an instance or job with the same evidence. `model`: all transfers of a model, which is
   * their evidence. `batch`: transfers that were posted together.
   */
  by: 'subject' | 'model' | 'batch';
}

/** The key is the kind of the transfer. */
export type Billed = Readonly<Record<string, BilledAs>>;

const TRANSFER = sql`id, batch_id, debit_account_id, credit_account_id, amount_ucents, kind, subject_id, evidence, effective_ms, posted_ms`;

/** Conditions that select the transfers to the wallet and those from it. Each side has its own index, whose condition is repeated here. */
function isBehind({ postedMs, id }: EntryCursor): Sql {
  return sql`(posted_ms, id) > (${postedMs}, ${id})`;
}

function sidesOfWallet(orgId: string): { to: Sql; from: Sql } {
  const account = accountId(wallet(orgId));
  return {
    to: sql`${TO_WALLET} and credit_account_id = ${account}`,
    from: sql`${FROM_WALLET} and debit_account_id = ${account}`,
  };
}
