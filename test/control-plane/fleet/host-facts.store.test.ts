// The figures of a host that customers compare and require, as its inventories change.
import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { raw, sql } from '../../../control-plane/base/db/db.ts';
import { listedOfferings } from '../../../control-plane/fleet/supply/catalog.ts';
import { candidates, type CapacityRequest, cheapestType } from '../../../control-plane/fleet/supply/offerings.ts';
import type { Requirements } from '../../../shared/api/requirements.ts';
import type { Inventory } from '../../../shared/protocol/inventory.ts';
import { shapeOf } from '../../../agent/runtime/shape.ts';
import { countCards } from '../../../shared/protocol/inventory.ts';
import { ANYWHERE } from '../../kit/machines.ts';
import { openWorld, type World } from '../../kit/world.ts';

const GIB = 1024 ** 3;
const L40S = { name: 'NVIDIA L40S', memory_mib: 46_068 };
const A40 = { name: 'NVIDIA A40', memory_mib: 46_068 };

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(() => world.close());

const report = async (machineId: string, inventory: Inventory): Promise<void> => {
  await world.rooms.supply.reportInventory(machineId, inventory);
  await world.rooms.supply.approve(machineId);
};
const listed = (filters = {}) => listedOfferings(world.db.read, { count: 10 }, filters);
const request: CapacityRequest = {
  gpuType: 'H100_SXM',
  gpuCount: 1,
  ...ANYWHERE,
};
const fits = async (patch: Partial<CapacityRequest>): Promise<number> =>
  (await candidates(world.db.read, { ...request, ...patch })).length;

test('a new driver and another number of GPUs are shown with the next inventory', async () => {
  const { machineId, inventory } = await world.machine({ gpus: 4 });
  const [first, ...others] = inventory.gpus;
  await report(machineId, {
    ...inventory,
    gpus: [...others.slice(0, 1), first]
      .flatMap((gpu) => gpu ?? [])
      .map((gpu) => ({ ...gpu, driver_version: '580.65.06' })),
  });
  expect(await listed()).toMatchObject([{ host_gpu_count: 2, driver_version: '580.65.06', cuda_version: 13_000 }]);
});

test('a lost GPU keeps its share of the host, as the agent gives it', async () => {
  const { machineId, inventory } = await world.machine({ gpus: 4, cpuCores: 64, ramBytes: 512 * GIB });
  const [lost, ...others] = inventory.gpus;
  const detail = 'nvidia-smi does not list it any more';
  const left = {
    ...inventory,
    gpus: others,
    gpu_faults: [{ uuid: lost?.uuid ?? '', severity: 'broken' as const, detail }],
  };
  await report(machineId, left);
  expect(await listed()).toMatchObject([{ host_gpu_count: 4, gpu_free: 3 }]);
  const machine = {
    cpu_cores: left.cpu_cores,
    ram_bytes: left.ram_bytes,
    gpu_count: countCards(left),
    limits: { memlock_bytes: -1, nofile: 1 },
  };
  const shape = shapeOf(
    { gpu_uuids: ['a', 'b'] } as unknown as Parameters<typeof shapeOf>[0],
    { env: [], stop_signal: '' } as unknown as Parameters<typeof shapeOf>[1],
    { entrypoint: [], mounts: [] },
    machine,
  );
  const [cores, ramGb] = [shape.nano_cpus / 1e9, Math.floor(shape.memory_bytes / GIB)];
  const requires = (requirements: Requirements): Promise<number> => fits({ gpuCount: 2, requirements });
  expect(await requires({ min_cpu_cores: cores, min_ram_gb: ramGb })).toBe(1);
  expect(await requires({ min_cpu_cores: cores + 1 })).toBe(0);
  expect(await requires({ min_ram_gb: ramGb + 1 })).toBe(0);
});

test('the GPUs of another type share the host too', async () => {
  const { machineId, inventory } = await world.machine({ gpus: 2, cpuCores: 32 });
  const gpus = inventory.gpus.map((gpu, index) => (index === 0 ? gpu : { ...gpu, ...L40S }));
  await report(machineId, { ...inventory, gpus });
  expect((await listed()).map((row) => row.host_gpu_count)).toEqual([2, 2]);
  expect(await fits({ requirements: { min_cpu_cores: 16 } })).toBe(1);
  expect(await fits({ requirements: { min_cpu_cores: 17 } })).toBe(0);
});

test('a GPU that is lent is lent only on a host that meets the requirements', async () => {
  const { machineId } = await world.machine({ cpuCores: 8 });
  const startsMs = world.clock.now() + 3_600_000;
  const want = { machineId, gpuType: 'H100_SXM', count: 1, reservedBy: 'r', startsMs, endsMs: null };
  await world.db.tx('reserve', (tx) => world.rooms.supply.reserve(tx, want));
  const borrowed = { endsMs: startsMs - 1 };
  expect(await fits({ ...borrowed, requirements: { min_cpu_cores: 8 } })).toBe(1);
  expect(await fits({ ...borrowed, requirements: { min_cpu_cores: 9 } })).toBe(0);
});

test('filters count what is free now: GPUs, and the disk with its price', async () => {
  const { machineId } = await world.machine({ gpus: 2, dollars: 1, diskEnforced: true, storageBytes: 500 * GIB });
  const cost = 2 + 2 * 100 * Number((await listed())[0]?.disk_price_ucents_per_gb_hour ?? 0n) * 1e-8;
  const isListed = async (filters: object): Promise<boolean> => (await listed(filters)).length === 1;
  expect(await isListed({ gpu_count: 2, disk_gb: 500 })).toBe(true);
  expect(await isListed({ gpu_count: 2, disk_gb: 300, max_price_per_hour: cost })).toBe(true);
  expect(await isListed({ gpu_count: 2, disk_gb: 300, max_price_per_hour: cost - 0.0001 })).toBe(false);
  const want = { gpuType: 'H100_SXM', count: 1, heldBy: 'w', reservedBy: null, endsMs: null, diskGb: 100 };
  await world.db.tx('hold', (tx) => world.rooms.supply.hold(tx, { ...want, machineIds: [machineId] }));
  expect(await isListed({ gpu_count: 1, disk_gb: 400 })).toBe(true);
  expect(await isListed({ gpu_count: 1, disk_gb: 401 })).toBe(false);
  expect(await isListed({ gpu_count: 2 })).toBe(false);
});

test('among several types that are busy, one that could ever take the launch is chosen', async () => {
  const busy = await world.machine({ gpu: L40S, dollars: 2, cpuCores: 64, diskEnforced: true });
  await world.machine({ gpu: A40, dollars: 1, cpuCores: 4 });
  const want = { gpuType: 'L40S', count: 1, heldBy: 'w', reservedBy: null, endsMs: null, diskGb: 0 };
  await world.db.tx('hold', (tx) => world.rooms.supply.hold(tx, { ...want, machineIds: [busy.machineId] }));
  const { gpuType: _type, ...untyped } = request;
  const cheapest = (patch: Partial<CapacityRequest>): Promise<string | undefined> =>
    cheapestType(world.db.read, { ...untyped, ...patch });
  const requirements = { gpu_types: ['L40S', 'A40'] };
  expect(await cheapest({ requirements })).toBe('A40');
  expect(await cheapest({ requirements: { ...requirements, min_cpu_cores: 32 } })).toBe('L40S');
  expect(await cheapest({ requirements, diskGb: 200 })).toBe('L40S');
});

test('after the upgrade, a host that links with the inventory of before fills the new figures', async () => {
  const { machineId, inventory } = await world.machine({ gpus: 3 });
  const other = await world.machine({ gpus: 2 });
  await world.db.tx('before', (tx) => tx.run(sql`update offerings set host_gpu_count = 0, cuda_version = 0`));
  const file = new URL('../../../control-plane/fleet/supply/migrations/0019-host-facts.sql', import.meta.url);
  const updates = readFileSync(file, 'utf8')
    .split(/;\n/)
    .filter((statement) => /^update /m.test(statement));
  expect(updates).toHaveLength(2);
  for (const statement of updates) await world.db.tx('migrate', (tx) => tx.run(sql`${raw(statement)}`));
  const shown = async () => (await listed()).map((row) => `${row.host_gpu_count} ${row.cuda_version}`).toSorted();
  expect(await shown()).toEqual(['2 0', '3 0']);
  await world.db.tx('link', async (tx) => {
    await tx.lock('machine', machineId);
    const facts = await world.rooms.supply.factsOf(tx, machineId);
    if (facts === undefined) throw new Error('no facts');
    await world.rooms.supply.arrive(tx, facts, inventory);
  });
  expect(await shown()).toEqual(['2 0', '3 12040']);
  const { machine } = (await world.rooms.supply.factsOf(world.db.read, other.machineId)) ?? {};
  expect(machine?.inventory?.agent_version).toBe(`before the upgrade: ${inventory.agent_version}`);
});
