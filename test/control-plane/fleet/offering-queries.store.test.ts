// Which offerings a launch can use, one condition at a time: each machine differs from the right one in a single fact.
import { beforeEach, afterEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { text } from '../../../control-plane/base/db/columns.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { gpuTypes } from '../../../control-plane/fleet/supply/catalog.ts';
import {
  type CapacityRequest,
  candidates,
  cheapestType,
  findListed,
  isOffered,
  largestVramGb,
  offeredRegion,
} from '../../../control-plane/fleet/supply/offerings.ts';
import { narrowing } from '../../../control-plane/fleet/supply/narrowing.ts';
import { CANDIDATES_MAX } from '../../../shared/limits.ts';
import { linkHost, loseHost, type MachineOptions } from '../../kit/machines.ts';
import { openWorld, type World } from '../../kit/world.ts';

const GIB = 1024 ** 3;
const DOLLAR = 100_000_000n;

let world: World;
/** The key is the machine's id. */
let names: Map<string, string>;
beforeEach(async () => {
  world = await openWorld();
  names = new Map();
  await add('right');
  await add('dear', { dollars: 3 });
  await add('elsewhere', { region: 'us-east' });
  await add('small', { gpus: 1 });
  await add('of another type', { gpu: { name: 'NVIDIA A100-SXM4-80GB', memory_mib: 81_920 } });
  await add('without disk sizes', { diskEnforced: false });
  await add('with a small disk', { storageBytes: 499 * GIB });
  const change = async (name: string, patch: Parameters<World['rooms']['supply']['change']>[3]): Promise<void> => {
    const { orgId, machineId } = await add(name);
    await world.db.tx('change', (tx) => world.rooms.supply.change(tx, orgId, machineId, patch));
  };
  await change('spot', { tier: 'spot' });
  const away = await add('offline');
  await loseHost(world, away.machineId);
  const busy = await add('in use');
  const want = { gpuType: 'H100_SXM', count: 1, heldBy: 'w', reservedBy: null, endsMs: null, diskGb: 0 };
  await world.db.tx('hold', (tx) => world.rooms.supply.hold(tx, { ...want, machineIds: [busy.machineId] }));
});
afterEach(() => world.close());

async function add(name: string, options: MachineOptions = {}): ReturnType<World['machine']> {
  const whole = { gpus: 2, dollars: 2, region: 'eu-west', diskEnforced: true, storageBytes: 1_000 * GIB, ...options };
  const made = await world.machine(whole);
  names.set(made.machineId, name);
  return made;
}

const REQUEST: CapacityRequest = {
  gpuType: 'H100_SXM',
  gpuCount: 2,
  offeringId: null,
  region: 'eu-west',
  maxPriceUcentsPerHour: 4n * DOLLAR + 400n * 20_000n,
  diskGb: 500,
  minVramGb: 80,
  endsMs: null,
  exceptMachineIds: [],
  trustedOnly: false,
};
const found = async (patch: Partial<CapacityRequest> = {}): Promise<(string | undefined)[]> =>
  (await candidates(world.db.read, { ...REQUEST, ...patch })).map((row) => names.get(row.machine_id));
const idOf = (name: string): string => [...names].find(([, each]) => each === name)?.[0] ?? '';
async function offeringOf(name: string): Promise<string> {
  const row = await world.db.read.one(
    z.object({ id: text }),
    sql`select id from offerings where machine_id = ${idOf(name)} and listed = 1 and tier = 'on_demand'`,
  );
  return row?.id ?? '';
}

describe('candidates', () => {
  test.each<[string, Partial<CapacityRequest>, string[]]>([
    ['nothing else', {}, []],
    ['any region', { region: null }, ['elsewhere']],
    ['any price', { maxPriceUcentsPerHour: null }, ['dear']],
    ['the price of the dear one', { maxPriceUcentsPerHour: 6n * DOLLAR + 400n * 20_000n }, ['dear']],
    ['any host for its disk', { diskGb: null }, ['with a small disk', 'without disk sizes']],
    ['a disk of the smaller size', { diskGb: 499 }, ['with a small disk']],
    ['one GPU', { gpuCount: 1, maxPriceUcentsPerHour: 2n * DOLLAR + 400n * 20_000n }, ['in use', 'small']],
  ])('are the right machine, and with %s also the machines that differ only in that', async (_what, patch, more) => {
    expect(new Set(await found(patch))).toEqual(new Set([...more, 'right']));
  });

  test('are none if the price, the disk or the VRAM of the right machine is one too small', async () => {
    expect(await found({ maxPriceUcentsPerHour: 4n * DOLLAR + 400n * 20_000n - 1n })).toEqual([]);
    expect(await found({ diskGb: 100, maxPriceUcentsPerHour: 4n * DOLLAR })).toContain('right');
    expect(await found({ diskGb: 100, maxPriceUcentsPerHour: 4n * DOLLAR - 1n })).toEqual([]);
    expect(await found({ diskGb: 1_001, maxPriceUcentsPerHour: null })).toEqual([]);
    expect(await found({ minVramGb: 81 })).toEqual([]);
    expect(await found({ gpuType: 'H100_PCIE' })).toEqual([]);
  });

  test('leave out machines that were tried, and with a pin are that offering alone, if it fits', async () => {
    expect(await found({ exceptMachineIds: [idOf('right')] })).toEqual([]);
    const dear = await offeringOf('dear');
    expect(await found({ offeringId: dear })).toEqual([]);
    expect(await found({ offeringId: dear, maxPriceUcentsPerHour: null })).toEqual(['dear']);
  });

  test('are on trusted machines alone if the request asks for that', async () => {
    expect(await found({ trustedOnly: true })).toEqual([]);
    await world.rooms.supply.setTrusted(idOf('right'), true);
    expect(await found({ trustedOnly: true })).toEqual(['right']);
    await world.rooms.supply.setTrusted(idOf('right'), false);
    expect(await found({ trustedOnly: true })).toEqual([]);
    expect(await found()).toContain('right');
  });

  test('are machines with just enough GPUs and with more, on both sides of eight', async () => {
    for (const gpus of [7, 8, 9, 15, 16]) await add(`of ${gpus}`, { gpus });
    const large = async (gpuCount: number): Promise<(string | undefined)[]> => {
      const names = await found({ gpuCount, maxPriceUcentsPerHour: null });
      return names.filter((name) => name?.startsWith('of ')).toReversed();
    };
    // Among machines of the same price, the one with the fewest free GPUs is the first.
    expect(await large(7)).toEqual(['of 16', 'of 15', 'of 9', 'of 8', 'of 7']);
    expect(await large(8)).toEqual(['of 16', 'of 15', 'of 9', 'of 8']);
    expect(await large(9)).toEqual(['of 16', 'of 15', 'of 9']);
    expect(await large(16)).toEqual(['of 16']);
  });

  test('of one GPU in any region are all machines with a free one, and among equals those with the fewest are the first', async () => {
    const names = await found({ gpuCount: 1, region: null, diskGb: null, maxPriceUcentsPerHour: null });
    expect(new Set(names.slice(0, 2))).toEqual(new Set(['in use', 'small']));
    expect(names).toHaveLength(7);
    expect(names.at(-1)).toBe('dear');
  });

  test('are ordered by price, and among equals by id', async () => {
    await add('cheap', { dollars: 1 });
    const rows = await candidates(world.db.read, { ...REQUEST, region: null, maxPriceUcentsPerHour: null });
    const order = rows.map((row) => [row.price_ucents_per_hour, row.id] as const);
    expect(order).toEqual(order.toSorted((a, b) => (a[0] === b[0] ? (a[1] < b[1] ? -1 : 1) : a[0] < b[0] ? -1 : 1)));
    expect(names.get(rows[0]?.machine_id ?? '')).toBe('cheap');
  });
});

test('of many equal candidates those with the smallest ids are taken, however they came', async () => {
  const ids = Array.from({ length: CANDIDATES_MAX + 1 }, (_, i) => `off_${String(i).padStart(3, '0')}`);
  for (const id of ids.toReversed()) {
    const { machineId } = await add(id, { dollars: 1 });
    await world.db.tx('name', (tx) => tx.run(sql`update offerings set id = ${id} where machine_id = ${machineId}`));
  }
  const rows = await candidates(world.db.read, REQUEST);
  expect(rows.map((row) => row.id)).toEqual(ids.slice(0, CANDIDATES_MAX));
});

describe('GPUs that a contract lends', () => {
  /** A GPU of the small machine, set aside for a contract that begins in an hour. */
  async function lend(): Promise<number> {
    const startsMs = world.clock.now() + 3_600_000;
    const want = { machineId: idOf('small'), gpuType: 'H100_SXM', count: 1, reservedBy: 'r', startsMs, endsMs: null };
    await world.db.tx('reserve', (tx) => world.rooms.supply.reserve(tx, want));
    return startsMs;
  }

  test('count for a launch that ends before the contract begins, and for no other', async () => {
    const one = { gpuCount: 1, exceptMachineIds: ['right', 'in use', 'dear'].map(idOf) };
    expect(await found(one)).toEqual(['small']);
    const startsMs = await lend();
    expect(await found(one)).toEqual([]);
    expect(await found({ ...one, endsMs: startsMs })).toEqual([]);
    expect(await found({ ...one, endsMs: startsMs - 1 })).toEqual(['small']);
    expect(await found({ ...one, endsMs: startsMs - 1, gpuType: 'A100_SXM_80GB' })).toEqual(['of another type']);
    expect(await found({ ...one, endsMs: startsMs - 1, gpuCount: 2 })).toEqual([]);
    expect(await found({ ...one, endsMs: startsMs - 1, region: 'us-east' })).toEqual(['elsewhere']);
  });

  test('count for their own type only, on a machine with GPUs of two types', async () => {
    const { machineId, inventory } = await add('mixed');
    const [first, second] = inventory.gpus.map((gpu, i) =>
      i === 0 ? gpu : { ...gpu, name: 'NVIDIA L4', memory_mib: 23_034 },
    );
    if (first === undefined || second === undefined) throw new Error('the machine has too few GPUs');
    await world.rooms.supply.reportInventory(machineId, { ...inventory, gpus: [first, second] });
    await world.rooms.supply.approve(machineId);
    const startsMs = world.clock.now() + 3_600_000;
    const want = { machineId, gpuType: 'H100_SXM', count: 1, reservedBy: 'r', startsMs, endsMs: null };
    await world.db.tx('reserve', (tx) => world.rooms.supply.reserve(tx, want));
    const small = { gpuType: 'L4', gpuCount: 1, minVramGb: 20, endsMs: startsMs - 1 };
    expect(await found(small)).toEqual(['mixed']);
    const hold = { gpuType: 'L4', heldBy: 'w-3', reservedBy: null, endsMs: null, diskGb: 0, count: 1 };
    await world.db.tx('hold', (tx) => world.rooms.supply.hold(tx, { ...hold, machineIds: [machineId] }));
    expect(await found(small)).toEqual([]);
    expect((await narrowing(world.db.read, { ...REQUEST, ...small })).free).toBe(0);
  });

  test('count no more if they are held or broken, or if their host is not on offer', async () => {
    const startsMs = await lend();
    const one = { gpuCount: 1, exceptMachineIds: ['right', 'in use', 'dear'].map(idOf), endsMs: startsMs - 1 };
    const set = (column: 'usable' | 'held_by', value: number | string | null): Promise<number> =>
      world.db.tx('set', (tx) => {
        const change = column === 'usable' ? sql`usable = ${value}` : sql`held_by = ${value}`;
        return tx.run(sql`update machine_gpus set ${change} where machine_id = ${idOf('small')}`);
      });
    await set('usable', 0);
    expect(await found(one)).toEqual([]);
    await set('usable', 1);
    await set('held_by', 'w-2');
    expect(await found(one)).toEqual([]);
    await set('held_by', null);
    expect(await found(one)).toEqual(['small']);
    await world.db.tx('spot', (tx) =>
      tx.run(sql`update offerings set tier = 'spot' where machine_id = ${idOf('small')}`),
    );
    expect(await found(one)).toEqual([]);
    await loseHost(world, idOf('small'));
    await linkHost(world, idOf('small'));
    expect(await found(one)).toEqual(['small']);
    await loseHost(world, idOf('small'));
    expect(await found(one)).toEqual([]);
  });

  test('are in the explanation of a refusal too', async () => {
    const startsMs = await lend();
    const freeFor = async (endsMs: number | null): Promise<number> =>
      (await narrowing(world.db.read, { ...REQUEST, gpuCount: 1, endsMs })).free;
    const free = await freeFor(null);
    expect([await freeFor(startsMs), await freeFor(startsMs - 1)]).toEqual([free, free + 1]);
    for (const column of [sql`usable = 0`, sql`usable = 1, held_by = 'w-2'`]) {
      await world.db.tx('set', (tx) =>
        tx.run(sql`update machine_gpus set ${column} where machine_id = ${idOf('small')}`),
      );
      expect(await freeFor(startsMs - 1)).toBe(free);
    }
  });
});

test('an explanation counts the offerings that each condition leaves', async () => {
  await world.rooms.supply.setTrusted(idOf('right'), true);
  expect((await narrowing(world.db.read, { ...REQUEST, trustedOnly: true })).trusted).toBe(1);
  expect(await narrowing(world.db.read, REQUEST)).toEqual({
    // All but the spot and the offline machine.
    listed: 8,
    ofType: 7,
    bigEnough: 6,
    withVram: 6,
    required: [],
    staying: 6,
    free: 5,
    withDisk: 3,
    trusted: 3,
    priced: 2,
    affordable: 1,
  });
  expect(await narrowing(world.db.read, { ...REQUEST, minVramGb: 81 })).toMatchObject({ bigEnough: 6, withVram: 0 });
  const ofNone = await narrowing(world.db.read, { ...REQUEST, gpuType: 'B200' });
  expect(Object.entries(ofNone).filter(([, count]) => count !== 0)).toEqual([
    ['listed', 8],
    ['required', []],
  ]);
});

test('a spot machine is offered in no way, however cheap and large it is', async () => {
  const H200 = { name: 'NVIDIA H200', memory_mib: 143_771 };
  const { orgId, machineId } = await add('spot H200', { gpus: 8, gpu: H200, dollars: 0.01 });
  const seen = async (): Promise<unknown[]> => {
    const { read } = world.db;
    const type = { gpuType: 'H200', offeringId: null };
    const { gpuType: _any, ...wanted } = { ...REQUEST, maxPriceUcentsPerHour: null };
    return [
      await isOffered(read, { gpuType: 'H200', diskGb: null }),
      await offeredRegion(read, type),
      await largestVramGb(read, type),
      await cheapestType(read, wanted),
      (await gpuTypes(read, 'H100_SXM', 9)).length,
      await found({ gpuType: 'H200' }),
    ];
  };
  expect(await seen()).toEqual([true, 'eu-west', 141, 'H200', 1, ['spot H200']]);
  await world.db.tx('spot', (tx) => world.rooms.supply.change(tx, orgId, machineId, { tier: 'spot' }));
  expect(await seen()).toEqual([false, undefined, 0, 'H100_SXM', 0, []]);
});

describe('what is offered at all', () => {
  const offered = (gpuType: string, diskGb: number | null = null): Promise<boolean> =>
    isOffered(world.db.read, { gpuType, diskGb });

  test('includes GPUs in use, and neither spot machines nor those offline', async () => {
    for (const name of ['of another type', 'right'])
      expect(await findListed(world.db.read, await offeringOf(name))).toBeDefined();
    for (const name of ['spot', 'offline']) expect(await offeringOf(name)).toBe('');
    expect([await offered('H100_SXM'), await offered('B200')]).toEqual([true, false]);
    await loseHost(world, idOf('of another type'));
    expect(await offered('A100_SXM_80GB')).toBe(false);
  });

  test('with a disk needs a host that is large enough and enforces it', async () => {
    expect([await offered('H100_SXM', 1_000), await offered('H100_SXM', 1_001)]).toEqual([true, false]);
    await add('large without disk sizes', { diskEnforced: false, storageBytes: 5_000 * GIB });
    expect(await offered('H100_SXM', 1_001)).toBe(false);
    expect(await offered('A100_SXM_80GB', 1_000)).toBe(true);
  });

  test('an offering that is off the market is not found by its id', async () => {
    const id = await offeringOf('right');
    expect(await findListed(world.db.read, id)).toMatchObject({ id, machine_id: idOf('right') });
    await loseHost(world, idOf('right'));
    expect(await findListed(world.db.read, id)).toBeUndefined();
    const dear = await offeringOf('dear');
    await world.db.tx('spot', (tx) => tx.run(sql`update offerings set tier = 'spot' where id = ${dear}`));
    expect(await findListed(world.db.read, dear)).toBeUndefined();
  });

  test('has the region of the cheapest offering of the type, or of the pinned one', async () => {
    const region = (gpuType: string, offeringId: string | null = null): Promise<string | undefined> =>
      offeredRegion(world.db.read, { gpuType, offeringId });
    await add('cheapest', { dollars: 1, region: 'ap-south' });
    await add('cheaper of another type', {
      dollars: 0.5,
      region: 'sa-east',
      gpu: { name: 'NVIDIA L4', memory_mib: 23_034 },
    });
    expect(await region('H100_SXM')).toBe('ap-south');
    expect(await region('H100_SXM', await offeringOf('elsewhere'))).toBe('us-east');
    expect(await region('B200')).toBeUndefined();
    await loseHost(world, idOf('cheapest'));
    expect(await region('H100_SXM')).toBe('eu-west');
  });

  test('has the largest VRAM of the type, or that of the pinned offering', async () => {
    const vramGb = (gpuType: string, offeringId: string | null = null): Promise<number> =>
      largestVramGb(world.db.read, { gpuType, offeringId });
    const card = { name: 'NVIDIA GeForce RTX 4090' };
    await add('24 GB', { gpu: { ...card, memory_mib: 24_564 } });
    await add('48 GB', { gpu: { ...card, memory_mib: 49_140 } });
    expect([await vramGb('RTX_4090'), await vramGb('H100_SXM'), await vramGb('B200')]).toEqual([48, 80, 0]);
    expect(await vramGb('RTX_4090', await offeringOf('24 GB'))).toBe(24);
    await loseHost(world, idOf('48 GB'));
    expect(await vramGb('RTX_4090')).toBe(24);
  });
});

describe('the type of the cheapest offering that could take a launch', () => {
  const { gpuType: _any, ...wanted } = REQUEST;
  const cheapest = (patch: Partial<typeof wanted> = {}): Promise<string | undefined> =>
    cheapestType(world.db.read, { ...wanted, maxPriceUcentsPerHour: null, ...patch });
  const L4 = { gpu: { name: 'NVIDIA L4', memory_mib: 23_034 } };
  const L40 = { gpu: { name: 'NVIDIA L40', memory_mib: 46_068 } };

  test('is one that is large enough, has enough VRAM, and is on offer', async () => {
    await add('cheap and small', { ...L4, dollars: 1, gpus: 1 });
    expect([await cheapest({ minVramGb: 0, gpuCount: 1 }), await cheapest({ minVramGb: 0 })]).toEqual([
      'L4',
      'H100_SXM',
    ]);
    expect(await cheapest({ minVramGb: 25, gpuCount: 1 })).toBe('H100_SXM');
    expect(await cheapest({ minVramGb: 81 })).toBeUndefined();
    expect(await cheapest({ gpuCount: 3 })).toBeUndefined();
    await loseHost(world, idOf('cheap and small'));
    expect(await cheapest({ minVramGb: 0, gpuCount: 1 })).toBe('H100_SXM');
  });

  test('is that of the pinned offering', async () => {
    expect(await cheapest({ offeringId: await offeringOf('of another type') })).toBe('A100_SXM_80GB');
  });

  test('is free before it is near, near before it has the disk, and then cheap', async () => {
    const any = { minVramGb: 0, region: 'ap-south', gpuCount: 2, diskGb: 2_000 };
    await add('near and busy', { ...L4, dollars: 1, region: 'ap-south', storageBytes: 4_000 * GIB });
    const hold = { gpuType: 'L4', heldBy: 'w-2', reservedBy: null, endsMs: null, diskGb: 0, count: 1 };
    await world.db.tx('hold', (tx) => world.rooms.supply.hold(tx, { ...hold, machineIds: [idOf('near and busy')] }));
    await add('far and free', { ...L40, dollars: 5, storageBytes: 4_000 * GIB });
    expect(await cheapest(any)).toBe('L40');
    await add('near and free', {
      gpu: { name: 'NVIDIA A16', memory_mib: 15_356 },
      dollars: 9,
      region: 'ap-south',
      storageBytes: 4_000 * GIB,
    });
    expect(await cheapest(any)).toBe('A16');
    // Nothing has this disk now, so nothing is free for the launch, and the near one counts.
    expect(await cheapest({ ...any, diskGb: 5_000 })).toBe('L4');
    expect(await cheapest({ ...any, region: null })).toBe('L40');
  });
});

test('the catalogue of types begins after a name, and shows neither spot machines nor those offline', async () => {
  const types = async (after: string): Promise<string[]> =>
    (await gpuTypes(world.db.read, after, 10)).map((row) => row.gpu_type);
  expect(await types('')).toEqual(['A100_SXM_80GB', 'H100_SXM']);
  expect(await types('A100_SXM_80GB')).toEqual(['H100_SXM']);
  expect(await gpuTypes(world.db.read, '', 1)).toHaveLength(1);
  await loseHost(world, idOf('of another type'));
  expect(await types('')).toEqual(['H100_SXM']);
});
