// The SQL of deposits.
import { z } from 'zod';
import { DEPOSIT_ASSETS, DEPOSIT_CHAINS, type DepositChain } from '../../../shared/api/deposit.ts';
import { DEPOSIT_STATES, type DepositState } from '../../../shared/states.ts';
import { countRow, idRow, int, text, ucents } from '../../base/db/columns.ts';
import { join, type Query, type Sql, sql, type Tx } from '../../base/db/db.ts';
import { pageFrom, type PageStart } from '../../base/http/cursors.ts';
import type { Family } from './chains.ts';
import { countInSuspense, inParts } from './transfers-store.ts';

const Status = z.enum(Object.keys(DEPOSIT_STATES) as [DepositState, ...DepositState[]]);
/** Amounts of tokens are BigInt, as money is. */
const units = ucents;

const DepositRow = z.object({
  id: text,
  org_id: text,
  status: Status,
  chain: z.enum(DEPOSIT_CHAINS),
  asset: z.enum(DEPOSIT_ASSETS),
  family: z.enum(['evm', 'solana']),
  amount_cents: int,
  due_units: units,
  address: text,
  position: int,
  tx_hash: text.nullable(),
  credited_units: units.nullable(),
  credited_cents: int.nullable(),
  note: text.nullable(),
  created_ms: int,
  expires_ms: int,
  watched_until_ms: int,
  due_ms: int.nullable(),
});
export type Deposit = z.infer<typeof DepositRow>;

const COLUMNS = sql`id, org_id, status, chain, asset, family, amount_cents, due_units, address, position, tx_hash, credited_units, credited_cents, note,
  created_ms, expires_ms, watched_until_ms, due_ms`;

/** Selects the deposits that count against the limit of their organisation. An index has the same condition. */
const IS_UNDECIDED = sql`status in ('created', 'detected', 'confirming', 'settled', 'screening', 'held_screening')`;

export async function insertDeposit(tx: Tx, row: Deposit): Promise<void> {
  await tx.run(
    sql`insert into deposits (${COLUMNS})
        values (${row.id}, ${row.org_id}, ${row.status}, ${row.chain}, ${row.asset}, ${row.family}, ${row.amount_cents}, ${row.due_units},
          ${row.address}, ${row.position}, ${row.tx_hash}, ${row.credited_units}, ${row.credited_cents}, ${row.note},
          ${row.created_ms}, ${row.expires_ms}, ${row.watched_until_ms}, ${row.due_ms})`,
  );
}

export function findDeposit(query: Query, id: string): Promise<Deposit | undefined> {
  return query.one(DepositRow, sql`select ${COLUMNS} from deposits where id = ${id}`);
}

export function depositsOfOrg(query: Query, orgId: string, start: PageStart): Promise<Deposit[]> {
  return query.all(DepositRow, sql`select ${COLUMNS} from deposits where org_id = ${orgId} and ${pageFrom(start)}`);
}

/** Deposits after `afterId`, in the order of their ids. */
export function depositsAfter(query: Query, afterId: string, limit: number): Promise<Deposit[]> {
  return query.all(DepositRow, sql`select ${COLUMNS} from deposits where id > ${afterId} order by id limit ${limit}`);
}

/** Those of these ids that are deposits. */
export async function knownDeposits(query: Query, ids: readonly string[]): Promise<Set<string>> {
  if (ids.length === 0) return new Set();
  const rows = await query.all(idRow, sql`select id from deposits where id in (${join([...ids])})`);
  return new Set(rows.map((row) => row.id));
}

export interface DepositFilter {
  status?: DepositState | undefined;
  orgId?: string | undefined;
  /** True: only deposits about which the operator must decide something. */
  isWaiting?: boolean | undefined;
}

/** Deposits of all organisations. */
export function depositsLike(query: Query, filter: DepositFilter, start: PageStart): Promise<Deposit[]> {
  const status = filter.status === undefined ? sql`1 = 1` : sql`status = ${filter.status}`;
  const org = filter.orgId === undefined ? sql`1 = 1` : sql`org_id = ${filter.orgId}`;
  const mustWait = filter.isWaiting === true;
  const from = mustWait ? WAITING : sql`deposits`;
  const isWaiting = mustWait ? sql`id = waiting_id` : sql`1 = 1`;
  return query.all(
    DepositRow,
    sql`select ${COLUMNS} from ${from} where ${isWaiting} and ${status} and ${org} and ${pageFrom(start)}`,
  );
}

/**
 * Each part has an index of the few deposits that it is about. SQLite reads the left side of a `cross join` first. So it does not search all
 * deposits in the order of the page.
 */
const WAITING: Sql = sql`(
    select distinct waiting_id from (
      select id as waiting_id from deposits where status = 'held_screening'
      union all select id from deposits where note is not null
      union all select deposit_id from deposit_transfers where booking = 'suspense') as reasons) as waiting
  cross join deposits`;

/** The number of deposits that wait for the operator, by reason. A deposit may have several reasons. */
export async function countWaiting(query: Query): Promise<Record<'held' | 'noted' | 'suspense', number>> {
  const count = async (from: Sql): Promise<number> =>
    (await query.one(countRow, sql`select count(*) as count from ${from}`))?.count ?? 0;
  return {
    held: await count(sql`deposits where status = 'held_screening'`),
    noted: await count(sql`deposits where note is not null`),
    suspense: await countInSuspense(query),
  };
}

const StatusCount = z.object({ status: text, count: int });

/** Deposits that are not decided, by status. */
export function countByStatus(query: Query): Promise<z.infer<typeof StatusCount>[]> {
  return query.all(
    StatusCount,
    sql`select status, count(*) as count from deposits where ${IS_UNDECIDED} group by status order by status`,
  );
}

export async function countUndecided(query: Query, orgId: string): Promise<number> {
  const row = await query.one(
    countRow,
    sql`select count(*) as count from deposits where org_id = ${orgId} and ${IS_UNDECIDED}`,
  );
  return row?.count ?? 0;
}

/** How many of the organisation's deposits since `sinceMs` have expired without a payment. */
export async function countExpired(query: Query, orgId: string, sinceMs: number): Promise<number> {
  const row = await query.one(
    countRow,
    sql`select count(*) as count from deposits where org_id = ${orgId} and created_ms > ${sinceMs} and status = 'expired'`,
  );
  return row?.count ?? 0;
}

export async function dueDeposits(query: Query, nowMs: number, limit: number): Promise<string[]> {
  const rows = await query.all(
    idRow,
    sql`select id from deposits where due_ms is not null and due_ms <= ${nowMs} order by due_ms, id limit ${limit}`,
  );
  return rows.map(({ id }) => id);
}

const WatchedRow = z.object({ id: text, address: text });

/** The deposits of the family whose addresses are still watched when the time of the chain is `chainMs`. */
export function watchedDeposits(query: Query, family: Family, chainMs: number): Promise<z.infer<typeof WatchedRow>[]> {
  return query.all(
    WatchedRow,
    sql`select id, address from deposits where family = ${family} and watched_until_ms >= ${chainMs} order by id`,
  );
}

/**
 * Called after a chain was read up to a new block. All deposits that may move on become due, except those that wait for a retry. `touched`
 * are the ids of deposits with new or changed transfers, which become due in any case.
 */
export async function wake(
  tx: Tx,
  { chain, finalMs, touched }: { chain: DepositChain; finalMs: number; touched: readonly string[] },
  nowMs: number,
): Promise<void> {
  await tx.run(
    sql`update deposits set due_ms = ${nowMs}
        where chain = ${chain} and ${IS_UNDECIDED} and due_ms is null
          and (status in ('detected', 'confirming') or (status = 'created' and expires_ms < ${finalMs}))`,
  );
  await inParts(touched, (ids) => tx.run(sql`update deposits set due_ms = ${nowMs} where id in (${join(ids)})`));
}

export async function setDue(tx: Tx, id: string, dueMs: number | null, note: string | null): Promise<void> {
  await tx.run(sql`update deposits set due_ms = ${dueMs}, note = ${note} where id = ${id}`);
}

export interface Patch {
  due_ms: number | null;
  tx_hash?: string | null;
  credited_units?: bigint;
  credited_cents?: number;
}

/** False if the deposit was in another status. */
export async function setStatus(
  tx: Tx,
  id: string,
  { from, to }: { from: DepositState; to: DepositState },
  patch: Patch,
): Promise<boolean> {
  const sets = Object.entries(patch).map(([column, value]) => sql`${PATCHED[column as keyof Patch]} = ${value}`);
  const changed = await tx.run(
    sql`update deposits set status = ${to}, note = null, ${join(sets)} where id = ${id} and status = ${from}`,
  );
  return changed === 1;
}

const PATCHED: Record<keyof Patch, Sql> = {
  due_ms: sql`due_ms`,
  tx_hash: sql`tx_hash`,
  credited_units: sql`credited_units`,
  credited_cents: sql`credited_cents`,
};
