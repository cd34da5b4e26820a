// GPUs that are set aside for contracts: which ones a contract may get, waits for, and gives up. Each GPU differs in a single fact.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { listedOfferings } from '../../../control-plane/fleet/supply/catalog.ts';
import { freeCapacity, slotsOf, supplyOf, wantsOf } from '../../../control-plane/fleet/supply/slots.ts';
import { gpusOf } from '../../../control-plane/fleet/supply/store.ts';
import { linkHost, loseHost, type MachineOptions, type MadeMachine } from '../../kit/machines.ts';
import { openWorld, type World } from '../../kit/world.ts';

const KIND = { gpuType: 'H100_SXM', region: 'eu-west', endsMs: null };
const A100 = { name: 'NVIDIA A100-SXM4-80GB', memory_mib: 81_920 };
const STARTS_MS = 1_000;

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(() => world.close());

const reserve = (machineId: string, reservedBy: string, count = 1): Promise<boolean> =>
  world.db.tx('reserve', (tx) =>
    world.rooms.supply.reserve(tx, {
      machineId,
      gpuType: 'H100_SXM',
      count,
      reservedBy,
      startsMs: STARTS_MS,
      endsMs: null,
    }),
  );
const hold = async (machineId: string, heldBy = 'w'): Promise<string[] | undefined> => {
  const want = { machineIds: [machineId], gpuType: 'H100_SXM', count: 1, reservedBy: null, endsMs: null, diskGb: 0 };
  return (await world.db.tx('hold', (tx) => world.rooms.supply.hold(tx, { ...want, heldBy })))?.gpuUuids;
};
const release = (heldBy = 'w'): Promise<void> => world.db.tx('release', (tx) => world.rooms.supply.release(tx, heldBy));
const change = ({ orgId, machineId }: MadeMachine, patch: Parameters<World['rooms']['supply']['change']>[3]) =>
  world.db.tx('change', (tx) => world.rooms.supply.change(tx, orgId, machineId, patch));
const lose = (machineId: string): Promise<void> => loseHost(world, machineId);
/** Marks the first GPU of a machine as broken, as its host reports it. */
async function breakFirst({ machineId, inventory }: MadeMachine): Promise<void> {
  const uuid = inventory.gpus[0]?.uuid ?? '';
  const gpu_faults = [{ uuid, severity: 'broken' as const, detail: 'Xid 79' }];
  await world.rooms.supply.reportInventory(machineId, { ...inventory, gpu_faults });
}
const want = (
  reservedBy: string,
  patch: { gpu_type?: string; region?: string; gpus_missing?: number; starts_ms?: number } = {},
) =>
  world.db.tx('want', (tx) =>
    world.rooms.supply.awaitSlots(tx, {
      reserved_by: reservedBy,
      gpu_type: 'H100_SXM',
      region: 'eu-west',
      gpus_missing: 1,
      starts_ms: STARTS_MS,
      ends_ms: null,
      ...patch,
    }),
  );
const slotsIn = async (reservedBy: string): Promise<Record<string, number>> =>
  Object.fromEntries((await slotsOf(world.db.read, reservedBy)).map((row) => [row.machine_id, row.slots]));
const missing = async (reservedBy: string): Promise<number[]> =>
  (await wantsOf(world.db.read, reservedBy)).map((row) => row.gpus_missing);

describe('the free GPUs for a contract', () => {
  test('are those of its type and region on machines that are on offer, and neither held, broken nor set aside', async () => {
    const right = await world.machine({ gpus: 3 });
    const others: MachineOptions[] = [{ gpu: A100 }, { region: 'us-east' }];
    for (const options of others) await world.machine(options);
    await change(await world.machine(), { tier: 'spot' });
    await lose((await world.machine()).machineId);
    await hold((await world.machine()).machineId);
    await breakFirst(await world.machine());
    await reserve((await world.machine()).machineId, 'r-other');
    const free = [{ machine_id: right.machineId, gpu_free: 3 }];
    expect(await freeCapacity(world.db.read, KIND)).toEqual(free);
    expect(await freeCapacity(world.db.read, { ...KIND, region: 'us-east' })).toMatchObject([{ gpu_free: 1 }]);
    // Held GPUs and those of other contracts are part of the supply. A broken one is not.
    expect(await supplyOf(world.db.read, KIND)).toBe(5);
    expect(await supplyOf(world.db.read, { ...KIND, gpuType: 'A100_SXM_80GB' })).toBe(1);
  });

  test('include the unused slots of contracts that end before, and no slot that is held', async () => {
    const { machineId } = await world.machine({ gpus: 4 });
    await reserve(machineId, 'r-1', 2);
    await reserve(machineId, 'r-2', 1);
    const free = async (...ended: string[]): Promise<number> =>
      (await freeCapacity(world.db.read, KIND, ended)).reduce((sum, row) => sum + row.gpu_free, 0);
    expect([await free(), await free('r-1'), await free('r-2'), await free('r-1', 'r-2')]).toEqual([1, 3, 2, 4]);
    const mine = {
      machineIds: [machineId],
      gpuType: 'H100_SXM',
      count: 1,
      heldBy: 'w',
      reservedBy: 'r-1',
      endsMs: null,
      diskGb: 0,
    };
    await world.db.tx('hold', (tx) => world.rooms.supply.hold(tx, mine));
    expect(await free('r-1')).toBe(2);
  });

  test('of the supply count on a host that is offline only if they are set aside', async () => {
    const { machineId } = await world.machine({ gpus: 2 });
    await reserve(machineId, 'r-1');
    await lose(machineId);
    expect(await supplyOf(world.db.read, KIND)).toBe(1);
  });
});

describe('GPUs that are set aside', () => {
  test('are taken in order, of one type and machine, all of them or none', async () => {
    const made = await world.machine({ gpus: 3 });
    await world.machine({ gpus: 3 });
    expect(await reserve(made.machineId, 'r-1', 2)).toBe(true);
    const gpus = await gpusOf(world.db.read, made.machineId);
    expect(gpus.map((gpu) => gpu.reserved_by)).toEqual(['r-1', 'r-1', null]);
    expect(await slotsIn('r-1')).toEqual({ [made.machineId]: 2 });
    await expect(
      world.db.tx('reserve', async (tx) => {
        const part = {
          machineId: made.machineId,
          gpuType: 'H100_SXM',
          count: 2,
          reservedBy: 'r-2',
          startsMs: STARTS_MS,
          endsMs: null,
        };
        if (!(await world.rooms.supply.reserve(tx, part))) throw new Error('too few');
      }),
    ).rejects.toThrow('too few');
    expect(await slotsIn('r-2')).toEqual({});
  });

  test('show how many are in use and how many can be used now', async () => {
    const made = await world.machine({ gpus: 4 });
    await reserve(made.machineId, 'r-1', 4);
    await reserve((await world.machine()).machineId, 'r-2');
    const mine = { gpuType: 'H100_SXM', count: 1, heldBy: 'w', reservedBy: 'r-1', endsMs: null, diskGb: 0 };
    await world.db.tx('hold', (tx) => world.rooms.supply.hold(tx, { ...mine, machineIds: [made.machineId] }));
    const seen = { machine_id: made.machineId, slots: 4, in_use: 1, listed: true };
    expect(await slotsOf(world.db.read, 'r-1')).toMatchObject([{ ...seen, free: 3 }]);
    const last = made.inventory.gpus[3]?.uuid ?? '';
    const gpu_faults = [{ uuid: last, severity: 'broken' as const, detail: 'Xid 79' }];
    await world.rooms.supply.reportInventory(made.machineId, { ...made.inventory, gpu_faults });
    expect(await slotsOf(world.db.read, 'r-1')).toMatchObject([{ ...seen, free: 2 }]);
    await lose(made.machineId);
    expect(await slotsOf(world.db.read, 'r-1')).toMatchObject([{ ...seen, listed: false, free: 0 }]);
  });
});

describe('a contract that waits for a GPU', () => {
  test.each<[string, () => Promise<unknown>]>([
    ['of another type', () => world.machine({ gpu: A100 })],
    ['in another region', () => world.machine({ region: 'us-east' })],
    [
      'of a spot machine',
      async () => {
        const made = await world.machine({ region: 'us-east' });
        await change(made, { tier: 'spot' });
        await change(made, { region: 'eu-west' });
      },
    ],
    [
      'of a machine that is not on offer',
      async () => {
        const made = await world.machine({ region: 'us-east' });
        await lose(made.machineId);
        await change(made, { region: 'eu-west' });
      },
    ],
  ])('gets none %s', async (_what, come) => {
    await want('r-1');
    await come();
    expect([await slotsIn('r-1'), await missing('r-1')]).toEqual([{}, [1]]);
    const { machineId } = await world.machine();
    expect([await slotsIn('r-1'), await missing('r-1')]).toEqual([{ [machineId]: 1 }, []]);
  });

  test('gets as many as it misses, and what is left goes to the next one and to the market', async () => {
    await want('r-late', { starts_ms: STARTS_MS + 1 });
    await want('r-first', { gpus_missing: 3 });
    await want('r-last', { starts_ms: STARTS_MS + 2 });
    const { machineId: small } = await world.machine({ gpus: 2 });
    expect([await slotsIn('r-first'), await missing('r-first'), await missing('r-late')]).toEqual([
      { [small]: 2 },
      [1],
      [1],
    ]);
    const { machineId: large } = await world.machine({ gpus: 8 });
    expect([await slotsIn('r-first'), await slotsIn('r-late')]).toEqual([{ [small]: 2, [large]: 1 }, { [large]: 1 }]);
    expect([await missing('r-first'), await missing('r-late'), await missing('r-last')]).toEqual([[], [], []]);
    const offered = await listedOfferings(world.db.read, { count: 10 });
    expect(offered.filter((offering) => offering.gpu_free > 0)).toMatchObject([{ gpu_free: 5 }]);
  });

  test('keeps its needs of other types and regions when one is met', async () => {
    await want('r-1');
    await want('r-1', { gpu_type: 'A100_SXM_80GB', gpus_missing: 2 });
    await want('r-1', { region: 'us-east', gpus_missing: 3 });
    await want('r-2', { gpus_missing: 4 });
    await world.machine();
    expect([await missing('r-1'), await missing('r-2')]).toEqual([[2, 3], [4]]);
    await world.machine({ gpu: A100 });
    expect([await missing('r-1'), await missing('r-2')]).toEqual([[1, 3], [4]]);
  });

  test('gets a GPU in the moment in which a launch releases it, before any other', async () => {
    const { machineId } = await world.machine();
    await hold(machineId);
    await want('r-1');
    expect(await missing('r-1')).toEqual([1]);
    await release();
    expect(await slotsIn('r-1')).toEqual({ [machineId]: 1 });
    expect(await hold(machineId, 'w-2')).toBeUndefined();
  });
});

describe('a contract gives up', () => {
  const strand = (reservedBy: string): Promise<void> =>
    world.db.tx('strand', (tx) => world.rooms.supply.unreserveStranded(tx, reservedBy));

  test('its stranded slots: those on hosts that are gone and those that are broken, and none that is held or of another', async () => {
    const [good, gone, broken, held, foreign] = (await Promise.all(
      Array.from({ length: 5 }, () => world.machine()),
    )) as [MadeMachine, MadeMachine, MadeMachine, MadeMachine, MadeMachine];
    for (const { machineId } of [good, gone, broken, held]) await reserve(machineId, 'r-1');
    await reserve(foreign.machineId, 'r-2');
    const mine = { gpuType: 'H100_SXM', count: 1, heldBy: 'w', reservedBy: 'r-1', endsMs: null, diskGb: 0 };
    await world.db.tx('hold', (tx) => world.rooms.supply.hold(tx, { ...mine, machineIds: [held.machineId] }));
    for (const { machineId } of [gone, held, foreign]) await lose(machineId);
    await breakFirst(broken);
    await strand('r-1');
    const ids = (...machines: MadeMachine[]): string[] => machines.map(({ machineId }) => machineId).toSorted();
    expect(Object.keys(await slotsIn('r-1')).toSorted()).toEqual(ids(good, held));
    expect(Object.keys(await slotsIn('r-2'))).toEqual(ids(foreign));
    await linkHost(world, gone.machineId);
    expect(await hold(gone.machineId, 'w-2')).toHaveLength(1);
  });

  test('all its slots and needs, which are on offer at once, and no slot or need of another', async () => {
    const { machineId } = await world.machine({ gpus: 2 });
    await reserve(machineId, 'r-1');
    await reserve(machineId, 'r-2');
    for (const id of ['r-1', 'r-2']) await want(id, { region: 'us-east' });
    await world.db.tx('end', (tx) => world.rooms.supply.unreserve(tx, 'r-1'));
    expect([await slotsIn('r-1'), await slotsIn('r-2')]).toEqual([{}, { [machineId]: 1 }]);
    expect([await missing('r-1'), await missing('r-2')]).toEqual([[], [1]]);
    expect(await listedOfferings(world.db.read, { count: 2 })).toMatchObject([{ gpu_free: 1 }]);
  });
});

describe('needs of contracts for which GPUs are free already', () => {
  test('are served by the engine, which has nothing more to do then', async () => {
    const { machineId } = await world.machine({ gpus: 3 });
    const other = (await world.machine({ gpu: A100 })).machineId;
    await want('r-1', { gpus_missing: 2 });
    await want('r-2', { gpus_missing: 2, starts_ms: STARTS_MS + 1 });
    const { driver } = world.rooms.supply;
    expect(await driver.due(world.clock.now(), 10)).toEqual([machineId]);
    await world.drive();
    expect([await slotsIn('r-1'), await slotsIn('r-2')]).toEqual([{ [machineId]: 2 }, { [machineId]: 1 }]);
    expect([await missing('r-1'), await missing('r-2')]).toEqual([[], [1]]);
    const offers = await listedOfferings(world.db.read, { count: 10 });
    expect(offers.find(({ gpu_type: type }) => type === 'H100_SXM')?.gpu_free).toBe(0);
    // The engine asks for machines that are on offer alone.
    await want('r-3', { gpu_type: 'A100_SXM_80GB' });
    await lose(other);
    expect(await driver.due(world.clock.now(), 10)).toEqual([]);
  });
});
