// Migrations are applied once, never edited, and mean the same on both engines.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { text } from '../../../../control-plane/base/db/columns.ts';
import { type Db, sql } from '../../../../control-plane/base/db/db.ts';
import { migrate, portable } from '../../../../control-plane/base/db/migrate.ts';
import { openSqlite } from '../../../../control-plane/base/db/sqlite.ts';
import { systemClock } from '../../../../shared/clock.ts';

const clock = systemClock();
let dir: string;
let db: Db;
beforeEach(() => {
  logged = [];
  dir = mkdtempSync(join(tmpdir(), 'migrations-'));
  db = openSqlite(':memory:', { clock });
});
afterEach(async () => {
  await db.close();
  rmSync(dir, { recursive: true });
});

const write = (name: string, source: string): void => writeFileSync(join(dir, name), source);
let logged: unknown[];
const log = { info: (fields: unknown) => void logged.push(fields) };
const run = (): Promise<void> => migrate(db, [{ room: 'a', directory: pathToFileURL(`${dir}/`) }], { clock, log });
const tables = async (): Promise<string[]> =>
  (
    await db.read.all(z.object({ name: text }), sql`select name from sqlite_master where type = 'table' order by name`)
  ).map(({ name }) => name);

test('new files are applied in order, once', async () => {
  write('0001-a.sql', 'create table a (id TEXT) STRICT;\n');
  await run();
  write('0002-b.sql', 'create table b (id TEXT) STRICT;\n\ncreate index b_id on b (id);\n');
  await run();
  await run();
  expect(await tables()).toEqual(['a', 'b', 'leases', 'schema_migrations']);
  // A new database has nothing that could take long.
  expect(logged).toEqual([{ migration: 'a/0002-b.sql' }]);
});

test('a file that was edited after it was applied is refused', async () => {
  write('0001-a.sql', 'create table a (id TEXT) STRICT;\n');
  await run();
  write('0001-a.sql', 'create table a (id TEXT, more TEXT) STRICT;\n');
  await expect(run()).rejects.toMatchObject({ code: 'migration' });
});

test('a database of a newer version is refused and left unchanged', async () => {
  write('0001-a.sql', 'create table a (id TEXT) STRICT;\n');
  write('0002-b.sql', 'create table b (id TEXT) STRICT;\n');
  await run();
  rmSync(join(dir, '0002-b.sql'));
  write('0001-c.sql', 'create table c (id TEXT) STRICT;\n');
  await expect(run()).rejects.toMatchObject({
    code: 'migration',
    message: expect.stringContaining('a newer version has changed this database (a/0002-b.sql)') as string,
  });
  expect(await tables()).toEqual(['a', 'b', 'leases', 'schema_migrations']);
});

test('a file that fails half way changes nothing', async () => {
  write('0001-a.sql', 'create table a (id TEXT) STRICT;\n\ncreate table a (id TEXT) STRICT;\n');
  await expect(run()).rejects.toThrow('already exists');
  expect(await tables()).toEqual(['leases', 'schema_migrations']);
});

test('a file with a strange name is refused', async () => {
  write('first.sql', '');
  await expect(run()).rejects.toMatchObject({ code: 'migration' });
});

test('SQL is translated for PostgreSQL, and each engine gets only its own blocks', () => {
  const source = [
    'create table t (a INTEGER, b BLOB, c TEXT) STRICT;',
    '-- only sqlite',
    'x;',
    '-- end',
    '-- only postgres',
    'y;',
    '-- end',
  ].join('\n');
  expect(portable(source, 'postgres')).toBe(
    'create table t (a bigint, b bytea, c text COLLATE "C");\n\n-- only postgres\ny;\n-- end',
  );
  expect(portable(source, 'sqlite')).toContain('x;');
  expect(portable(source, 'sqlite')).not.toContain('y;');
});
