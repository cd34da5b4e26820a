// Migrations: each room has its own numbered SQL files. Each file is applied once, in one transaction, and is never edited afterwards.
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { codeOf } from '../../../shared/errors.ts';
import type { Log } from '../../../shared/log.ts';
import { type Db, DbError, raw, sql } from './db.ts';
import { text } from './columns.ts';
import { LEASES_TABLE } from './lease.ts';

/** A room's migrations, in the order of the house. */
export interface RoomMigrations {
  room: string;
  /** Directory with files `NNNN-name.sql`. */
  directory: URL;
}

const FILE_NAME = /^\d{4}-[a-z0-9-]+\.sql$/;
const AppliedRow = z.object({ room: text, name: text, checksum: text });

const MIGRATIONS_TABLE =
  'create table if not exists schema_migrations (room TEXT not null, name TEXT not null, checksum TEXT not null, applied_ms INTEGER not null, primary key (room, name)) STRICT';

/** Error codes of PostgreSQL for a table, its type or its row in the catalogue that another process has just created. */
const CREATED_CODES = new Set(['42P07', '42710', '23505']);

/** Creates the tables that are needed before a process may change the schema. Safe while a control plane runs, and while another one starts. */
export async function prepareDatabase(db: Db): Promise<void> {
  const create = (): Promise<void> =>
    db.tx('migrations.prepare', async (tx) => {
      for (const table of [MIGRATIONS_TABLE, LEASES_TABLE]) await tx.run(raw(portable(table, db.dialect)));
    });
  await create().catch((error: unknown) => {
    // On PostgreSQL, `if not exists` does not see a table that another process creates at the same time. The second try sees it.
    if (!CREATED_CODES.has(codeOf(error) ?? '')) throw error;
    return create();
  });
}

/**
 * Brings the database to the newest schema. Refuses a database whose applied files differ from ours or belong to a newer version, because
 * an older program could write wrong data there. Logs each file that changes a database in use, because a large table takes minutes.
 * @throws DbError `migration`
 */
export async function migrate(
  db: Db,
  rooms: RoomMigrations[],
  deps: { clock: Clock; log?: Pick<Log, 'info'> },
): Promise<void> {
  await prepareDatabase(db);
  const { applied, pending } = await compare(db, rooms);
  for (const { file, source, checksum } of pending) {
    if (applied > 0) deps.log?.info({ migration: nameOf(file) }, 'the database is being upgraded');
    await db.tx(`migrations.${file.room}.${file.name}`, async (tx) => {
      for (const statement of splitStatements(portable(source, db.dialect))) await tx.run(raw(statement));
      const appliedMs = deps.clock.now();
      await tx.run(
        sql`insert into schema_migrations (room, name, checksum, applied_ms) values (${file.room}, ${file.name}, ${checksum}, ${appliedMs})`,
      );
    });
  }
}

/** Whether the database has our schema: nothing is left to apply, and nothing is there that we do not know. It must have been prepared. */
export async function isCurrent(db: Pick<Db, 'read'>, rooms: RoomMigrations[]): Promise<boolean> {
  try {
    return (await compare(db, rooms)).pending.length === 0;
  } catch (error) {
    if (error instanceof DbError && error.code === 'migration') return false;
    throw error;
  }
}

/**
 * Nothing is changed. The database must have been prepared.
 * @throws DbError `migration` if our files cannot bring the database to our schema, because a newer version has changed it
 */
export async function assertMigratable(db: Pick<Db, 'read'>, rooms: RoomMigrations[]): Promise<void> {
  await compare(db, rooms);
}

interface File {
  room: string;
  directory: URL;
  name: string;
}

interface Comparison {
  /** Number of files that were applied before. */
  applied: number;
  pending: { file: File; source: string; checksum: string }[];
}

/** @throws DbError `migration` if the database is not one that our files can bring to the newest schema */
async function compare(db: Pick<Db, 'read'>, rooms: RoomMigrations[]): Promise<Comparison> {
  const applied = await db.read.all(AppliedRow, sql`select room, name, checksum from schema_migrations`);
  const checksums = new Map(applied.map((row) => [nameOf(row), row.checksum]));
  const files = rooms.flatMap(({ room, directory }) =>
    readdirSync(directory)
      .toSorted()
      .map((name): File => ({ room, directory, name })),
  );
  assertKnown([...checksums.keys()], files);
  const pending = files.flatMap((file) => {
    if (!FILE_NAME.test(file.name))
      throw new DbError('migration', `${file.room}: ${file.name} is not named NNNN-name.sql`);
    const source = readFileSync(new URL(file.name, file.directory), 'utf8');
    const checksum = createHash('sha256').update(source).digest('hex');
    const known = checksums.get(nameOf(file));
    if (known === checksum) return [];
    if (known !== undefined) throw new DbError('migration', `${nameOf(file)} was edited after it had been applied`);
    return [{ file, source, checksum }];
  });
  return { applied: applied.length, pending };
}

function nameOf({ room, name }: Pick<File, 'room' | 'name'>): string {
  return `${room}/${name}`;
}

function assertKnown(applied: readonly string[], files: readonly File[]): void {
  const ours = new Set(files.map(nameOf));
  const unknown = applied.filter((name) => !ours.has(name));
  if (unknown.length === 0) return;
  throw new DbError(
    'migration',
    `a newer version has changed this database (${unknown.join(', ')}): start that version again, or restore a backup from before it`,
  );
}

/**
 * Our SQL is written once, in the SQLite dialect. For PostgreSQL, INTEGER becomes `bigint`, BLOB becomes `bytea`, text sorts by bytes (so
 * that keyset cursors sort the same), and STRICT and WITHOUT ROWID are removed. Blocks between `-- only sqlite` or `-- only postgres` and
 * `-- end` are for one engine.
 */
export function portable(source: string, dialect: Db['dialect']): string {
  const other = dialect === 'sqlite' ? 'postgres' : 'sqlite';
  const own = source.replaceAll(new RegExp(`^-- only ${other}$[\\s\\S]*?^-- end$`, 'gm'), '');
  if (dialect === 'sqlite') return own;
  return own
    .replaceAll(/\bINTEGER\b/g, 'bigint')
    .replaceAll(/\bBLOB\b/g, 'bytea')
    .replaceAll(/\bTEXT\b/g, 'text COLLATE "C"')
    .replaceAll(/\)\s*STRICT\b(, WITHOUT ROWID)?/g, ')');
}

/** A statement ends with `;` at the end of an unindented line. The inner lines of a trigger are indented, so they do not count. */
function splitStatements(source: string): string[] {
  return source
    .replaceAll(/^--.*$/gm, '')
    .split(/(?<=^\S.*);$/m)
    .map((statement) => statement.trim())
    .filter((statement) => statement !== '');
}
