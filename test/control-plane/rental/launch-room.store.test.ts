// The disk that a host has left: a launch that names no size needs some too, and the disk of a removed container is not free yet.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { countRow } from '../../../control-plane/base/db/columns.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { listedOfferings } from '../../../control-plane/fleet/supply/catalog.ts';
import { gpusOf } from '../../../control-plane/fleet/supply/store.ts';
import { findInstance, type InstanceRow } from '../../../control-plane/rental/instances/store.ts';
import type { CreateInstance } from '../../../shared/api/instance.ts';
import { openOperator } from '../../kit/operator.ts';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';

const GIB = 1024 ** 3;
const DOLLAR = 100_000_000n;

let world: World;
let who: WorldAccount;
let machineId: string;
beforeEach(async () => {
  world = await openWorld();
  who = await world.customer(1_000_000);
  ({ machineId } = await world.machine({ gpus: 3, dollars: 1, diskEnforced: true, storageBytes: 105 * GIB }));
  await world.launch(who, { disk_gb: 96 });
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

async function launched(request: Partial<CreateInstance> = {}): Promise<InstanceRow | undefined> {
  const id = await world.launch(who, request);
  await world.drive();
  return findInstance(world.db.read, id);
}

async function heldGb(): Promise<number | undefined> {
  const held = sql`select cast(sum(held_disk_gb) as bigint) as count from machine_gpus where machine_id = ${machineId}`;
  return (await world.db.read.one(countRow, held))?.count;
}

test('it goes elsewhere, although that costs more', async () => {
  await world.machine({ gpus: 1, dollars: 2 });
  expect(await launched()).toMatchObject({ status: 'allocating', disk_gb: null, price_ucents_per_hour: 2n * DOLLAR });
});

test('it fails if there is no other host, and the customer and the operator read why', async () => {
  const failed = await launched();
  expect(failed).toMatchObject({ status: 'error', machine_id: null });
  expect(failed?.status_reason).toContain('1 with enough of them free, 0 with at least 10 GB of disk left');
  const [offering] = await listedOfferings(world.db.read, { count: 1 });
  const pinned = await launched({ offering_id: offering?.id ?? '' });
  expect(pinned?.status_reason).toContain('and 9 GB of disk left');
  expect(await heldGb()).toBe(96);
  const { filters } = await openOperator(world).ask('GET', `/admin/instances/${failed?.id ?? ''}/placement`);
  expect(filters).toContainEqual({ filter: '10 GB of disk left', field: null, removed: 1, left: 0 });
});

test('it takes the last ten gigabytes', async () => {
  const { machineId: other } = await world.machine({
    gpus: 2,
    dollars: 1,
    diskEnforced: true,
    storageBytes: 106 * GIB,
  });
  await launched({ disk_gb: 96 });
  expect(await launched()).toMatchObject({ machine_id: other, disk_gb: 10 });
});

test('it does not take a slot of its contract on such a host', async () => {
  const now = world.clock.now();
  await world.rooms.reservations.create({
    org_id: who.orgId,
    title: 'training',
    starts_at: new Date(now).toISOString(),
    ends_at: new Date(now + 30 * 86_400_000).toISOString(),
    renewal: 'none',
    commitment: [{ gpu_type: 'H100_SXM', region: 'eu-west', gpu_count: 2 }],
  });
  await expect(world.launch(who, { tier: 'reserved' })).rejects.toThrow('none of these hosts has 10 GB of disk left');
  expect(await heldGb()).toBe(96);
});

test('the disk of a removed container is sold again only when its host has removed it, although its GPU is free', async () => {
  const tenant = await world.customer(100_000);
  const { machineId: other, inventory } = await world.machine({
    gpus: 2,
    dollars: 0.5,
    diskEnforced: true,
    storageBytes: 300 * GIB,
  });
  const freeGb = async (): Promise<number | undefined> => {
    const free = sql`select disk_free_gb as count from offerings where machine_id = ${other}`;
    return (await world.db.read.one(countRow, free))?.count;
  };
  const id = await world.run(tenant, { disk_gb: 200 });
  await world.remove(tenant, id);
  await world.observe(id, { phase: 'stopped' });
  await world.drive();
  expect(await freeGb()).toBe(100);
  expect((await gpusOf(world.db.read, other)).map((gpu) => gpu.held_by)).toEqual([null, null]);
  // Neither another launch nor a report of the host changes that.
  expect(await launched({ disk_gb: 101 })).toMatchObject({ status: 'error' });
  const second = await launched({ disk_gb: 60 });
  expect([second?.machine_id, await freeGb()]).toEqual([other, 40]);
  await world.rooms.supply.reportInventory(other, { ...inventory, cpu_cores: 8 });
  expect(await freeGb()).toBe(40);
  await world.observe(id, { phase: 'stopped' });
  await world.observe(id, { phase: 'removed' });
  expect(await freeGb()).toBe(240);
});
