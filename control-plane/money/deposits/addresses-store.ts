// The SQL of addresses: addresses of deposits, free addresses that wait for a deposit, and sanctioned addresses.
import { z } from 'zod';
import { countRow, int, text } from '../../base/db/columns.ts';
import { join, type Query, sql, type Tx } from '../../base/db/db.ts';
import type { Family } from './chains.ts';

const AddressRow = z.object({
  family: text,
  position: int,
  address: text,
  key_fingerprint: text.nullable(),
  deposit_id: text.nullable(),
  created_ms: int,
});
export type AddressRow = z.infer<typeof AddressRow>;

const COLUMNS = sql`family, position, address, key_fingerprint, deposit_id, created_ms`;
/** Number of rows in one statement, far below the limit for parameters of a statement. */
const PIECE = 1_000;

/** The `deposit_id` of a retired address, which no deposit may get. No deposit has this id. */
const RETIRED = 'retired';

const PositionRow = z.object({ next_position: int });

/** Reserves the next `count` positions of the family and returns the first of them. */
export async function takePositions(tx: Tx, family: Family, count: number): Promise<number> {
  const row = await tx.one(
    PositionRow,
    sql`insert into deposit_families (id, next_position) values (${family}, ${count})
        on conflict (id) do update set next_position = deposit_families.next_position + ${count} returning next_position`,
  );
  if (row === undefined) throw new Error(`the family ${family} has no row`);
  return row.next_position - count;
}

export async function insertAddress(tx: Tx, row: AddressRow): Promise<void> {
  await tx.run(
    sql`insert into deposit_addresses (${COLUMNS})
        values (${row.family}, ${row.position}, ${row.address}, ${row.key_fingerprint}, ${row.deposit_id}, ${row.created_ms})`,
  );
}

const FreeRow = z.object({ position: int, address: text });

/** Gives the deposit the first free address of the family; undefined if none is free. The caller holds the lock of the family. */
export async function takeFreeAddress(
  tx: Tx,
  family: Family,
  depositId: string,
): Promise<z.infer<typeof FreeRow> | undefined> {
  return tx.one(
    FreeRow,
    sql`update deposit_addresses set deposit_id = ${depositId}
        where family = ${family} and deposit_id is null and position = (
          select min(position) from deposit_addresses where family = ${family} and deposit_id is null)
        returning position, address`,
  );
}

/** Retires all free addresses of the family, so that no deposit gets them. Returns their number. */
export function retireFree(tx: Tx, family: Family): Promise<number> {
  return tx.run(
    sql`update deposit_addresses set deposit_id = ${RETIRED} where family = ${family} and deposit_id is null`,
  );
}

const FoundRow = z.object({ address: text });

/** Returns those of the addresses that are already stored. */
export async function knownAddresses(query: Query, family: Family, addresses: readonly string[]): Promise<Set<string>> {
  const known = new Set<string>();
  for (let first = 0; first < addresses.length; first += PIECE) {
    const part = addresses.slice(first, first + PIECE);
    const rows = await query.all(
      FoundRow,
      sql`select address from deposit_addresses where family = ${family} and address in (${join([...part])})`,
    );
    for (const { address } of rows) known.add(address);
  }
  return known;
}

/** Stores imported addresses, which wait for deposits. */
export async function insertAddresses(
  tx: Tx,
  family: Family,
  addresses: readonly string[],
  { position, nowMs }: { position: number; nowMs: number },
): Promise<void> {
  for (let first = 0; first < addresses.length; first += PIECE) {
    const rows = addresses
      .slice(first, first + PIECE)
      .map((address, i) => sql`(${family}, ${position + first + i}, ${address}, ${null}, ${null}, ${nowMs})`);
    await tx.run(sql`insert into deposit_addresses (${COLUMNS}) values ${join(rows)}`);
  }
}

const PoolRow = z.object({ family: text, free: int, total: int });

/** The imported addresses of each family, and how many of them wait. */
export function addressPools(query: Query): Promise<z.infer<typeof PoolRow>[]> {
  return query.all(
    PoolRow,
    sql`select family, cast(sum(case when deposit_id is null then 1 else 0 end) as bigint) as free, count(*) as total
        from deposit_addresses where key_fingerprint is null group by family order by family`,
  );
}

/** A page of addresses after a position. */
export function addressesAfter(
  query: Query,
  family: Family,
  afterPosition: number,
  limit: number,
): Promise<AddressRow[]> {
  return query.all(
    AddressRow,
    sql`select ${COLUMNS} from deposit_addresses where family = ${family} and position > ${afterPosition} order by position limit ${limit}`,
  );
}

/** Adds addresses to the list of senders from which no tokens are accepted. Returns the number of new ones. */
export async function addSanctioned(
  tx: Tx,
  addresses: readonly string[],
  source: string,
  nowMs: number,
): Promise<number> {
  const rows = addresses.map((address) => sql`(${address}, ${source}, ${nowMs})`);
  return tx.run(
    sql`insert into deposit_sanctioned (address, source, created_ms) values ${join(rows)} on conflict (address) do nothing`,
  );
}

const SanctionedRow = z.object({ address: text, source: text });

export function findSanctioned(query: Query, address: string): Promise<z.infer<typeof SanctionedRow> | undefined> {
  return query.one(SanctionedRow, sql`select address, source from deposit_sanctioned where address = ${address}`);
}

export async function countSanctioned(query: Query): Promise<number> {
  const row = await query.one(countRow, sql`select count(*) as count from deposit_sanctioned`);
  return row?.count ?? 0;
}
