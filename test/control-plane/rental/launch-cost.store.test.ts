// What a launch costs the database, and that a launch leaves nothing behind on a host that it does not get.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { int, text } from '../../../control-plane/base/db/columns.ts';
import { type Sql, sql, type Tx } from '../../../control-plane/base/db/db.ts';
import { type Candidate, candidates } from '../../../control-plane/fleet/supply/offerings.ts';
import { newInstance } from '../../../control-plane/rental/instances/create.ts';
import type { Launch } from '../../../control-plane/rental/instances/launch.ts';
import { type Place, takePlace, wantedCapacity } from '../../../control-plane/rental/instances/place.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { unpaidLaunchesMs } from '../../../control-plane/rental/instances/standing.ts';
import { WORKLOADS_PER_MACHINE_MAX } from '../../../shared/limits.ts';
import { type CountingDb, countingDb } from '../../kit/counting-db.ts';
import type { MadeMachine } from '../../kit/machines.ts';
import { LAUNCH, openWorldOver, type World, type WorldAccount } from '../../kit/world.ts';

const ACKNOWLEDGE_MS = 60_000;
/** The Idempotency-Key has two more: its claim and the reply. */
const STATEMENTS_MAX = 7;
/** A host that limits disks has two more: the disk is stored, and what is left of it is counted. */
const DISK_STATEMENTS_MAX = STATEMENTS_MAX + 2;

let world: World;
let counting: CountingDb;
let who: WorldAccount;
let made: MadeMachine;
beforeEach(async () => {
  ({ world, over: counting } = await openWorldOver(countingDb));
  who = await world.customer(100_000);
  made = await world.machine({ gpus: 2, diskEnforced: true, storageBytes: 500 * 1024 ** 3 });
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const Count = z.object({ count: int });
const count = async (what: 'held' | 'ports'): Promise<number> => {
  const statement =
    what === 'held'
      ? sql`select count(*) as count from machine_gpus where held_by is not null or held_disk_gb > 0`
      : sql`select count(*) as count from endpoint_ports where instance_id is not null`;
  return (await world.db.read.one(Count, statement))?.count ?? -1;
};
const Free = z.object({ gpu_free: int, disk_free_gb: int });
const free = (): Promise<z.infer<typeof Free> | undefined> =>
  world.db.read.one(Free, sql`select gpu_free, disk_free_gb from offerings where machine_id = ${made.machineId}`);

test('a launch has few statements, and waits at most four times: for what it reads, its GPUs, what it writes, and the commit', async () => {
  const launchOf = async (request: typeof LAUNCH): Promise<number> => {
    const before = { ...counting.counts };
    await world.rooms.instances.create(who, request, async () => undefined);
    expect(counting.counts.roundTrips - before.roundTrips).toBeLessThanOrEqual(4);
    return counting.counts.statements - before.statements;
  };
  expect(await launchOf(LAUNCH)).toBeLessThanOrEqual(DISK_STATEMENTS_MAX);
  await world.machine({ gpus: 2, diskEnforced: false, dollars: 1 });
  expect(await launchOf(LAUNCH)).toBeLessThanOrEqual(STATEMENTS_MAX);
});

test('a launch that is placed is due when its host is late, and not before', async () => {
  const id = await world.launch(who);
  const due = (atMs: number): Promise<string[]> => world.rooms.instances.driver.due(atMs, 10);
  const nowMs = world.clock.now();
  expect(await due(nowMs + ACKNOWLEDGE_MS - 1)).toEqual([]);
  expect(await due(nowMs + ACKNOWLEDGE_MS)).toEqual([id]);
});

test('a launch that finds its host full of containers holds no GPU, no disk and no port', async () => {
  const wanted = Array.from({ length: WORKLOADS_PER_MACHINE_MAX }, (_, i) => `w-${i}`);
  await world.db.tx('fill', async (tx) => {
    for (const id of wanted) {
      await tx.run(
        sql`insert into workloads (id, machine_id, instance_id, state, spec, created_ms, changed_ms)
            values (${id}, ${made.machineId}, ${id}, 'wanted', '{}', 0, 0)`,
      );
    }
  });
  const id = await world.launch(who);
  expect(await findInstance(world.db.read, id)).toMatchObject({ machine_id: null, region: 'eu-west' });
  expect([await count('held'), await count('ports')]).toEqual([0, 0]);
  expect(await free()).toEqual({ gpu_free: 2, disk_free_gb: 500 });
  await world.db.tx('empty', (tx) => tx.run(sql`delete from workloads`));
  await world.rooms.instances.driver.drive(id, new AbortController().signal);
  expect(await findInstance(world.db.read, id)).toMatchObject({ machine_id: made.machineId });
  expect([await count('held'), await count('ports')]).toEqual([1, 1]);
});

test('ports that were never used are taken before those that came free', async () => {
  const Port = z.object({ ssh_port: int });
  const portOf = async (id: string): Promise<number | undefined> =>
    (await world.db.read.one(Port, sql`select ssh_port from endpoints where instance_id = ${id}`))?.ssh_port;
  const first = await world.launch(who);
  await world.remove(who, first);
  const second = await world.launch(who);
  expect(await portOf(second)).toBe(((await portOf(first)) ?? 0) + 1);
});

describe('a candidate that was read before its machine was locked', () => {
  const nowMs = 1;
  const instance = newInstance(
    'i-1',
    { orgId: 'o', principalId: 'k' },
    {
      request: { ...LAUNCH, disk_gb: 100 },
      gpuType: 'H100_SXM',
      launch: { ports: [], trusted_only: false, avoided_machine_ids: [] } as unknown as Launch,
    },
    { operationId: 'op', nowMs },
  );
  const take = (change: (candidate: Candidate) => Partial<Candidate>): Promise<Place | undefined> =>
    world.db.tx('test.take', async (tx) => {
      const request = { ...wantedCapacity(instance.request, nowMs), gpuType: 'H100_SXM', minVramGb: 0 };
      const read = await candidates(tx, request);
      const changed = read.map((candidate) => ({ ...candidate, ...change(candidate) }));
      return takePlace(
        tx,
        instance,
        { fitting: changed },
        { ...world.rooms, clock: world.core.clock, ids: world.core.ids },
      );
    });

  test('is taken if nothing has changed', async () => {
    expect(await take(() => ({}))).toMatchObject({ machineId: made.machineId, diskGb: 100 });
    expect(await free()).toEqual({ gpu_free: 1, disk_free_gb: 400 });
    await world.db.tx('test.release', async (tx) => {
      const held = await tx.all(
        z.object({ held_by: text }),
        sql`select held_by from machine_gpus where held_by is not null`,
      );
      for (const row of held) await world.rooms.supply.release(tx, row.held_by);
    });
  });

  test.each<[string, (candidate: Candidate) => Partial<Candidate>]>([
    ['its price', ({ price_ucents_per_hour: price }) => ({ price_ucents_per_hour: price - 1n })],
    ['its way to hold disks to their size', () => ({ disk_configurable: false })],
    ['its place on the market', () => ({ id: 'off_gone' })],
  ])('is left alone if %s has changed', async (_what, change) => {
    expect(await take(change)).toBeUndefined();
    expect(await count('held')).toBe(0);
    expect(await free()).toEqual({ gpu_free: 2, disk_free_gb: 500 });
  });

  test('is passed over if another one is like it', async () => {
    const other = await world.machine({ gpus: 2, diskEnforced: true, storageBytes: 500 * 1024 ** 3 });
    const isGone = (candidate: Candidate): boolean => candidate.machine_id === made.machineId;
    const place = await take((candidate) => (isGone(candidate) ? { id: 'off_gone' } : {}));
    expect(place).toMatchObject({ machineId: other.machineId, gpuUuids: [expect.any(String)], diskGb: 100 });
    expect(await free()).toEqual({ gpu_free: 2, disk_free_gb: 500 });
    expect(await count('held')).toBe(1);
    await world.db.tx('test.release', (tx) => world.rooms.supply.release(tx, place?.workloadId ?? ''));
  });
});

test('SQLite reads ranges of an index for the candidates, and sorts only machines with more than eight free GPUs; launches that became ready in time are in no index that it reads', async () => {
  if (world.db.dialect !== 'sqlite') return;
  const plans: string[] = [];
  const Detail = z.object({ detail: text });
  await world.db.tx('test.plan', async (tx) => {
    const explain = async (statement: Sql): Promise<void> => {
      const plan = await tx.all(Detail, sql`explain query plan ${statement}`);
      plans.push(...plan.map(({ detail }) => detail));
    };
    const explained: Tx = {
      ...tx,
      all: async (row, statement) => (await explain(statement), tx.all(row, statement)),
      one: async (row, statement) => (await explain(statement), tx.one(row, statement)),
    };
    for (const region of ['eu-west', undefined]) {
      const wanted = wantedCapacity({ ...LAUNCH, region, max_price_per_hour: 9 }, 1);
      await candidates(explained, { ...wanted, gpuType: 'H100_SXM', minVramGb: 0 });
    }
    await unpaidLaunchesMs(explained, who.orgId, 1);
  });
  const reads = (table: string): string[] =>
    plans.filter((plan) => new RegExp(`^(SEARCH|SCAN) ${table}\\b`).test(plan));
  expect(new Set(reads('offerings'))).toEqual(
    new Set([
      'SEARCH offerings USING COVERING INDEX offerings_by_region (gpu_type=? AND tier=? AND region=? AND gpu_free=? AND price_ucents_per_hour<?)',
      'SEARCH offerings USING COVERING INDEX offerings_by_region (gpu_type=? AND tier=? AND region=? AND gpu_free>?)',
      // A launch of one GPU in any region reads one range.
      'SEARCH offerings USING COVERING INDEX offerings_with_free (gpu_type=? AND tier=? AND price_ucents_per_hour<?)',
    ]),
  );
  expect(reads('instances')).toEqual([
    'SEARCH instances USING COVERING INDEX instances_open_launches (org_id=?)',
    'SEARCH instances USING COVERING INDEX instances_given_up (org_id=? AND launch_ended_ms>?)',
    'SEARCH instances USING INDEX instances_slow (org_id=? AND ready_ms>?)',
  ]);
});
