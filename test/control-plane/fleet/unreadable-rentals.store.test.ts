// A row of one rental cannot be read any more: its host and the other rentals there go on, and its container stays.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { openArrival } from '../../../control-plane/fleet/link/arrival.ts';
import { openCloneTokens } from '../../../control-plane/fleet/link/clone-tokens.ts';
import { openLinkRecords } from '../../../control-plane/fleet/link/presence.ts';
import { findMachine, gpusOf } from '../../../control-plane/fleet/supply/store.ts';
import { findWorkload } from '../../../control-plane/fleet/workloads/store.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { createLog } from '../../../shared/log.ts';
import type { Inventory } from '../../../shared/protocol/inventory.ts';
import { helloOf, type MadeMachine } from '../../kit/machines.ts';
import { NOTHING_OBSERVED, openWorld, type World, type WorldAccount } from '../../kit/world.ts';

const PUBLIC_KEY = 'k'.repeat(43);

interface Rental {
  id: string;
  workloadId: string;
}

let world: World;
let lines: string[];
let made: MadeMachine;
let who: WorldAccount;
let bad: Rental;
let good: Rental;
beforeEach(async () => {
  lines = [];
  const log = createLog('test', 'error', { write: (line) => void lines.push(line) });
  world = await openWorld(1, { log });
  made = await world.machine({ gpus: 2, publicKey: PUBLIC_KEY });
  who = await world.customer(10_000);
  bad = await rent();
  good = await rent();
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

async function rent(): Promise<Rental> {
  const id = await world.run(who);
  return { id, workloadId: (await findInstance(world.db.read, id))?.workload_id ?? '' };
}

const spoilSpec = (): Promise<unknown> =>
  world.db.tx('test.spoil', (tx) => tx.run(sql`update workloads set spec = '{' where id = ${bad.workloadId}`));
const spoilLaunch = (): Promise<unknown> =>
  world.db.tx('test.spoil', (tx) => tx.run(sql`update instances set launch = '{}' where id = ${bad.id}`));
/** Every test mends the row, because the world proves its books at the end. */
async function repair<T>(table: 'spec' | 'launch', whileSpoilt: () => Promise<T>): Promise<T> {
  const { spec } = (await findWorkload(world.db.read, bad.workloadId)) ?? {};
  const { launch } = (await findInstance(world.db.read, bad.id)) ?? {};
  await (table === 'spec' ? spoilSpec() : spoilLaunch());
  const result = await whileSpoilt();
  await world.db.tx('test.repair', async (tx) => {
    const { state } = (await findWorkload(tx, bad.workloadId)) ?? {};
    if (state === 'wanted')
      await tx.run(sql`update workloads set spec = ${JSON.stringify(spec)} where id = ${bad.workloadId}`);
    await tx.run(sql`update instances set launch = ${JSON.stringify(launch)} where id = ${bad.id}`);
  });
  return result;
}

const desired = () => world.rooms.workloads.desired(made.machineId);
const report = (phase: 'running' | 'removed', detail: string | null = null): Promise<boolean> =>
  world.rooms.workloads.observe(made.machineId, {
    type: 'observed',
    held: null,
    unknown_workload_ids: [],
    workloads: [bad, good].map(({ workloadId }) => ({ ...NOTHING_OBSERVED, workload_id: workloadId, phase, detail })),
  });

/** What the host says of all its GPUs. */
async function brokenGpus(): Promise<Inventory> {
  const gpus = await gpusOf(world.db.read, made.machineId);
  const faults = gpus.map(({ gpu_uuid: uuid }) => ({ uuid, severity: 'broken' as const, detail: 'Xid 79' }));
  return { ...made.inventory, gpu_faults: faults };
}

test('a workload that cannot be read is named in the log, and the list goes out with the others', async () => {
  await repair('spec', async () => {
    expect((await desired()).workloads.map((one) => one.workload_id)).toEqual([good.workloadId]);
    expect(lines.filter((line) => line.includes(bad.workloadId))).toHaveLength(1);
  });
});

test('the report about a workload that cannot be read counts, and the list that names it again has a higher revision', async () => {
  await repair('spec', async () => {
    const { revision } = await desired();
    expect(await report('running', 'slow')).toBe(true);
    expect((await findWorkload(world.db.read, bad.workloadId))?.observed?.detail).toBe('slow');
    expect((await desired()).revision).toBeGreaterThan(revision);
    expect((await findMachine(world.db.read, made.machineId))?.unknown_workloads).toEqual([]);
  });
});

test('a rental whose workload cannot be read ends as others do', async () => {
  await repair('spec', async () => {
    await world.remove(who, bad.id);
    const listed = (await desired()).workloads.find((one) => one.workload_id === bad.workloadId);
    expect(listed).toMatchObject({ desired: 'removed', instance_id: bad.id });
    await report('removed');
    await world.drive();
    expect((await findWorkload(world.db.read, bad.workloadId))?.state).toBe('gone');
    expect(await findInstance(world.db.read, bad.id)).toMatchObject({ status: 'terminated' });
  });
});

test('a report of the host that can no longer be read is replaced by its next one', async () => {
  const spoilt = sql`update workloads set observed = '{}' where id = ${bad.workloadId}`;
  await world.db.tx('test.spoil', (tx) => tx.run(spoilt));
  await report('running');
  expect((await findWorkload(world.db.read, bad.workloadId))?.observed?.phase).toBe('running');
});

test('an instance that cannot be read keeps no report of its host from the others, and its host is asked to repeat it', async () => {
  await repair('launch', async () => {
    expect(await report('running', 'slow')).toBe(true);
    expect((await findWorkload(world.db.read, good.workloadId))?.observed?.detail).toBe('slow');
    expect(await world.rooms.supply.reportInventory(made.machineId, await brokenGpus())).toBe(false);
    expect((await findInstance(world.db.read, good.id))?.gpu_fault).toContain('Xid 79');
    expect(lines.filter((line) => line.includes(bad.id))).toHaveLength(1);
  });
  expect(await world.rooms.supply.reportInventory(made.machineId, await brokenGpus())).toBe(true);
  expect((await findInstance(world.db.read, bad.id))?.gpu_fault).toContain('Xid 79');
});

test('the hello of a host is taken although an instance there cannot be read', async () => {
  const { core, rooms } = world;
  const arrive = openArrival({
    db: core.db,
    cloneTokens: openCloneTokens(core),
    records: openLinkRecords(core),
    supply: rooms.supply,
    meet: rooms.workloads.meet,
  });
  await repair('launch', async () => {
    const hello = helloOf(made, { inventory: await brokenGpus() });
    await arrive(made.machineId, hello, { clientIp: '192.0.2.1', publicKey: PUBLIC_KEY });
  });
  expect((await findInstance(world.db.read, good.id))?.gpu_fault).toContain('Xid 79');
});
