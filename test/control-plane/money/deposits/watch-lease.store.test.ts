// One process watches a chain: another one takes over once the first has shown no sign of life for the whole time of the lease.
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Db } from '../../../../control-plane/base/db/db.ts';
import { SCHEMA } from '../../../../control-plane/foundation.ts';
import { openWatchLease } from '../../../../control-plane/money/deposits/watch-lease.ts';
import { createIds } from '../../../../shared/ids.ts';
import { seededRng } from '../../../../shared/rng.ts';
import { openTestDb } from '../../../kit/databases.ts';
import { type VirtualClock, virtualClock } from '../../../kit/virtual-clock.ts';

const LEASE_MS = 120_000;

type WatchLease = ReturnType<typeof openWatchLease>;

let clock: VirtualClock;
let db: Db;
let first: WatchLease;
let second: WatchLease;
beforeEach(async () => {
  clock = virtualClock();
  db = await openTestDb(SCHEMA, clock);
  const open = (seed: number): WatchLease =>
    openWatchLease('base', { db, clock, ids: createIds(clock, seededRng(seed)) });
  [first, second] = [open(1), open(2)];
});
afterEach(() => db.close());

const holds = async (lease: WatchLease): Promise<boolean> => (await lease.hold()) !== undefined;

test('a process keeps it as long as it renews it, however long that is', async () => {
  expect([await holds(first), await holds(second)]).toEqual([true, false]);
  for (let i = 0; i < 6; i += 1) {
    clock.jump(LEASE_MS / 2);
    expect([await holds(first), await holds(second)]).toEqual([true, false]);
  }
  clock.jump(LEASE_MS - 1);
  expect(await holds(second)).toBe(false);
  clock.jump(1);
  expect([await holds(second), await holds(first)]).toEqual([true, false]);
});

test('a process that gives it up frees it at once, and the next holder has its whole time', async () => {
  await first.hold();
  expect(await holds(second)).toBe(false);
  clock.jump(LEASE_MS - 1);
  await first.release();
  expect(await holds(second)).toBe(true);
  await second.release();
  await second.release();
  expect([await holds(first), await holds(second)]).toEqual([true, false]);
});
