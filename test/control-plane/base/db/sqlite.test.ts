// Behaviour of the SQLite driver alone: group commit, the lock against other processes, and the rule against waiting inside a transaction.
import { execFile, execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setTimeout as wait } from 'node:timers/promises';
import { promisify } from 'node:util';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { z } from 'zod';
import { int } from '../../../../control-plane/base/db/columns.ts';
import { type Db, type HotBody, join as joinSql, sql } from '../../../../control-plane/base/db/db.ts';
import { openSqlite, refuseUnsafeVersion } from '../../../../control-plane/base/db/sqlite.ts';
import { systemClock } from '../../../../shared/clock.ts';
import { mountSmallDisk } from '../../../kit/disks.ts';

const clock = systemClock();
let dir: string;
let db: Db;
/** How many bodies shared each commit. */
let commits: number[];
beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'sqlite-'));
  commits = [];
  db = openSqlite(join(dir, 'a.db'), { clock, onCommit: (bodies) => commits.push(bodies) });
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

/** Lets everything happen that waits for neither time nor the disk. */
const turns = async (): Promise<void> => {
  for (let turn = 0; turn < 20; turn += 1) await clock.nextTurn();
};
const losable = (v: number): HotBody<number> => {
  const statement = sql`insert into t (v) values (${v})`;
  const body = { name: 'losable', locks: '', row: int, statement: () => statement };
  return { ...body, runNow: (tx) => tx.run(statement), mayBeLost: () => true };
};

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
    const numbers = Array.from({ length: 200 }, (_, i) => i);
    await Promise.all(numbers.map(insert));
    expect(commits).toEqual([1, 200]);
    for (const number of numbers) await insert(number);
    expect(commits.slice(2)).toEqual(numbers.map(() => 1));
    expect(await count()).toBe(400);
  });

  test('a body that throws before it writes costs the others nothing; one that throws later runs again with them, and alone is undone', async () => {
    const runs = { early: 0, late: 0, fine: 0 };
    const body = (name: keyof typeof runs): Promise<void> =>
      db.tx(name, async (tx) => {
        runs[name] += 1;
        if (name === 'early') throw new Error('no');
        await tx.run(sql`insert into t (v) values (1)`);
        if (name === 'late') throw new Error('no');
      });
    await Promise.allSettled([body('early'), body('fine')]);
    expect(runs).toEqual({ early: 1, late: 0, fine: 1 });
    const [late] = await Promise.allSettled([body('late'), body('fine')]);
    expect(late.status).toBe('rejected');
    expect(runs).toEqual({ early: 1, late: 2, fine: 2 });
    expect(await count()).toBe(2);
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

test('a file that is no database is named, and is not changed', () => {
  const other = join(dir, 'other.db');
  const bytes = Buffer.alloc(8192, 1);
  writeFileSync(other, bytes);
  expect(() => openSqlite(other, { clock })).toThrow(`not_a_database: ${other} is not a SQLite database`);
  expect(readFileSync(other)).toEqual(bytes);
});

test.each([
  ['it is no database', (path: string) => writeFileSync(path, Buffer.alloc(8192, 1))],
  ['its log is a folder', (path: string) => mkdirSync(`${path}-wal`)],
])('a file that cannot be used because %s is not locked afterwards', async (_why, spoil) => {
  const other = join(dir, 'other.db');
  spoil(other);
  for (let i = 0; i < 2; i += 1)
    expect(() => openSqlite(other, { clock })).toThrow(expect.not.objectContaining({ code: 'database_in_use' }));
  for (const end of ['', '-wal', '-shm']) rmSync(`${other}${end}`, { recursive: true, force: true });
  await openSqlite(other, { clock }).close();
});

test('a file that cannot be opened is named, and its lock is too: a second control plane is not to blame', () => {
  const other = join(dir, 'other.db');
  mkdirSync(other);
  expect(() => openSqlite(other, { clock })).toThrow(`${other} cannot be opened. It, its folder`);
  const locked = join(dir, 'locked.db');
  mkdirSync(`${locked}.lock`);
  expect(() => openSqlite(locked, { clock })).toThrow(`${locked}.lock cannot be opened. It, its folder`);
  rmSync(`${locked}.lock`, { recursive: true });
  writeFileSync(`${locked}.lock`, Buffer.alloc(8192, 1));
  expect(() => openSqlite(locked, { clock })).toThrow(`not_a_database: ${locked}.lock is not a SQLite database`);
});

test('a read that needs more room for temporary files than their disk has fails as every other full disk does', async () => {
  const disk = mountSmallDisk(1024 ** 2);
  try {
    const program = [fileURLToPath(new URL('./spilling-read.ts', import.meta.url)), join(dir, 'large.db')];
    const { stdout } = await promisify(execFile)(process.execPath, program, { env: { SQLITE_TMPDIR: disk.dir } });
    expect(stdout).toBe('disk_full');
  } finally {
    disk.remove();
  }
});

test('a lock that may not be written is named, with what to do', () => {
  const disk = mountSmallDisk(1024 ** 2);
  try {
    const path = join(disk.dir, 'a.db');
    writeFileSync(`${path}.lock`, '');
    execFileSync('mount', ['-o', 'remount,ro', disk.dir]);
    expect(() => openSqlite(path, { clock })).toThrow(`${path}.lock cannot be written. It, its folder`);
  } finally {
    disk.remove();
  }
});

test('SQLite versions that can lose committed writes are refused, up to the fixed version', () => {
  for (const unsafe of ['3.51.2', '3.50.9', '3.7.0', '2.99.99']) {
    expect(() => refuseUnsafeVersion(unsafe)).toThrow(expect.objectContaining({ code: 'unsupported' }));
  }
  for (const safe of ['3.51.3', '3.51.10', '3.52.0', '4.0.0']) expect(() => refuseUnsafeVersion(safe)).not.toThrow();
});

test('every connection checks foreign keys', async () => {
  const Keys = z.object({ foreign_keys: int });
  expect(await db.read.one(Keys, sql`pragma foreign_keys`)).toEqual({ foreign_keys: 1 });
  expect(await db.tx('pragma', (tx) => tx.one(Keys, sql`pragma foreign_keys`))).toEqual({ foreign_keys: 1 });
});

describe('prepared statements', () => {
  /** How often a text that begins like this is prepared while the work runs. */
  const preparedIn = async (begin: string, work: () => Promise<void>): Promise<number> => {
    const spy = vi.spyOn(Database.prototype, 'prepare');
    await work();
    const found = spy.mock.calls.filter(([text]) => text.startsWith(begin)).length;
    spy.mockRestore();
    return found;
  };
  const Values = z.object({ v: int });
  const list = (length: number): Promise<unknown> => {
    const vs = Array.from({ length }, (_, i) => i);
    return db.read.all(Values, sql`select v from t where v in (${joinSql(vs)})`);
  };
  const some = sql`v > 0`;
  const lists = async (first: number, last: number): Promise<void> => {
    for (let length = first; length <= last; length += 1) {
      await list(length);
      await count();
      await db.read.all(Values, sql`select v as v from t where ${some}`);
    }
  };

  test('of lists are not kept for ever', async () => {
    const first = 'select v from t where v in (coalesce(?, null))';
    expect(await preparedIn(first, async () => void (await Promise.all([list(1), list(1)])))).toBe(1);
    await lists(2, 400);
    expect(await preparedIn(first, async () => void (await list(1)))).toBe(1);
  });

  test('that are used again and again are prepared once', async () => {
    expect(await preparedIn('select count(*)', () => lists(1, 400))).toBe(1);
    expect(await preparedIn('select v as v', () => lists(1, 400))).toBe(0);
  });
});

describe('the flush of the write-ahead log', () => {
  const flush = { started: Promise.withResolvers<void>(), end: Promise.withResolvers<void>() };

  test('ends before the caller of a transaction gets its result, and before a read of its rows does', async () => {
    const order: string[] = [];
    await db.close();
    db = openSqlite(join(dir, 'a.db'), {
      clock,
      datasync: () => {
        flush.started.resolve();
        return flush.end.promise;
      },
    });
    const writing = insert(1).then(() => order.push('written'));
    await flush.started.promise;
    const reading = count().then((found) => order.push(`read ${found}`));
    await wait(20);
    expect(order).toEqual([]);
    flush.end.resolve();
    await Promise.all([writing, reading]);
    expect(order.toSorted()).toEqual(['read 1', 'written']);
  });

  test('is not waited for by a body that a crash may take back, but by reads of its rows', async () => {
    const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const flushes: number[] = [];
    await db.close();
    db = openSqlite(join(dir, 'a.db'), {
      clock,
      datasync: () => gates[flushes.push(flushes.length) - 1]?.promise ?? Promise.resolve(),
    });
    await db.hot(losable(1));
    expect(flushes).toEqual([]);
    const order: string[] = [];
    const reading = count().then((found) => order.push(`read ${found}`));
    await turns();
    // The flush for the read has begun before this commit, so it does not count for it.
    const writing = insert(2).then(() => order.push('written'));
    await turns();
    gates[0]?.resolve();
    await reading;
    await turns();
    expect([order, flushes]).toEqual([['read 1'], [0, 1]]);
    gates[1]?.resolve();
    await writing;
    expect(order).toEqual(['read 1', 'written']);
  });

  test('is waited for by a body whose result must not be lost, although another result of it may be', async () => {
    const gate = Promise.withResolvers<void>();
    await db.close();
    db = openSqlite(join(dir, 'a.db'), { clock, datasync: () => gate.promise });
    const claim = (v: number): HotBody<number> => ({
      ...losable(v),
      runNow: (tx) => (tx.run(sql`insert into t (v) values (${v})`), v),
      mayBeLost: (result) => result === 1,
    });
    expect(await db.hot(claim(1))).toBe(1);
    const order: string[] = [];
    const replay = db.hot(claim(2)).then((result) => order.push(`result ${result}`));
    await turns();
    expect(order).toEqual([]);
    gate.resolve();
    await replay;
    expect(order).toEqual(['result 2']);
  });

  test('that fails fails its transactions and all later ones, because nobody knows what the disk has', async () => {
    await db.close();
    const failures = [new Error('EIO')];
    db = openSqlite(join(dir, 'a.db'), {
      clock,
      datasync: () => Promise.reject(failures.pop() ?? new Error('it was asked again')),
    });
    await expect(insert(1)).rejects.toMatchObject({ code: 'unavailable' });
    await expect(insert(2)).rejects.toMatchObject({ code: 'unavailable' });
    expect(failures).toEqual([]);
  });
});

describe('the transaction of bodies that a crash may take back', () => {
  let stored: Database.Database;
  let timers: (() => void)[];
  /** What is committed, as a process that reads the file after a crash would find it. */
  const committed = (): unknown[] => stored.prepare('select v from t order by v').pluck().all();
  const failing = (v: number): HotBody<number> => ({
    ...losable(v),
    name: 'failing',
    mayBeLost: () => false,
    runNow: (tx) => {
      tx.run(sql`insert into t (v) values (${v})`);
      throw new Error('no');
    },
  });
  beforeEach(async () => {
    await db.close();
    timers = [];
    const caught = { ...clock, after: (_: number, work: () => void) => (timers.push(work), () => undefined) };
    db = openSqlite(join(dir, 'a.db'), { clock: caught });
    stored = new Database(join(dir, 'a.db'), { readonly: true });
  });
  afterEach(() => stored.close());

  test('is committed with the next body that must not be lost', async () => {
    await db.hot(losable(1));
    await db.hot(losable(2));
    expect(committed()).toEqual([]);
    await db.hot({ ...losable(3), mayBeLost: () => false });
    expect(committed()).toEqual([1, 2, 3]);
  });

  test('is committed before a body that may wait, so that an error of that body undoes nothing of it', async () => {
    await db.hot(losable(1));
    const waiting = db.tx('waiting', async (tx) => {
      expect(committed()).toEqual([1]);
      await tx.run(sql`insert into t (v) values (2)`);
      throw new Error('no');
    });
    await expect(waiting).rejects.toThrow('no');
    expect(committed()).toEqual([1]);
  });

  test('outlives an error of a later body of one statement, alone and among others', async () => {
    await db.hot(losable(1));
    await expect(db.hot(failing(2))).rejects.toThrow('no');
    await Promise.allSettled([db.hot(losable(3)), db.hot(failing(4)), db.hot(losable(5))]);
    await insert(6);
    expect(committed()).toEqual([1, 3, 5, 6]);
  });

  test('is committed by a read, by its timer and by the end of the process', async () => {
    await db.hot(losable(1));
    expect([await count(), committed()]).toEqual([1, [1]]);
    await db.hot(losable(2));
    timers.at(-1)?.();
    expect(committed()).toEqual([1, 2]);
    await db.hot(losable(3));
    await db.close();
    expect(committed()).toEqual([1, 2, 3]);
  });
});
