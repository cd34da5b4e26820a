// Changes to rows of supply touch one machine, one token or one GPU, and leave their neighbours as they are.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { int, text } from '../../../control-plane/base/db/columns.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { refreshOfferings } from '../../../control-plane/fleet/supply/offerings.ts';
import {
  countMachines,
  countMachinesByState,
  gpusOf,
  gpuUseOf,
  machineOfOrg,
  type GpuRow,
} from '../../../control-plane/fleet/supply/store.ts';
import type { Held, Want } from '../../../control-plane/fleet/supply/holding.ts';
import { createLog } from '../../../shared/log.ts';
import { inventoryOf, type MadeMachine } from '../../kit/machines.ts';
import { openWorld, type World } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const GIB = 1024 ** 3;

let world: World;
let made: MadeMachine;
let other: MadeMachine;
beforeEach(async () => {
  world = await openWorld();
  made = await world.machine({ gpus: 4, diskEnforced: true, storageBytes: 1_000 * GIB });
  other = await world.machine({ gpus: 4 });
});
afterEach(() => world.close());

const gpus = (machine = made): Promise<GpuRow[]> => gpusOf(world.db.read, machine.machineId);
const holdWith = (heldBy: string, patch: Partial<Want>): Promise<Held | undefined> =>
  world.db.tx('hold', (tx) =>
    world.rooms.supply.hold(tx, {
      machineIds: [made.machineId],
      gpuType: 'H100_SXM',
      count: 1,
      heldBy,
      reservedBy: null,
      endsMs: null,
      diskGb: 0,
      ...patch,
    }),
  );
const hold = async (heldBy: string, patch: Partial<Want> = {}): Promise<string[] | undefined> =>
  (await holdWith(heldBy, patch))?.gpuUuids;
const release = (heldBy: string): Promise<void> =>
  world.db.tx('release', (tx) => world.rooms.supply.release(tx, heldBy));
const reserve = (reservedBy: string, startsInMs: number, count = 1): Promise<boolean> =>
  world.db.tx('reserve', (tx) =>
    world.rooms.supply.reserve(tx, {
      machineId: made.machineId,
      gpuType: 'H100_SXM',
      count,
      reservedBy,
      startsMs: world.clock.now() + startsInMs,
      endsMs: null,
    }),
  );
const offered = (machine = made): Promise<{ gpu_free: number; storage_gb: number } | undefined> =>
  world.db.read.one(
    z.object({ gpu_type: text, vram_gb: int, gpu_free: int, storage_gb: int }),
    sql`select gpu_type, vram_gb, gpu_free, storage_gb from offerings where machine_id = ${machine.machineId} and listed = 1`,
  );

describe('a hold', () => {
  test('takes as many GPUs as it needs, in order, with its disk on one of them, and no more than one launch releases', async () => {
    expect(await hold('w-1', { count: 2, diskGb: 300 })).toHaveLength(2);
    expect(await hold('w-2')).toHaveLength(1);
    expect((await gpus()).map((gpu) => gpu.held_by)).toEqual(['w-1', 'w-1', 'w-2', null]);
    const disksGb = (await gpus()).map((gpu) => gpu.held_disk_gb);
    expect([...disksGb.slice(0, 2).toSorted((a, b) => a - b), ...disksGb.slice(2)]).toEqual([0, 300, 0, 0]);
    expect((await gpus(other)).every((gpu) => gpu.held_by === null)).toBe(true);
    await release('w-1');
    expect((await gpus()).map((gpu) => [gpu.held_by, gpu.held_disk_gb])).toEqual([
      [null, 0],
      [null, 0],
      ['w-2', 0],
      [null, 0],
    ]);
    expect(await offered()).toMatchObject({ gpu_free: 3 });
  });

  test('of more GPUs than are free holds none', async () => {
    await hold('w-1', { count: 3 });
    expect(await hold('w-2', { count: 2 })).toBeUndefined();
    expect((await gpus()).filter((gpu) => gpu.held_by === 'w-2')).toEqual([]);
    expect(await hold('w-3', { gpuType: 'H200' })).toBeUndefined();
    expect(await offered()).toMatchObject({ gpu_free: 1 });
  });

  test('takes lent GPUs first, those of the contract that begins first before others, and then free ones', async () => {
    await reserve('late', 30 * HOUR_MS);
    await reserve('soon', 20 * HOUR_MS);
    await reserve('now', HOUR_MS);
    const endsMs = world.clock.now() + 10 * HOUR_MS;
    const contractOf = async (uuid: string | undefined): Promise<string | null | undefined> =>
      (await gpus()).find((gpu) => gpu.gpu_uuid === uuid)?.reserved_by;
    const taken: (string | null | undefined)[] = [];
    for (const name of ['w-1', 'w-2', 'w-3', 'w-4']) taken.push(await contractOf((await hold(name, { endsMs }))?.[0]));
    // The contract that begins in an hour lends nothing.
    expect(taken).toEqual(['soon', 'late', null, undefined]);
  });

  test('under a contract takes its slots alone', async () => {
    await reserve('r-1', 0, 2);
    await reserve('r-2', 0);
    expect(await hold('w-1', { reservedBy: 'r-1', count: 3 })).toBeUndefined();
    expect(await hold('w-1', { reservedBy: 'r-1', count: 2 })).toHaveLength(2);
    expect((await gpus()).map((gpu) => [gpu.reserved_by, gpu.held_by])).toEqual([
      ['r-1', 'w-1'],
      ['r-1', 'w-1'],
      ['r-2', null],
      [null, null],
    ]);
  });

  test('of a disk leaves the rest of the disk to others, and never less than nothing', async () => {
    const freeGb = async (): Promise<number | undefined> => {
      const rows = await world.db.read.all(
        z.object({ disk_free_gb: int }),
        sql`select disk_free_gb from offerings where machine_id = ${made.machineId}`,
      );
      return rows[0]?.disk_free_gb;
    };
    expect(await freeGb()).toBe(1_000);
    await hold('w-1', { diskGb: 300 });
    await hold('w-2', { diskGb: 600 });
    expect(await freeGb()).toBe(100);
    await world.rooms.supply.reportInventory(made.machineId, { ...made.inventory, storage_bytes: 500 * GIB });
    expect(await freeGb()).toBe(0);
    await release('w-2');
    expect(await freeGb()).toBe(200);
  });
});

describe('an offering', () => {
  test('is gone with the last usable GPU of its type, and shows the smallest VRAM of the usable ones', async () => {
    const mixed = made.inventory.gpus.map((gpu, i) => ({
      ...gpu,
      name: 'NVIDIA GeForce RTX 4090',
      memory_mib: i === 0 ? 24_564 : 49_140,
    }));
    const report = (foreign: boolean[]): Promise<unknown> =>
      world.rooms.supply.reportInventory(made.machineId, {
        ...made.inventory,
        gpus: mixed.map((gpu, i) => ({ ...gpu, foreign_use: foreign[i] ?? false })),
      });
    await report([]);
    await world.rooms.supply.approve(made.machineId);
    expect(await offered()).toMatchObject({ gpu_type: 'RTX_4090', vram_gb: 24, gpu_free: 4 });
    await report([true]);
    expect(await offered()).toMatchObject({ vram_gb: 48, gpu_free: 3 });
    await report([true, true, true, true]);
    expect(await offered()).toBeUndefined();
  });

  test('of an unknown machine is none, and a refresh leaves other machines alone', async () => {
    const now = { newId: () => 'off_x', nowMs: 0, diskPriceUcentsPerGbHour: 1n };
    const before = await offered(other);
    await world.db.tx('refresh', async (tx) => {
      await refreshOfferings(tx, 'nobody', now);
      await tx.run(sql`update machines set online = 0 where id = ${made.machineId}`);
      await refreshOfferings(tx, made.machineId, now);
    });
    expect(await offered()).toBeUndefined();
    expect(await offered(other)).toEqual(before);
  });
});

describe('a token', () => {
  const declared = { gpuCount: null, gpuType: null, vramPerGpuGb: null, region: 'eu', tier: 'on_demand' } as const;
  const register = (): Promise<{ machine: { id: string }; token: string }> =>
    world.db.tx('register', (tx) =>
      world.rooms.supply.registerMachine(tx, made.orgId, { ...declared, priceUcentsPerHour: 1n }),
    );
  const enroll = (token: string, name: string): Promise<{ machineId: string }> =>
    world.rooms.supply.enroll({ token, public_key: name.repeat(43), inventory: inventoryOf(1, () => name) });

  test('ends with the next one of its machine, and not with that of another machine', async () => {
    const [first, second] = [await register(), await register()];
    const again = (id: string): Promise<{ token: string }> =>
      world.db.tx('again', (tx) => world.rooms.supply.reissueToken(tx, made.orgId, id));
    const next = await again(first.machine.id);
    await again(first.machine.id);
    await expect(enroll(next.token, 'a')).rejects.toMatchObject({ code: 'enrollment_token_expired' });
    expect(await enroll(second.token, 'b')).toEqual({ machineId: second.machine.id });
    // The first of all is forgotten by now.
    await expect(enroll(first.token, 'a')).rejects.toMatchObject({ code: 'enrollment_token_invalid' });
  });

  test('that was used stays valid for its host, after its day too', async () => {
    const { machine, token } = await register();
    await enroll(token, 'a');
    await world.clock.advance(48 * HOUR_MS);
    expect(await enroll(token, 'a')).toEqual({ machineId: machine.id });
    await expect(enroll(token, 'b')).rejects.toMatchObject({ code: 'enrollment_token_used' });
    expect((await world.journal(machine.id)).filter((type) => type === 'machine.enrolled')).toHaveLength(1);
  });
});

test('the use of GPUs is counted by machine and type: rented ones, and reserved ones that nobody rents', async () => {
  await reserve('r-1', 0, 2);
  await hold('w-1', { reservedBy: 'r-1' });
  await hold('w-2');
  const row = { gpu_type: 'H100_SXM', vram_gb: 80, count: 4 };
  const [first, second] = [made, other].map(({ machineId }) => machineId) as [string, string];
  expect(await gpuUseOf(world.db.read, [first, second])).toEqual(
    [
      { ...row, machine_id: first, rented: 2, reserved: 1 },
      { ...row, machine_id: second, rented: 0, reserved: 0 },
    ].toSorted((a, b) => (a.machine_id < b.machine_id ? -1 : 1)),
  );
  expect(await gpuUseOf(world.db.read, [second])).toHaveLength(1);
  expect(await gpuUseOf(world.db.read, [])).toEqual([]);
});

test('machines are counted by status: those with unknown workloads, and those whose verification has failed', async () => {
  const counts = async (): Promise<unknown[]> => [
    await countMachines(world.db.read, 'withUnknown'),
    await countMachines(world.db.read, 'failed'),
    ...(await countMachinesByState(world.db.read)),
  ];
  const listed = { status: 'listed', online: true, count: 2 };
  expect(await counts()).toEqual([0, 0, listed]);
  await world.db.tx('unknown', (tx) => world.rooms.supply.setUnknownWorkloads(tx, made.machineId, ['w']));
  await world.rooms.supply.reportInventory(other.machineId, { ...other.inventory, gpus: [] });
  expect(await counts()).toEqual([1, 1, listed]);
  await world.db.tx('unknown', (tx) => world.rooms.supply.setUnknownWorkloads(tx, made.machineId, null));
  await world.rooms.supply.suspend(other.machineId);
  // Nothing is approved any more that could be missing.
  expect(await counts()).toEqual([1, 0, { ...listed, count: 1 }, { ...listed, count: 1, status: 'suspended' }]);
  await world.rooms.supply.setAllOffline();
  expect(await counts()).toMatchObject([
    0,
    0,
    { status: 'listed', online: false },
    { status: 'suspended', online: false },
  ]);
});

test('a machine is found by its own organisation alone', async () => {
  expect(await machineOfOrg(world.db.read, made.orgId, made.machineId)).toMatchObject({ id: made.machineId });
  expect(await machineOfOrg(world.db.read, other.orgId, made.machineId)).toBeUndefined();
  expect(await machineOfOrg(world.db.read, made.orgId, 'nobody')).toBeUndefined();
});

test.each([
  [['w'], 1],
  [['w', 'x'], 1],
  [[], 0],
  [null, 0],
])('a host that runs the unknown containers %j makes %d lines in the log', async (ids, times) => {
  const lines: string[] = [];
  const logged = await openWorld(1, {
    log: createLog('test', 'error', { write: (line: string) => void lines.push(line) }),
  });
  const { machineId } = await logged.machine();
  for (let i = 0; i < 2; i += 1) {
    await logged.db.tx('unknown', (tx) => logged.rooms.supply.setUnknownWorkloads(tx, machineId, ids));
  }
  expect(lines).toHaveLength(times);
  await logged.close();
});

test('an offer is found while it is listed on demand', async () => {
  const offers = await world.db.read.all(
    z.object({ id: text }),
    sql`select id from offerings where machine_id = ${made.machineId}`,
  );
  const id = offers[0]?.id ?? '';
  const change = (to: ReturnType<typeof sql>): Promise<number> =>
    world.db.tx('change', (tx) => tx.run(sql`update offerings set ${to} where id = ${id}`));
  const offerOf = async (heldBy: string, onlyIf = sql`1 = 1`): Promise<unknown> =>
    (await holdWith(heldBy, { onlyIf }))?.offer;
  expect(await offerOf('w-1')).toMatchObject({ id, machine_id: made.machineId });
  expect(await offerOf('w-2', sql`machines.id <> ${made.machineId}`)).toBeUndefined();
  await change(sql`tier = 'spot'`);
  expect(await offerOf('w-3')).toBeUndefined();
  await change(sql`tier = 'on_demand', listed = 0`);
  expect(await offerOf('w-4')).toBeUndefined();
});
