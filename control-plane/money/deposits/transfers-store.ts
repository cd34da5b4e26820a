// The SQL of transfers that watchers have seen.
import { z } from 'zod';
import { DEPOSIT_ASSETS, DEPOSIT_CHAINS, type DepositChain } from '../../../shared/api/deposit.ts';
import { countRow, flag, int, text, ucents } from '../../base/db/columns.ts';
import { join, type Query, sql, type Tx } from '../../base/db/db.ts';
import type { FoundTransfer } from './reader.ts';

const TransferRow = z.object({
  id: text,
  deposit_id: text,
  chain: z.enum(DEPOSIT_CHAINS),
  tx_hash: text,
  log_index: int,
  block_number: int,
  block_hash: text,
  block_ms: int,
  from_address: text,
  asset: z.enum(DEPOSIT_ASSETS),
  units: ucents,
  status: z.enum(['seen', 'final', 'orphaned']),
  is_counted: flag,
  booking: z.enum(['wallet', 'suspense', 'returned']).nullable(),
});
export type Transfer = z.infer<typeof TransferRow>;
export type Booking = NonNullable<Transfer['booking']>;

const COLUMNS = sql`id, deposit_id, chain, tx_hash, log_index, block_number, block_hash, block_ms, from_address, asset, units, status, is_counted, booking`;

export function transfersOf(query: Query, depositId: string): Promise<Transfer[]> {
  return query.all(
    TransferRow,
    sql`select ${COLUMNS} from deposit_transfers where deposit_id = ${depositId} order by block_number, log_index, id`,
  );
}

/** The transfers of each of these deposits, in no order. */
export async function transfersByDeposit(
  query: Query,
  depositIds: readonly string[],
): Promise<ReadonlyMap<string, Transfer[]>> {
  if (depositIds.length === 0) return new Map();
  const rows = await query.all(
    TransferRow,
    sql`select ${COLUMNS} from deposit_transfers where deposit_id in (${join([...depositIds])})`,
  );
  return Map.groupBy(rows, (row) => row.deposit_id);
}

export interface NewTransfer {
  id: string;
  depositId: string;
  chain: DepositChain;
  found: FoundTransfer;
  isFinal: boolean;
}

/**
 * Stores a transfer as its block has it. Another block may have another transfer at the same place of the same transaction, and that may belong
 * to another deposit. A final transfer never changes again. Returns whether the row is new or has changed.
 */
export async function upsertTransfer(tx: Tx, { id, depositId, chain, found, isFinal }: NewTransfer): Promise<boolean> {
  const { txHash, logIndex, block, from, asset, units } = found;
  const status = isFinal ? 'final' : 'seen';
  const changed = await tx.run(
    sql`insert into deposit_transfers (${COLUMNS})
        values (${id}, ${depositId}, ${chain}, ${txHash}, ${logIndex}, ${block.number}, ${block.hash}, ${block.ms}, ${from}, ${asset}, ${units},
          ${status}, ${false}, null)
        on conflict (chain, tx_hash, log_index) do update set block_number = excluded.block_number, block_hash = excluded.block_hash,
          block_ms = excluded.block_ms, status = excluded.status, deposit_id = excluded.deposit_id,
          from_address = excluded.from_address, asset = excluded.asset, units = excluded.units
        where deposit_transfers.status <> 'final'
          and (deposit_transfers.status <> excluded.status or deposit_transfers.block_hash <> excluded.block_hash)`,
  );
  return changed === 1;
}

const OrphanRow = z.object({ deposit_id: text });

/** Marks transfers in these blocks as gone that were seen there before and are not final. Returns the ids of their deposits. */
export async function orphan(
  tx: Tx,
  chain: DepositChain,
  { above, upTo }: { above: number; upTo: number | null },
): Promise<string[]> {
  const isBelow = upTo === null ? sql`1 = 1` : sql`block_number <= ${upTo}`;
  const rows = await tx.all(
    OrphanRow,
    sql`update deposit_transfers set status = 'orphaned'
        where chain = ${chain} and status = 'seen' and block_number > ${above} and ${isBelow} returning deposit_id`,
  );
  return rows.map((row) => row.deposit_id);
}

/** The deposits that have transfers above the block, either in the books or not. */
export async function depositsAbove(
  query: Query,
  chain: DepositChain,
  above: number,
  which: 'booked' | 'unbooked',
): Promise<string[]> {
  const isBooked = which === 'booked' ? sql`booking is not null` : sql`booking is null and status <> 'orphaned'`;
  const rows = await query.all(
    OrphanRow,
    sql`select distinct deposit_id from deposit_transfers where chain = ${chain} and block_number > ${above} and ${isBooked}
        order by deposit_id`,
  );
  return rows.map((row) => row.deposit_id);
}

const UndoneRow = z.object({ block_ms: int });

/**
 * Marks all transfers above the block as gone, also final ones, unless they are in the books. They come back if the chain has them when it is
 * read again. The caller has locked their deposits.
 */
export function orphanUnbooked(tx: Tx, chain: DepositChain, above: number): Promise<z.infer<typeof UndoneRow>[]> {
  return tx.all(
    UndoneRow,
    sql`update deposit_transfers set status = 'orphaned', is_counted = 0
        where chain = ${chain} and block_number > ${above} and booking is null and status <> 'orphaned' returning block_ms`,
  );
}

/**
 * Number of ids in one statement, far below the limit for parameters of a statement. A stranger can send more tiny transfers to one deposit than that
 * limit allows.
 */
const IDS_PER_STATEMENT = 1_000;

/** Changes the rows of all ids, with some of them in each statement. Returns the number of changed rows. */
export async function inParts(ids: readonly string[], change: (part: string[]) => Promise<number>): Promise<number> {
  let changed = 0;
  for (let first = 0; first < ids.length; first += IDS_PER_STATEMENT)
    changed += await change(ids.slice(first, first + IDS_PER_STATEMENT));
  return changed;
}

export async function setCounted(tx: Tx, ids: readonly string[]): Promise<void> {
  await inParts(ids, (part) => tx.run(sql`update deposit_transfers set is_counted = 1 where id in (${join(part)})`));
}

/** Moves the transfers from one booking to another. Returns how many were in the booking `from`. */
export function setBooking(
  tx: Tx,
  ids: readonly string[],
  { from, to }: { from: Booking | null; to: Booking },
): Promise<number> {
  const before = from === null ? sql`booking is null` : sql`booking = ${from}`;
  return inParts(ids, (part) =>
    tx.run(sql`update deposit_transfers set booking = ${to} where id in (${join(part)}) and ${before}`),
  );
}

/** The number of deposits with transfers in suspense. */
export async function countInSuspense(query: Query): Promise<number> {
  const row = await query.one(
    countRow,
    sql`select count(distinct deposit_id) as count from deposit_transfers where booking = 'suspense'`,
  );
  return row?.count ?? 0;
}

const BookedRow = z.object({ chain: text, asset: text, booking: text, units: ucents });

/** The amounts of the booked transfers, by chain, asset and booking. */
export function bookedUnits(query: Query): Promise<z.infer<typeof BookedRow>[]> {
  return query.all(
    BookedRow,
    sql`select chain, asset, booking, cast(sum(units) as bigint) as units from deposit_transfers where booking is not null
        group by chain, asset, booking order by chain, asset, booking`,
  );
}

const ReceivedRow = z.object({
  chain: z.enum(DEPOSIT_CHAINS),
  asset: z.enum(DEPOSIT_ASSETS),
  position: int,
  address: text,
  units: ucents,
});
export type Received = z.infer<typeof ReceivedRow>;

/** The amounts of final transfers to each address after a position. */
export function receivedAfter(
  query: Query,
  chain: DepositChain,
  afterPosition: number,
  limit: number,
): Promise<Received[]> {
  return query.all(
    ReceivedRow,
    sql`select t.chain, t.asset, d.position, d.address, cast(sum(t.units) as bigint) as units
        from deposit_transfers t join deposits d on d.id = t.deposit_id
        where t.chain = ${chain} and t.status = 'final' and d.position > ${afterPosition}
          and d.position <= (select coalesce(max(position), -1) from (
            select distinct d2.position from deposit_transfers t2 join deposits d2 on d2.id = t2.deposit_id
            where t2.chain = ${chain} and t2.status = 'final' and d2.position > ${afterPosition} order by d2.position limit ${limit}) as page)
        group by t.chain, t.asset, d.position, d.address order by d.position, t.asset`,
  );
}
