// Opens the database that a store test runs on: SQLite in memory, or a fresh PostgreSQL database if the lane provides a server.
import { Client } from 'pg';
import { inject } from 'vitest';
import { z } from 'zod';
import { openPostgres } from '../../control-plane/base/db/postgres.ts';
import { text } from '../../control-plane/base/db/columns.ts';
import { openBodies } from '../../control-plane/base/db/bodies.ts';
import { type Db, sql, type Tx } from '../../control-plane/base/db/db.ts';
import { migrate, type RoomMigrations } from '../../control-plane/base/db/migrate.ts';
import { openSqlite } from '../../control-plane/base/db/sqlite.ts';
import { type Clock, systemClock } from '../../shared/clock.ts';
import { createLog } from '../../shared/log.ts';
import { systemRng } from '../../shared/rng.ts';
import { checkLocks } from './locked-bodies.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** Administrator URL of the lane's PostgreSQL server; absent in the SQLite lanes. */
    postgresUrl: string | undefined;
  }
}

/**
 * Databases of this test file that a test has closed, emptied, by their rooms: making one takes longer than most tests. They go with
 * the lane's server.
 */
const emptied = new Map<RoomMigrations[], string[]>();

/** A migrated, empty database. */
export async function openTestDb(rooms: RoomMigrations[], clock: Clock = systemClock()): Promise<Db> {
  const serverUrl = inject('postgresUrl');
  if (serverUrl !== undefined) return openOnPostgres(serverUrl, rooms);
  const db = openSqlite(':memory:', { clock });
  await migrate(db, rooms, { clock });
  return checkLocks(db);
}

/** Its retries wait on real time, whatever clock the rooms have. */
async function openOnPostgres(serverUrl: string, rooms: RoomMigrations[]): Promise<Db> {
  const [clock, rng] = [systemClock(), systemRng()];
  const url = emptied.get(rooms)?.pop() ?? (await createDatabase(serverUrl));
  const open = (): Db => openPostgres(url, { clock, rng, log: createLog('test', 'silent') });
  const db = inTurns(open(), open());
  await migrate(db, rooms, { clock });
  const tables = await tablesOf(db);
  return {
    ...checkLocks(db),
    close: async () => {
      const left = await tablesOf(db);
      await db.close();
      // A test that has made or dropped a table leaves nothing that another could begin with.
      if (left.join() !== tables.join()) return;
      await asAdministrator(url, emptying(tables));
      emptied.set(rooms, [...(emptied.get(rooms) ?? []), url]);
    },
  };
}

/** Two processes on one database: each call goes to the other one. What only one of them would know is then missing half of the time. */
function inTurns(first: Db, second: Db): Db {
  // Either database alone would not notice a body that uses the other one.
  const bodies = openBodies();
  let calls = 0;
  const next = (): Db => ((calls += 1) % 2 === 0 ? first : second);
  return {
    dialect: first.dialect,
    read: bodies.outside({
      all: async (row, statement) => next().read.all(row, statement),
      one: async (row, statement) => next().read.one(row, statement),
    }),
    tx: async <T>(name: string, body: (tx: Tx) => Promise<T>) => {
      const { run } = bodies.make(name, body);
      return (await next().tx(name, run)) as T;
    },
    hot: async (body) => next().hot(body),
    snapshot: async (name, body) => next().snapshot(name, body),
    close: async () => {
      await first.close();
      await second.close();
    },
  };
}

/** All but the record of migrations. */
async function tablesOf(db: Db): Promise<string[]> {
  const rows = await db.read.all(
    z.object({ tablename: text }),
    sql`select tablename from pg_tables where schemaname = 'public' and tablename <> 'schema_migrations' order by tablename`,
  );
  return rows.map((row) => row.tablename);
}

/**
 * Deletes the rows of all tables, in one transaction. Most tables are empty, and `truncate` makes new files even for those: it took most
 * of the time of a test. A replica checks no reference and fires no trigger.
 */
function emptying(tables: readonly string[]): string {
  return ['set session_replication_role = replica', ...tables.map((table) => `delete from ${table}`)].join(';');
}

export async function createDatabase(serverUrl: string): Promise<string> {
  const name = `test_${Buffer.from(systemRng().bytes(8)).toString('hex')}`;
  await asAdministrator(serverUrl, `create database ${name}`);
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  return url.toString();
}

async function asAdministrator(serverUrl: string, statement: string): Promise<void> {
  const client = new Client({ connectionString: serverUrl });
  await client.connect();
  await client.query(statement);
  await client.end();
}
