// Copies the rows of a SQLite file into PostgreSQL, so that a service which has outgrown SQLite can move.
//
// Both databases have the same schema, because SQL is written once (`portable` in migrate.ts), so a row of the one is a row of the other. The order
// of the tables follows their foreign keys. What belongs to a database itself is not copied: its lease and its list of applied migrations.
import Database from 'better-sqlite3';
import { z } from 'zod';
import { int, text } from './columns.ts';
import { join, raw, type Sql, sql, type Tx } from './db.ts';

/** The tables that each database has for itself. */
const OWN: ReadonlySet<string> = new Set(['schema_migrations', 'leases', 'commit_probes']);
/** A statement of PostgreSQL has at most 65,535 parameters. */
const VALUES_MAX = 10_000;
/** A row may have hundreds of KiB, and the rows of a statement are in memory several times. */
const CHARS_MAX = 1024 * 1024;

const FirstRow = z.object({ first: int });

/** A target that has rows already. */
export class NotEmpty extends Error {}

/**
 * Copies all rows of the SQLite file at `path`, which nobody else uses, in the caller's transaction on PostgreSQL. The schema of both must be the
 * newest. Returns the number of rows. @throws NotEmpty if the target has rows
 */
export async function copyRows(path: string, tx: Tx): Promise<number> {
  const source = new Database(path, { readonly: true, fileMustExist: true });
  source.defaultSafeIntegers(true);
  try {
    const tables = tablesOf(source);
    await refuseRows(tx, tables);
    let rows = 0;
    for (const table of tables) rows += await copyTable(source, table, tx);
    return rows;
  } finally {
    source.close();
  }
}

/** The names of the tables. A table comes after those that its foreign keys name. */
function tablesOf(source: Database.Database): string[] {
  const all = source.prepare(`select name from sqlite_schema where type = 'table' order by name`).pluck().all();
  const ordered = new Set<string>();
  const add = (name: string): void => {
    if (ordered.has(name)) return;
    const others = z
      .array(text)
      .parse(source.prepare('select "table" from pragma_foreign_key_list(?)').pluck().all(name));
    for (const other of others) if (other !== name) add(other);
    ordered.add(name);
  };
  for (const name of z.array(text).parse(all)) if (!OWN.has(name)) add(name);
  return [...ordered];
}

async function refuseRows(tx: Tx, tables: readonly string[]): Promise<void> {
  for (const table of tables) {
    const row = await tx.one(FirstRow, sql`select 1 as first from ${raw(table)} limit 1`);
    if (row !== undefined) throw new NotEmpty(`the table ${table} has rows already`);
  }
}

async function copyTable(source: Database.Database, table: string, tx: Tx): Promise<number> {
  const columns = z.array(text).parse(source.prepare('select name from pragma_table_info(?)').pluck().all(table));
  const rowsMax = Math.floor(VALUES_MAX / columns.length);
  const insert = (rows: readonly Sql[]): Promise<number> =>
    tx.run(sql`insert into ${raw(table)} (${raw(columns.join(', '))}) values ${join(rows)}`);
  let copied = 0;
  let chars = 0;
  let waiting: Sql[] = [];
  const select = source.prepare(`select ${columns.join(', ')} from ${table}`).raw();
  for (const row of select.iterate()) {
    const values = z.array(z.unknown()).parse(row);
    waiting.push(sql`(${join(values)})`);
    for (const value of values) chars += typeof value === 'string' ? value.length : 0;
    if (waiting.length < rowsMax && chars < CHARS_MAX) continue;
    copied += await insert(waiting);
    waiting = [];
    chars = 0;
  }
  return waiting.length === 0 ? copied : copied + (await insert(waiting));
}
