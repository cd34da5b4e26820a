// Opens the database that a store test runs on: SQLite in memory, or a fresh PostgreSQL database if the lane provides a server.
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
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

/** A database of the lane's server that is open: by two processes, and by an administrator who empties it. */
interface Opened {
  db: Db;
  administrator: Client;
  /** All but the record of migrations. */
  tables: readonly string[];
}

/**
 * Open databases of this worker that no test uses, emptied, by their rooms. Making one, and opening its connections, takes longer than most
 * tests. They go with the lane's server.
 */
const idle = new Map<string, Opened[]>();

/** The bytes of a SQLite file after its migrations, by its rooms. */
const migratedBytes = new Map<string, Promise<Buffer>>();

const keyOf = (rooms: RoomMigrations[]): string => rooms.map(({ directory }) => directory.href).join();

/** A migrated, empty database. */
export async function openTestDb(rooms: RoomMigrations[], clock: Clock = systemClock()): Promise<Db> {
  const serverUrl = inject('postgresUrl');
  if (serverUrl !== undefined) return openOnPostgres(serverUrl, rooms);
  const key = keyOf(rooms);
  const migrated = migratedBytes.get(key) ?? newMigratedBytes(rooms);
  migratedBytes.set(key, migrated);
  return checkLocks(openSqlite(await migrated, { clock }));
}

/** The migrations take longer than most tests, so they run in a file once. */
async function newMigratedBytes(rooms: RoomMigrations[]): Promise<Buffer> {
  const dir = mkdtempSync(join(tmpdir(), 'migrated-'));
  const path = join(dir, 'a.db');
  const clock = systemClock();
  const db = openSqlite(path, { clock });
  await migrate(db, rooms, { clock });
  await db.close();
  const file = new Database(path);
  // A copy in memory cannot have a write-ahead log.
  file.pragma('journal_mode = DELETE');
  const bytes = file.serialize();
  file.close();
  rmSync(dir, { recursive: true });
  return bytes;
}

async function openOnPostgres(serverUrl: string, rooms: RoomMigrations[]): Promise<Db> {
  const key = keyOf(rooms);
  const opened = idle.get(key)?.pop() ?? (await openNew(serverUrl, rooms));
  const use = usable(checkLocks(opened.db));
  return {
    ...use.db,
    close: async () => {
      await use.end();
      // A test that has made or dropped a table leaves nothing that another could begin with.
      if ((await tablesOf(opened.db)).join() !== opened.tables.join()) {
        await Promise.all([opened.db.close(), opened.administrator.end()]);
        return;
      }
      await opened.administrator.query('select pg_temp.empty_tables()');
      idle.set(key, [...(idle.get(key) ?? []), opened]);
    },
  };
}

/** Its retries wait on real time, whatever clock the rooms have. */
async function openNew(serverUrl: string, rooms: RoomMigrations[]): Promise<Opened> {
  const url = await createDatabase(serverUrl, await templateFor(serverUrl, rooms));
  const db = inTurns(openUrl(url), openUrl(url));
  const administrator = new Client({ connectionString: url });
  // The server ends before this connection does.
  administrator.on('error', () => undefined);
  await administrator.connect();
  const tables = await tablesOf(db);
  await administrator.query(emptying(tables));
  return { db, administrator, tables };
}

const openUrl = (url: string): Db =>
  openPostgres(url, { clock: systemClock(), rng: systemRng(), log: createLog('test', 'silent') });

/**
 * The name of a migrated database that nobody is connected to. All workers of the lane copy it: a copy takes a fifth of the time of the
 * migrations.
 */
async function templateFor(serverUrl: string, rooms: RoomMigrations[]): Promise<string> {
  const key = keyOf(rooms);
  const name = `migrated_${createHash('sha256').update(key).digest('hex').slice(0, 16)}`;
  await asAdministrator(serverUrl, async (administrator) => {
    // The lock ends with the connection. Workers that need the same template wait for the one that makes it.
    await administrator.query('select pg_advisory_lock(hashtext($1))', [key]);
    const found = await administrator.query('select 1 from pg_database where datname = $1', [name]);
    if (found.rowCount === 1) return;
    const url = new URL(await createDatabase(serverUrl));
    const db = openUrl(url.toString());
    await migrate(db, rooms, { clock: systemClock() });
    await db.close();
    // It gets its name last, so no worker copies a database whose migrations have failed.
    await administrator.query(`alter database ${url.pathname.slice(1)} rename to ${name}`);
  });
  return name;
}

/** The same database for one test. `end` waits for all that the test has begun, and refuses what it begins later. */
function usable(db: Db): { db: Db; end(): Promise<void> } {
  const begun = new Set<Promise<unknown>>();
  let isOver = false;
  const counted = async <T>(work: () => Promise<T>): Promise<T> => {
    if (isOver) throw new Error('the database is closed');
    const result = work();
    begun.add(result);
    try {
      return await result;
    } finally {
      begun.delete(result);
    }
  };
  return {
    db: {
      dialect: db.dialect,
      read: {
        all: (row, statement) => counted(() => db.read.all(row, statement)),
        one: (row, statement) => counted(() => db.read.one(row, statement)),
      },
      tx: (name, body) => counted(() => db.tx(name, body)),
      hot: (body) => counted(() => db.hot(body)),
      snapshot: (name, body) => counted(() => db.snapshot(name, body)),
      close: () => db.close(),
    },
    end: async () => {
      isOver = true;
      while (begun.size > 0) await Promise.allSettled(begun);
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

async function tablesOf(db: Db): Promise<string[]> {
  const rows = await db.read.all(
    z.object({ tablename: text }),
    sql`select tablename from pg_tables where schemaname = 'public' and tablename <> 'schema_migrations' order by tablename`,
  );
  return rows.map((row) => row.tablename);
}

/** Deleted rows stay in their pages. Reads of a table that is not larger take no longer because of them. */
const PAGES_BYTES_MAX = 64 * 1024;

/**
 * Makes the function that deletes the rows of all tables, in one transaction. Most tables are empty, and `truncate` makes new files even for
 * those: it took most of the time of a test. Only a large table is truncated, because each test after it would read the pages of its deleted rows:
 * some took ten times as long. A function plans its statements once. A replica checks no reference and fires no trigger.
 */
function emptying(tables: readonly string[]): string {
  const empty = (table: string): string =>
    `delete from ${table}; if pg_relation_size('${table}') > ${PAGES_BYTES_MAX} then truncate ${table} cascade; end if;`;
  const body = tables.map(empty).join(' ');
  return [
    'set session_replication_role = replica',
    `create function pg_temp.empty_tables() returns void language plpgsql as $$ begin ${body} end $$`,
  ].join(';');
}

/** An empty database, or a copy of `template`. Returns its URL. */
export async function createDatabase(serverUrl: string, template = 'template1'): Promise<string> {
  const name = `test_${Buffer.from(systemRng().bytes(8)).toString('hex')}`;
  await asAdministrator(serverUrl, (administrator) =>
    administrator.query(`create database ${name} template ${template}`),
  );
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  return url.toString();
}

async function asAdministrator(serverUrl: string, work: (administrator: Client) => Promise<unknown>): Promise<void> {
  const client = new Client({ connectionString: serverUrl });
  await client.connect();
  try {
    await work(client);
  } finally {
    await client.end();
  }
}
