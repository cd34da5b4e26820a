// A long history in an instant, on PostgreSQL: copies of every row that a test has made in the ordinary way, and how many rows a statement reads.
import { z } from 'zod';
import { text } from '../../control-plane/base/db/columns.ts';
import { type Db, raw, type Sql, sql, type Tx } from '../../control-plane/base/db/db.ts';
import { type RecordingDb, recordingDb } from './recording-db.ts';
import type { WorldOutside } from './world.ts';
import { textOf } from './sql-text.ts';

const columnRow = z.object({ table: text, column: text, type: text, is_key: z.boolean() });
type Column = z.infer<typeof columnRow>;

/**
 * A copy differs from its original in one column of each unique index: a number if there is one, else the last column. A table whose `id` is
 * bound to a value has one row for ever. A machine gets no more GPUs with time.
 */
const COLUMNS = sql`
  with keys as (
    select distinct on (i.indexrelid) i.indrelid, a.attname
    from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey)
    where i.indisunique
    order by i.indexrelid, a.atttypid = 'text'::regtype, array_position(i.indkey::int2[], a.attnum) desc)
  select c.table_name as table, c.column_name as column, c.data_type as type,
    exists (select from keys where indrelid = c.table_name::regclass and attname = c.column_name) as is_key
  from information_schema.columns c
  where c.table_schema = 'public' and c.table_name not in ('schema_migrations', 'machine_gpus')
    and not exists (select from pg_constraint where conrelid = c.table_name::regclass and conname = c.table_name || '_id_check')
  order by c.table_name, c.ordinal_position`;

/** The first rows of a table by its keys are copied; others are of the same kind. The first ids are the oldest. */
const ORIGINALS = 3;

/**
 * `count` copies of each of the first rows of all tables. A copy belongs to the same organisation, supplier, machine and instance as its original:
 * the longest history that one of these can have. It is older than its original by its number in seconds, and nothing is due for it.
 */
export async function copyEverything(db: Db, count: number): Promise<void> {
  const tables = Map.groupBy(await db.read.all(columnRow, COLUMNS), ({ table }) => table);
  await db.tx('test.copies', async (tx) => {
    // What a copy refers to is the original's.
    await tx.run(sql`set local session_replication_role = replica`);
    await tx.run(COPIED_ID);
    for (const [table, columns] of tables) await copyTable(tx, { table, columns, count });
  });
  await analyze(db);
}

/** Makes the server count the rows of all tables anew, so that it plans for what a test has added. */
export async function analyze(db: Db): Promise<void> {
  await db.tx('test.analyze', async (tx) => {
    // The automatic vacuum may follow the same tables. It gives way to whoever has waited this long, which is a second by default: for each table.
    await tx.run(sql`set local deadlock_timeout = '5ms'`);
    await tx.run(sql`analyze`);
  });
}

/** The id of a copy has the form of the original's: a UUID, or a text of any length. */
const COPIED_ID = sql`
  create or replace function pg_temp.copied_id(original text, copy int) returns text immutable language sql as $$
    select case when original ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7'
      then overlay(md5(original || copy)::uuid::text placing substr(original, 15, 6) from 15 for 6)
      else original || '-' || copy end
  $$`;

async function copyTable(
  tx: Tx,
  { table, columns, count }: { table: string; columns: Column[]; count: number },
): Promise<void> {
  const names = columns.map(({ column }) => column).join(', ');
  const values = columns.map(copied).join(', ');
  const keys = columns.filter(({ is_key }) => is_key).map(({ column }) => column);
  const originals = sql`select * from ${raw(table)} order by ${raw(keys.join(', '))} limit ${raw(String(ORIGINALS))}`;
  await tx.run(sql`insert into ${raw(table)} (${raw(names)}) select ${raw(values)}
    from (${originals}) as original, generate_series(1, ${raw(String(count))}) as numbers (copy)
    on conflict do nothing`);
}

/** The expression of a column in a copy, by its number. */
function copied({ column, type, is_key }: Column): string {
  if (/^(due|next_attempt)_ms$/.test(column)) return 'null';
  if (/^(created|opened|posted)_ms$/.test(column)) return `${column} - 1000 * copy`;
  if (!is_key) return column;
  return type === 'text' ? `pg_temp.copied_id(${column}, copy)` : `${column} - copy`;
}

/** Runs something, and answers how many rows its statements read, also those that they drop again. */
export type Reading = <T>(run: () => Promise<T>) => Promise<{ rows: number; answer: T; costly: string[] }>;

/** A statement that reads more rows is named in `costly`. */
const COSTLY_ROWS = 40;

/** `processOn` is for the world whose statements are counted. */
export function readingOver(): { processOn: NonNullable<WorldOutside['processOn']>; reading: Reading } {
  let recording: RecordingDb;
  let real: Db;
  return {
    processOn: ({ db, clock }) => {
      real = db;
      recording = recordingDb(db);
      return { db: recording.db, clock };
    },
    reading: async (run) => {
      recording.sent.length = 0;
      const answer = await run();
      const costly: string[] = [];
      let rows = 0;
      for (const statement of recording.sent) {
        const own = await rowsRead(real, statement);
        rows += own;
        if (own > COSTLY_ROWS) costly.push(`${own} rows: ${textOf(statement).replaceAll(/\s+/g, ' ')}`);
      }
      return { rows, answer, costly };
    },
  };
}

const planRow = z.object({ 'QUERY PLAN': z.array(z.object({ Plan: z.looseObject({}) })) });

interface Node {
  'Relation Name'?: string;
  'Actual Rows': number;
  'Actual Loops': number;
  'Rows Removed by Filter'?: number;
  'Rows Removed by Index Recheck'?: number;
  Plans?: Node[];
}

class RolledBack extends Error {}

/** Executes the statement, and leaves nothing behind. No table is read from end to end if another way exists, however small the table is. */
async function rowsRead(db: Db, statement: Sql): Promise<number> {
  let rows = 0;
  const body = async (tx: Tx): Promise<void> => {
    await tx.run(sql`set local enable_seqscan = off`);
    const [answer] = await tx.all(planRow, sql`explain (analyze, timing off, format json) ${statement}`);
    for (const { Plan } of answer?.['QUERY PLAN'] ?? []) rows += readBy(Plan as unknown as Node);
    throw new RolledBack();
  };
  await db.tx('test.explain', body).catch((error: unknown) => {
    if (!(error instanceof RolledBack)) throw error;
  });
  return rows;
}

function readBy(node: Node): number {
  const dropped = (node['Rows Removed by Filter'] ?? 0) + (node['Rows Removed by Index Recheck'] ?? 0);
  const own = node['Relation Name'] === undefined ? 0 : (node['Actual Rows'] + dropped) * node['Actual Loops'];
  return own + (node.Plans ?? []).reduce((sum, plan) => sum + readBy(plan), 0);
}
