// What a supplier reads about a machine: whether the host matches its declaration, and why it is not on offer.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { machineView } from '../../../control-plane/fleet/supply/machine-view.ts';
import { findMachine, gpusOf, type MachineRow } from '../../../control-plane/fleet/supply/store.ts';
import { obstacleOf } from '../../../control-plane/fleet/supply/checks.ts';
import type { Inventory } from '../../../shared/protocol/inventory.ts';
import { inventoryOf, loseHost, type MadeMachine, NO_FACTS } from '../../kit/machines.ts';
import { openWorld, type World } from '../../kit/world.ts';

let world: World;
let made: MadeMachine;
beforeEach(async () => {
  world = await openWorld();
  made = await world.machine({ gpus: 2 });
});
afterEach(() => world.close());

const machine = async (): Promise<MachineRow> => {
  const row = await findMachine(world.db.read, made.machineId);
  if (row === undefined) throw new Error('the machine is gone');
  return row;
};
const declare = (patch: Parameters<World['rooms']['supply']['change']>[3]): Promise<MachineRow> =>
  world.db.tx('change', (tx) => world.rooms.supply.change(tx, made.orgId, made.machineId, patch));

/** The two GPUs of the host, with changes. */
async function report(patch: Partial<Inventory>): Promise<void> {
  const uuids = (await gpusOf(world.db.read, made.machineId)).map((gpu) => gpu.gpu_uuid);
  const plain = inventoryOf(2, () => '');
  const gpus = plain.gpus.map((gpu, i) => ({ ...gpu, uuid: uuids[i] ?? '' }));
  await world.rooms.supply.reportInventory(made.machineId, { ...plain, gpus, ...patch });
}

test.each([
  ['nothing', {}],
  ['exactly what is there', { declared_gpu_count: 2, declared_gpu_type: 'H100_SXM', declared_vram_per_gpu_gb: 80 }],
  ['the type in other letters', { declared_gpu_type: 'h100_sxm' }],
])('a declaration with %s leaves the machine unverified and not failed', async (_what, patch) => {
  expect(await declare(patch)).toMatchObject({ verification_status: 'unverified', verification_detail: null });
});

test.each([
  [{ declared_gpu_count: 8 }, 'gpu_count is declared as 8, the host shows 2.'],
  [{ declared_gpu_count: 1 }, 'gpu_count is declared as 1, the host shows 2.'],
  [{ declared_gpu_type: 'H200' }, 'gpu_type is declared as H200, the host shows H100_SXM.'],
  [{ declared_vram_per_gpu_gb: 94 }, 'vram_per_gpu_gb is declared as 94, the host shows 80.'],
  [
    { declared_gpu_count: 3, declared_vram_per_gpu_gb: 81 },
    'gpu_count is declared as 3, the host shows 2; vram_per_gpu_gb is declared as 81, the host shows 80.',
  ],
])('a declaration with %j is failed with a reason, and can be corrected', async (patch, detail) => {
  expect(await declare(patch)).toMatchObject({ verification_status: 'failed', verification_detail: detail });
  const nothing = { declared_gpu_count: null, declared_gpu_type: null, declared_vram_per_gpu_gb: null };
  expect(await declare(nothing)).toMatchObject({ verification_status: 'unverified', verification_detail: null });
});

test('a GPU that disappears later makes the verification fail; a GPU whose driver fails is only not counted', async () => {
  await declare({ declared_gpu_count: 2 });
  await report({ gpus: (await machine()).inventory?.gpus.slice(0, 1) ?? [] });
  expect(await machine()).toMatchObject({ verification_status: 'failed' });
  await report({ gpus: [], gpu_error: 'Driver/library version mismatch' });
  expect(await machine()).toMatchObject({
    verification_status: 'unverified',
    verification_detail: 'The GPUs cannot be counted; on the host, nvidia-smi says: Driver/library version mismatch',
  });
});

async function reportUse(inUse: boolean[]): Promise<void> {
  const gpus = (await machine()).inventory?.gpus ?? [];
  await report({ gpus: gpus.map((gpu, i) => ({ ...gpu, foreign_use: inUse[i] ?? false })) });
}

/** The host reports a fault of the first `count` of its GPUs. */
async function reportFaults(count: number): Promise<void> {
  const gpus = (await machine()).inventory?.gpus.slice(0, count) ?? [];
  await report({
    gpu_faults: gpus.map(({ uuid }) => ({ uuid, severity: 'unfit', detail: 'Xid 74: its NVLink has failed' })),
  });
}

const OBSTACLES: [string, () => Promise<unknown>, string][] = [
  ['offline', () => loseHost(world, made.machineId), 'agent of the host is not connected'],
  ['without an engine', () => report({ engine_version: '' }), 'Docker Engine of the host does not answer'],
  [
    'whose fence does not stand',
    () => report({ fence_error: 'the program nft is missing' }),
    'the program nft is missing',
  ],
  [
    'whose container toolkit lets containers out',
    () => report({ container_toolkit_version: '1.17.7' }),
    'lets containers out (CVE-2025-23266, CVE-2025-23267): install 1.17.8 or newer',
  ],
  ['without the GPUs that were approved', () => report({ gpus: [] }), 'does not show 2 of the 2 GPUs'],
  ['whose nvidia-smi fails', () => report({ gpus: [], gpu_error: 'x' }), 'nvidia-smi fails'],
  ['whose GPUs others use', () => reportUse([true, true]), 'Processes outside of this service'],
  ['whose GPUs are all unfit', () => reportFaults(2), 'are unfit: Xid 74: its NVLink has failed'],
  ['with containers that nobody knows', () => unknown(['w']), 'does not know'],
  ['that has not said what it runs', () => unknown(null), 'has not said yet'],
  ['suspended', () => world.rooms.supply.suspend(made.machineId), 'operator has suspended it'],
  ['of a suspended supplier', () => world.rooms.supply.suspendSupplier(made.supplierId), 'suspended the supplier'],
  ['delisted', () => world.db.tx('d', (tx) => world.rooms.supply.delist(tx, made.orgId, made.machineId)), 'delisted'],
];
const unknown = (ids: string[] | null): Promise<void> =>
  world.db.tx('unknown', (tx) => world.rooms.supply.setUnknownWorkloads(tx, made.machineId, ids));

test.each(OBSTACLES)('a machine %s is not on offer, and its supplier reads the reason', async (_what, make, why) => {
  expect(obstacleOf(await machine())).toBeUndefined();
  await make();
  expect(obstacleOf(await machine())).toContain(why);
});

test('one GPU without foreign use is enough for an offering', async () => {
  await reportUse([true, false]);
  expect(obstacleOf(await machine())).toBeUndefined();
});

test('one healthy GPU is enough for an offering; the other is not rented, and its supplier reads the reason until it is repaired', async () => {
  await reportFaults(1);
  const row = await machine();
  expect(obstacleOf(row)).toBeUndefined();
  const [sick, fit] = await gpusOf(world.db.read, made.machineId);
  expect(machineView(row, NO_FACTS).gpu_faults).toEqual([
    { gpu_uuid: sick?.gpu_uuid, severity: 'unfit', detail: 'Xid 74: its NVLink has failed' },
  ]);
  const hold = async (): Promise<string[] | undefined> => {
    const held = await world.db.tx('hold', (tx) =>
      world.rooms.supply.hold(tx, {
        machineIds: [made.machineId],
        gpuType: 'H100_SXM',
        count: 1,
        heldBy: world.clock.now().toString(),
        reservedBy: null,
        endsMs: null,
        diskGb: 0,
      }),
    );
    return held?.gpuUuids;
  };
  expect(await hold()).toEqual([fit?.gpu_uuid]);
  expect(await hold()).toBeUndefined();
  await reportFaults(0);
  expect(machineView(await machine(), NO_FACTS).gpu_faults).toEqual([]);
  expect(await hold()).toEqual([sick?.gpu_uuid]);
});

test('the status reason names the missing enrolment, and then the missing approval', async () => {
  const { supply } = world.rooms;
  const declared = { gpuCount: null, gpuType: null, vramPerGpuGb: null, region: 'eu', tier: 'on_demand' } as const;
  const { machine: fresh, token } = await world.db.tx('register', (tx) =>
    supply.registerMachine(tx, made.orgId, { ...declared, priceUcentsPerHour: 1n }),
  );
  expect(obstacleOf(fresh)).toBe('The host has not enrolled yet.');
  await supply.enroll({ token, public_key: 'n'.repeat(43), inventory: inventoryOf(1, () => 'n') });
  const enrolled = await findMachine(world.db.read, fresh.id);
  expect(enrolled && obstacleOf(enrolled)).toBe("The operator's approval is awaited.");
});
