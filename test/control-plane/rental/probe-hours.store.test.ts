// The counts of probes: how close equal results may be, how many rows one write has, and a database that is away.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { int } from '../../../control-plane/base/db/columns.ts';
import { type Db, sql } from '../../../control-plane/base/db/db.ts';
import { hoursOf, openProbeHours, type ProbeHours } from '../../../control-plane/rental/outages/probe-hours.ts';
import { SCHEMA } from '../../../control-plane/foundation.ts';
import { openTestDb } from '../../kit/databases.ts';
import { type VirtualClock, virtualClock } from '../../kit/virtual-clock.ts';

const RENTAL = { id: 'i-1', machineId: 'm-1' };

let clock: VirtualClock;
let db: Db;
let isAway: boolean;
let hours: ProbeHours;
beforeEach(async () => {
  clock = virtualClock();
  db = await openTestDb(SCHEMA, clock);
  isAway = false;
  const tx: Db['tx'] = async (name, body) => {
    if (isAway) throw new Error('the database is away');
    return db.tx(name, body);
  };
  hours = openProbeHours({ db: { ...db, tx }, clock });
});
afterEach(() => db.close());

async function counts(machineId = 'm-1'): Promise<[number, number][]> {
  await hours.store(0);
  return (await hoursOf(db.read, machineId, 0)).map(({ good, failed }) => [good, failed]);
}

test('equal results of a rental count once in 20 seconds, and another result counts at once', async () => {
  hours.count(RENTAL, true);
  clock.jump(19_999);
  hours.count(RENTAL, true);
  expect(await counts()).toEqual([[1, 0]]);
  clock.jump(1);
  hours.count(RENTAL, true);
  expect(await counts()).toEqual([[2, 0]]);
  hours.count(RENTAL, false);
  hours.count({ ...RENTAL, id: 'i-2' }, false);
  hours.count(RENTAL, true);
  expect(await counts()).toEqual([[3, 2]]);
});

test('what a database that is away did not take is written later, with what was counted meanwhile', async () => {
  hours.count(RENTAL, true);
  isAway = true;
  await expect(hours.store(0)).rejects.toThrow('away');
  hours.count({ ...RENTAL, id: 'i-2' }, false);
  isAway = false;
  expect(await counts()).toEqual([[1, 1]]);
  expect(await counts()).toEqual([[1, 1]]);
});

test('every machine of a fleet has its own row', async () => {
  for (let n = 0; n < 401; n += 1) hours.count({ id: `i-${n}`, machineId: `m-${n}` }, n % 2 === 0);
  expect([await counts('m-0'), await counts('m-1'), await counts('m-400')]).toEqual([[[1, 0]], [[0, 1]], [[1, 0]]]);
  const all = await db.read.one(z.object({ count: int }), sql`select count(*) as count from probe_hours`);
  expect(all).toEqual({ count: 401 });
});

test('counts are written again only after the given time', async () => {
  hours.count(RENTAL, true);
  await hours.store(600_000);
  expect(await hoursOf(db.read, 'm-1', 0)).toEqual([]);
  clock.jump(600_000);
  await hours.store(600_000);
  expect(await hoursOf(db.read, 'm-1', 0)).toHaveLength(1);
});
