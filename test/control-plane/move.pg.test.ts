// A service moves from SQLite to PostgreSQL: the backup of the one is restored into an empty database of the other.
import { copyFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { Client } from 'pg';
import { afterEach, beforeEach, expect, inject, test } from 'vitest';
import { z } from 'zod';
import { backup, restore } from '../../control-plane/backup.ts';
import { writeRow } from '../../control-plane/base/db/readiness.ts';
import { openSealing } from '../../control-plane/base/http/sealing.ts';
import { type Config, readConfig } from '../../control-plane/config.ts';
import { openFoundation } from '../../control-plane/foundation.ts';
import { openHouse } from '../../control-plane/house.ts';
import { type Clock, systemClock } from '../../shared/clock.ts';
import { createIds, type Ids } from '../../shared/ids.ts';
import { createLog, type Log } from '../../shared/log.ts';
import { type Rng, systemRng } from '../../shared/rng.ts';
import { createDatabase } from '../bench/database.ts';
import { virtualClock } from '../kit/virtual-clock.ts';

const log = createLog('test', 'silent');
/** Each database has these for itself. */
const OWN = ['commit_probes', 'leases', 'schema_migrations'];
/** Far more than one statement has. */
const MANY = 11_000;
const LARGEST = 2n ** 63n - 1n;

let databases = 0;
let dir: string;
/** The same service, on SQLite and on PostgreSQL. */
let before: Config;
let after: Config;
let url: string;
const at = (name: string): string => join(dir, name);

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'move-'));
  databases += 1;
  const serverUrl = inject('postgresUrl') ?? '';
  url = await createDatabase(serverUrl, `move_${process.pid}_${databases}`);
  before = configOf({ sqlite: at('a.db') });
  after = configOf({ postgres: url });
});
afterEach(() => rmSync(dir, { recursive: true }));

function configOf(database: object): Config {
  const file = at('config.yaml');
  const paths = { secret_file: at('secret'), admin_socket: at('admin.sock') };
  writeFileSync(file, JSON.stringify({ database, ...paths }));
  return readConfig(file);
}

async function startOnce(config: Config): Promise<void> {
  const house = await openHouse(config, log);
  await house.start();
  await house.close();
}

/** A service that was at work on SQLite, with rows that are hard to copy, and its backup. */
async function backedUp(): Promise<void> {
  await startOnce(before);
  const database = new Database(at('a.db'));
  const text = `'; drop table orgs; -- "quoted" \\ 𝔘nicode\n${'x'.repeat(1.5 * 1024 * 1024)}`;
  const insert = database.prepare('insert into orgs (id, name, created_ms) values (?, ?, ?)');
  database.transaction(() => {
    insert.run('org', text, LARGEST);
    for (let i = 0; i < MANY; i += 1) insert.run(`org-${i}`, `name ${i}`, i);
    // A row of `holds` needs one of `ledger_accounts`, which comes later in the alphabet.
    database.exec(`
      insert into ledger_accounts (id, kind, owner_id, prepaid, credits_ucents, held_ucents, created_ms)
        values ('account', 'customer_wallet', 'org', 1, 9, 5, 0);
      insert into holds (id, account_id, amount_ucents, updated_ms) values ('hold', 'account', 5, 0);
      insert into transfers (id, batch_id, debit_account_id, credit_account_id, amount_ucents, kind, subject_id, effective_ms, posted_ms)
        values ('transfer', 'batch', 'funding', 'account', 9, 'funding.manual', 'org', 1, 1);
      insert into users (id, email, name, is_operator, is_vouched, created_ms) values ('user', 'a@b.c', 'A', 1, 1, 0);
      insert into sessions (id, user_id, token_hash, client_ip, network, user_agent, is_strong, confirmed_ms, created_ms, used_ms, expires_ms)
        values ('session', 'user', 'h', '192.0.2.1', '192.0.2.1', 'x', 1, 0, 0, 0, ${Number.MAX_SAFE_INTEGER});
      insert into suppliers (id, org_id, status, created_ms, updated_ms) values ('supplier', 'org', 'active', 0, 0);
      insert into machines (id, supplier_id, status, verification_status, region, price_ucents_per_hour, tier, online, created_ms, updated_ms)
        values ('machine', 'supplier', 'listed', 'unverified', 'eu', 1, 'on_demand', 1, 0, 0);`);
  })();
  database.close();
  await backup(before, at('copy.db'));
}

function depsWith(clock: Clock): { clock: Clock; rng: Rng; ids: Ids; log: Log } {
  const rng = systemRng();
  return { clock, rng, ids: createIds(clock, rng), log };
}

function move(clock: Clock = systemClock(), file = 'copy.db'): Promise<unknown> {
  const deps = depsWith(clock);
  const secret = Buffer.from(readFileSync(after.secret_file, 'utf8').trim(), 'hex');
  return restore(after, { file: at(file), force: false }, { ...deps, sealing: openSealing(secret, deps.ids) });
}

type Rows = Record<string, string[]>;

/** All rows of all tables, each as a text, sorted. */
function rowsOnSqlite(path: string): Rows {
  const database = new Database(path, { readonly: true });
  database.defaultSafeIntegers(true);
  const names = z.array(z.string()).parse(database.prepare(TABLES_ON_SQLITE).pluck().all());
  const rows = names.map((name) => [name, sortedTexts(database.prepare(`select * from ${name}`).all())]);
  database.close();
  return Object.fromEntries(rows) as Rows;
}

async function rowsOnPostgres(): Promise<Rows> {
  const client = new Client({ connectionString: url });
  await client.connect();
  const { rows: names } = await client.query<{ name: string }>(TABLES_ON_POSTGRES);
  const rows: Rows = {};
  for (const { name } of names) rows[name] = sortedTexts((await client.query(`select * from ${name}`)).rows);
  await client.end();
  return rows;
}

const TABLES_ON_SQLITE = `select name from sqlite_schema where type = 'table' order by name`;
const TABLES_ON_POSTGRES = `select tablename as name from pg_tables where schemaname = 'public' order by tablename`;

function sortedTexts(rows: readonly unknown[]): string[] {
  const asText = (_name: string, value: unknown): unknown => (typeof value === 'bigint' ? String(value) : value);
  return rows
    .map((row) =>
      JSON.stringify(
        Object.entries(row as object).toSorted(([a], [b]) => (a < b ? -1 : 1)),
        asText,
      ),
    )
    .toSorted();
}

test('every row moves, and the service goes on with PostgreSQL', async () => {
  await backedUp();
  const expected = rowsOnSqlite(at('copy.db'));
  const { rows, restored } = z.object({ rows: z.number(), restored: z.string() }).parse(await move());
  const moved = await rowsOnPostgres();
  expect(Object.keys(moved)).toEqual(Object.keys(expected));
  const copied = Object.entries(moved).filter(([name]) => !OWN.includes(name));
  expect(rows).toBe(copied.reduce((sum, [, { length }]) => sum + length, 0));
  expect(restored).toBe(new URL(url).host + new URL(url).pathname);
  // Hosts report anew what they run, and a session may have ended since the backup.
  const changed = [...OWN, 'machines', 'sessions'];
  const unchanged = (all: Rows): Rows =>
    Object.fromEntries(Object.entries(all).filter(([name]) => !changed.includes(name)));
  expect(unchanged(moved)).toEqual(unchanged(expected));
  expect(moved['machines']?.[0]).toContain('["online","0"]');
  expect(moved['sessions']).toEqual([]);
  expect(readdirSync(dir).filter((name) => name.startsWith('restore'))).toEqual([]);
  await startOnce(after);
});

test('a database with rows is refused and stays as it is', async () => {
  await backedUp();
  await startOnce(after);
  const there = await rowsOnPostgres();
  await expect(move()).rejects.toThrow(/is not empty \(the table \w+ has rows already\): make a new database/);
  expect(await rowsOnPostgres()).toEqual({ ...there, leases: expect.any(Array) });
});

test('after a failure in the middle nothing is there, and it can run again', async () => {
  await backedUp();
  copyFileSync(at('copy.db'), at('whole.db'));
  const database = new Database(at('copy.db'));
  // PostgreSQL has no such character.
  database.exec(
    `insert into users (id, email, name, is_operator, is_vouched, created_ms) values ('z', 'z@b.c', char(0), 1, 1, 0)`,
  );
  database.close();
  await expect(move()).rejects.toThrow('invalid byte sequence');
  expect((await rowsOnPostgres())['orgs']).toEqual([]);
  copyFileSync(at('whole.db'), at('copy.db'));
  await move();
  expect((await rowsOnPostgres())['orgs']).toHaveLength(MANY + 1);
});

test('a damaged backup and another secret are refused before PostgreSQL is touched', async () => {
  await backedUp();
  writeFileSync(after.secret_file, 'ab'.repeat(32));
  await expect(move()).rejects.toThrow('secret_file');
  writeFileSync(at('copy.db'), 'junk'.repeat(5000));
  await expect(move()).rejects.toMatchObject({ code: 'bad_backup' });
  expect(await rowsOnPostgres()).toEqual({});
});

test('while a daemon runs on PostgreSQL, nothing is copied', async () => {
  await backedUp();
  // One clock for both, so that the daemon renews its lease while the restore waits for it.
  const clock = virtualClock();
  const daemon = await openFoundation({ postgres: url }, depsWith(clock));
  let isOver = false;
  const refused = move(clock).finally(() => (isOver = true));
  refused.catch(() => undefined);
  while (!isOver) {
    await clock.advance(100);
    // It takes as long as a renewal, so that the lease is not lost because the server is slow.
    await writeRow(daemon.db, clock);
  }
  await expect(refused).rejects.toMatchObject({ code: 'database_in_use' });
  await daemon.close();
  expect((await rowsOnPostgres())['orgs']).toEqual([]);
});

test('the file of a daemon that runs on SQLite is refused as a backup', async () => {
  await backedUp();
  const daemon = await openFoundation({ sqlite: at('a.db') }, depsWith(systemClock()));
  await expect(move(systemClock(), 'a.db')).rejects.toMatchObject({ code: 'database_in_use' });
  await daemon.close();
  await move(systemClock(), 'a.db');
  expect((await rowsOnPostgres())['orgs']).toHaveLength(MANY + 1);
});
