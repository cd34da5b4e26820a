// Checkpoints of SQLite in a thread: the log begins anew under constant load, a thread that fails is replaced, and a full disk ends nothing.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { int } from '../../../../control-plane/base/db/columns.ts';
import { type CheckpointOptions } from '../../../../control-plane/base/db/checkpoints.ts';
import { type Db, type NowTx, sql } from '../../../../control-plane/base/db/db.ts';
import { openSqlite } from '../../../../control-plane/base/db/sqlite.ts';
import { systemClock } from '../../../../shared/clock.ts';
import { mountSmallDisk, type SmallDisk } from '../../../kit/disks.ts';

const clock = systemClock();
const ROOM = new URL('../../../../control-plane/base/db/', import.meta.url);
const PAGES = 100;
/** Each commit adds a page or two to the log. */
const COMMITS_MAX = 20_000;

let dir: string;
let disk: SmallDisk | undefined;
let db: Db;
const open = (checkpoints: CheckpointOptions): Db => openSqlite(join(dir, 'a.db'), { clock, checkpoints });
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'checkpoints-'));
});
afterEach(async () => {
  await db.close();
  rmSync(dir, { recursive: true });
  disk?.remove();
  disk = undefined;
});

/** A program for the thread. */
function program(text: string): URL {
  const file = join(dir, 'thread.mjs');
  writeFileSync(file, text);
  return pathToFileURL(file);
}

const Log = z.object({ log: int });

/** Writes one commit after the other until the log has begun anew `times` times, and returns the number of commits. */
async function writeUntilAnew(times: number, path = join(dir, 'a.db')): Promise<number> {
  await db.tx('setup', (tx) => tx.run(sql`create table if not exists t (v TEXT not null) strict`));
  const watcher = new Database(path, { readonly: true });
  const length = (): number => Log.parse(watcher.prepare('pragma wal_checkpoint(NOOP)').get()).log;
  let commits = 0;
  let before = 0;
  let anew = 0;
  while (anew < times && commits < COMMITS_MAX) {
    await db.tx('write', (tx) => tx.run(sql`insert into t (v) values (${'x'.repeat(2_000)})`));
    const now = length();
    if (now < before) anew += 1;
    before = now;
    commits += 1;
  }
  watcher.close();
  return commits;
}
const count = async (): Promise<number | undefined> =>
  (await db.read.one(z.object({ count: int }), sql`select count(*) as count from t`))?.count;

test('the log stays short while one commit follows the other, and nothing is lost', async () => {
  const done = join(dir, 'done');
  db = open({
    pages: PAGES,
    thread: program(`
    import { appendFileSync } from 'node:fs';
    import { parentPort } from 'node:worker_threads';
    await import(${JSON.stringify(new URL('checkpoint-thread.ts', ROOM).href)});
    parentPort.on('message', () => appendFileSync(${JSON.stringify(done)}, '.'));
  `),
  });
  const commits = await writeUntilAnew(3);
  expect(commits).toBeLessThan(COMMITS_MAX);
  await db.close();
  expect(readFileSync(done, 'utf8').length).toBeGreaterThanOrEqual(2);
  db = open({});
  expect(await count()).toBe(commits);
});

test('a thread that ends at once costs nothing but time: the pages are copied without it', async () => {
  db = open({ pages: PAGES, thread: program('throw new Error("no disk");') });
  const commits = await writeUntilAnew(3);
  expect(commits).toBeLessThan(COMMITS_MAX);
  expect(await count()).toBe(commits);
});

test('a checkpoint ends although a body that may be lost has left its transaction open', async () => {
  const done = join(dir, 'done');
  const thread = program(`
    import { existsSync } from 'node:fs';
    import { parentPort } from 'node:worker_threads';
    parentPort.on('message', () => {
      const whenDone = () => (existsSync(${JSON.stringify(done)}) ? parentPort.postMessage('done') : setImmediate(whenDone));
      whenDone();
    });
  `);
  // No timer commits what is left open.
  const timeless = { ...clock, after: () => () => undefined };
  db = openSqlite(join(dir, 'a.db'), { clock: timeless, checkpoints: { pages: 1, thread } });
  await db.tx('setup', (tx) => tx.run(sql`create table t (v TEXT not null) strict`));
  for (let i = 0; i < 16; i += 1) await db.tx('write', (tx) => tx.run(sql`insert into t (v) values ('a')`));
  const statement = sql`insert into t (v) values ('b')`;
  const runNow = (tx: NowTx): number => tx.run(statement);
  await db.hot({ name: 'losable', locks: '', row: int, statement: () => statement, runNow, mayBeLost: () => true });
  const stored = new Database(join(dir, 'a.db'), { readonly: true });
  const losable = (): unknown => stored.prepare("select count(*) from t where v = 'b'").pluck().get();
  expect(losable()).toBe(0);
  writeFileSync(done, '');
  await expect.poll(losable).toBe(1);
  stored.close();
  expect(await count()).toBe(17);
});

test('a checkpoint that finds the disk full frees space and ends nothing, and a later one copies its pages', async () => {
  const uncaught: unknown[] = [];
  const note = (error: unknown): void => void uncaught.push(error);
  process.on('uncaughtExceptionMonitor', note);
  // The log of the time in which the thread starts must fit.
  const small = mountSmallDisk(64 * 1024 ** 2);
  disk = small;
  let calls = 0;
  const makeRoom = (): boolean => {
    calls += 1;
    small.empty();
    return true;
  };
  const path = join(small.dir, 'a.db');
  db = openSqlite(path, { clock, makeRoom, checkpoints: { pages: PAGES } });
  // From now on the file of the log is longer than what is written to it, so commits need nothing of the disk.
  await db.tx('large', (tx) => tx.run(sql`create table large as select hex(zeroblob(1000000)) as v`));
  const before = await writeUntilAnew(2, path);
  small.fill();
  const commits = await writeUntilAnew(1, path);
  expect(calls).toBe(1);
  expect(await count()).toBe(before + commits);
  process.off('uncaughtExceptionMonitor', note);
  expect(uncaught).toEqual([]);
});
