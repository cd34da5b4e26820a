// What customers see of the reliability of machines: an hourly loop stores it with their offerings, and writes only what has changed.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { int, text } from '../../../control-plane/base/db/columns.ts';
import { type Sql, sql } from '../../../control-plane/base/db/db.ts';
import { brought } from '../../../control-plane/brings.ts';
import { linkHost, loseHost } from '../../kit/machines.ts';
import { type RecordingDb, recordingDb } from '../../kit/recording-db.ts';
import { textOf } from '../../kit/sql-text.ts';
import { openWorldOver, type World } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const Shown = z.object({ machine_id: text, uptime_bps: int.nullable(), failed_launch_share_bps: int.nullable() });

let world: World;
let recording: RecordingDb;
beforeEach(async () => {
  ({ world, over: recording } = await openWorldOver(recordingDb));
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

async function keep(signal = new AbortController().signal): Promise<void> {
  await brought(world.brings(), 'loops')
    .find(({ name }) => name === 'uptimes')
    ?.run(signal);
}
const rowsOf = (which: Sql): Promise<z.infer<typeof Shown>[]> =>
  world.db.read.all(
    Shown,
    sql`select machine_id, uptime_bps, failed_launch_share_bps from offerings where ${which} order by id`,
  );
async function uptimeOf(machineId: string): Promise<number | null | undefined> {
  await keep();
  return (await rowsOf(sql`machine_id = ${machineId}`))[0]?.uptime_bps;
}
const launches = async (machineId: string, count: number, failed: boolean): Promise<void> => {
  for (let i = 0; i < count; i += 1)
    await world.db.tx('test.launch', (tx) => world.rooms.supply.countLaunch(tx, machineId, failed));
};
/** The statements with which the loop writes. */
const writes = (): string[] => recording.sent.map(textOf).filter((statement) => /^\s*update offerings/.test(statement));

test('the uptime of a machine is known a day after its first link, and not before', async () => {
  const { machineId } = await world.machine();
  await world.clock.advance(23 * HOUR_MS);
  expect(await uptimeOf(machineId)).toBeNull();
  await world.clock.advance(HOUR_MS - 1);
  expect(await uptimeOf(machineId)).toBeNull();
  await world.clock.advance(1);
  expect(await uptimeOf(machineId)).toBe(10_000);
});

test('a machine that was away for half a day of two has an uptime of 75 %, which its next links change later', async () => {
  const { machineId } = await world.machine();
  const other = await world.machine();
  await world.clock.advance(24 * HOUR_MS);
  await loseHost(world, machineId);
  await world.clock.advance(12 * HOUR_MS);
  expect(await uptimeOf(machineId)).toBe(6_660);
  await linkHost(world, machineId);
  await world.clock.advance(12 * HOUR_MS);
  expect((await rowsOf(sql`machine_id = ${machineId}`))[0]?.uptime_bps).toBe(6_660);
  expect(await uptimeOf(machineId)).toBe(7_500);
  expect(await uptimeOf(other.machineId)).toBe(10_000);
});

test('an uptime is rounded down: 0.9999 does not read as a whole', async () => {
  const { machineId } = await world.machine();
  await world.clock.advance(240 * HOUR_MS);
  await loseHost(world, machineId);
  await world.clock.advance(HOUR_MS / 30);
  await linkHost(world, machineId);
  expect(await uptimeOf(machineId)).toBe(9_990);
});

test('a loop writes nothing if nothing has changed, and only the machines that have', async () => {
  const { machineId } = await world.machine();
  await world.machine();
  await world.clock.advance(25 * HOUR_MS);
  recording.sent.length = 0;
  await keep();
  expect(writes()).toHaveLength(1);
  await world.clock.advance(HOUR_MS);
  await keep();
  expect(writes()).toHaveLength(1);
  await launches(machineId, 5, false);
  recording.sent.length = 0;
  await keep();
  const [statement, ...others] = recording.sent.filter((each) => /^\s*update offerings/.test(textOf(each)));
  expect(others).toEqual([]);
  expect(statement?.values).toEqual([10_000, 0, machineId]);
});

test('the share of failed launches is known from five launches on', async () => {
  const { machineId } = await world.machine();
  const share = async (): Promise<number | null | undefined> => {
    await keep();
    return (await rowsOf(sql`machine_id = ${machineId}`))[0]?.failed_launch_share_bps;
  };
  await launches(machineId, 1, true);
  await launches(machineId, 3, false);
  expect(await share()).toBeNull();
  await launches(machineId, 1, false);
  expect(await share()).toBe(2_000);
  await launches(machineId, 1, true);
  expect(await share()).toBe(3_330);
  await world.clock.advance(31 * 24 * HOUR_MS);
  expect(await share()).toBeNull();
});

test('all machines of a large fleet get their uptime, and an offering that is new gets that of its machine', async () => {
  const { machineId } = await world.machine({ gpus: 2 });
  await world.clock.advance(24 * HOUR_MS);
  await keep();
  await copyMachine(machineId, 250);
  await keep();
  expect(await rowsOf(sql`uptime_bps is null`)).toEqual([]);
  expect(await rowsOf(sql`uptime_bps = 10000`)).toHaveLength(252);
});

test('a loop that is told to stop reads no page', async () => {
  await world.machine();
  recording.sent.length = 0;
  await keep(AbortSignal.abort());
  expect(recording.sent).toEqual([]);
});

/** Machines like this one, each with an offering, and one more offering of the machine itself: none of them with an uptime yet. */
async function copyMachine(machineId: string, count: number): Promise<void> {
  const { db } = world;
  await db.tx('test.copies', async (tx) => {
    for (let n = 0; n <= count; n += 1) {
      const id = n === 0 ? machineId : `copy-${n}`;
      if (n > 0) {
        await tx.run(
          sql`insert into machines (id, supplier_id, status, verification_status, region, price_ucents_per_hour, tier, created_ms, updated_ms)
              select ${id}, supplier_id, status, verification_status, region, price_ucents_per_hour, tier, created_ms, updated_ms
              from machines where id = ${machineId}`,
        );
        await tx.run(
          sql`insert into machine_links (machine_id, first_ms, since_ms)
              select ${id}, first_ms, since_ms from machine_links where machine_id = ${machineId}`,
        );
      }
      await tx.run(
        sql`insert into offerings (id, machine_id, gpu_type, region, tier, price_ucents_per_hour, vram_gb, cpu_cores, ram_gb, storage_gb,
              disk_configurable, disk_free_gb, disk_price_ucents_per_gb_hour, gpu_total, gpu_free, listed, created_ms)
            select ${`off_copy_${n}`}, ${id}, 'L4', region, tier, price_ucents_per_hour, vram_gb, cpu_cores, ram_gb, storage_gb,
              disk_configurable, disk_free_gb, disk_price_ucents_per_gb_hour, 1, 1, 0, created_ms
            from offerings where machine_id = ${machineId} and gpu_type = 'H100_SXM'`,
      );
    }
  });
}
