// Behaviour of the SQLite driver alone: group commit, the lock against other processes, and the rule against waiting inside a transaction.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { z } from 'zod';
import { int } from '../../../../control-plane/base/db/columns.ts';
import { type Db, sql } from '../../../../control-plane/base/db/db.ts';
import { openSqlite, refuseUnsafeVersion } from '../../../../control-plane/base/db/sqlite.ts';
import { systemClock } from '../../../../shared/clock.ts';

const clock = systemClock();
let dir: string;
let db: Db;
beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'sqlite-'));
  db = openSqlite(join(dir, 'a.db'), { clock });
  await db.tx('setup', (tx) => tx.run(sql`create table t (v INTEGER not null) strict`));
});
afterEach(async () => {
  await db.close();
  rmSync(dir, { recursive: true });
});

const Count = z.object({ count: int });
const count = async (): Promise<number | undefined> =>
  (await db.read.one(Count, sql`select count(*) as count from t`))?.count;
const insert = (v: number): Promise<number> => db.tx('insert', (tx) => tx.run(sql`insert into t (v) values (${v})`));

describe('group commit', () => {
  test('a body that waits for anything but tx is rolled back; those around it are kept', async () => {
    const before = insert(1);
    const waiting = db.tx('waiting', async (tx) => {
      await tx.run(sql`insert into t (v) values (2)`);
      await wait(50);
      await tx.run(sql`insert into t (v) values (3)`);
    });
    const after = insert(4);
    await expect(waiting).rejects.toMatchObject({ code: 'tx_awaited_outside' });
    await Promise.all([before, after]);
    await wait(60);
    expect(await count()).toBe(2);
  });

  test('callers of one turn share a commit', async () => {
    const commits = vi.spyOn(Database.prototype, 'exec');
    const commitsOf = async (work: () => Promise<unknown>): Promise<number> => {
      commits.mockClear();
      await work();
      return commits.mock.calls.filter(([statement]) => statement === 'COMMIT').length;
    };
    const numbers = Array.from({ length: 200 }, (_, i) => i);
    expect(await commitsOf(() => Promise.all(numbers.map(insert)))).toBe(1);
    expect(
      await commitsOf(async () => {
        for (const number of numbers) await insert(number);
      }),
    ).toBe(200);
    expect(await count()).toBe(400);
    commits.mockRestore();
  });

  test('a read never sees uncommitted data', async () => {
    const seen: Promise<number | undefined>[] = [];
    const writing = db.tx('writing', async (tx) => {
      await tx.run(sql`insert into t (v) values (1)`);
      await Promise.resolve();
    });
    seen.push(count());
    await writing;
    seen.push(count());
    expect(await Promise.all(seen)).toEqual([0, 1]);
  });
});

test('a second process on the same file is refused, and succeeds after the first has closed', async () => {
  const path = join(dir, 'a.db');
  expect(() => openSqlite(path, { clock })).toThrow(expect.objectContaining({ code: 'database_in_use' }));
  await db.close();
  db = openSqlite(path, { clock });
  expect(await count()).toBe(0);
});

test('SQLite versions that can lose committed writes are refused, up to the fixed version', () => {
  for (const unsafe of ['3.51.2', '3.50.9', '3.7.0', '2.99.99']) {
    expect(() => refuseUnsafeVersion(unsafe)).toThrow(expect.objectContaining({ code: 'unsupported' }));
  }
  for (const safe of ['3.51.3', '3.51.10', '3.52.0', '4.0.0']) expect(() => refuseUnsafeVersion(safe)).not.toThrow();
});

test('every connection has full synchronous mode and checks foreign keys', async () => {
  const Pragma = z.object({ synchronous: int });
  expect(await db.read.one(Pragma, sql`pragma synchronous`)).toEqual({ synchronous: 2 });
  expect(await db.tx('pragma', (tx) => tx.one(Pragma, sql`pragma synchronous`))).toEqual({ synchronous: 2 });
  const Keys = z.object({ foreign_keys: int });
  expect(await db.tx('pragma', (tx) => tx.one(Keys, sql`pragma foreign_keys`))).toEqual({ foreign_keys: 1 });
});
