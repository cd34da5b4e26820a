// What a launch requires of its host: each machine meets all of it just so, or misses one point by one.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { listedOfferings } from '../../../control-plane/fleet/supply/catalog.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { narrowing } from '../../../control-plane/fleet/supply/narrowing.ts';
import { candidates, type CapacityRequest, cheapestType } from '../../../control-plane/fleet/supply/offerings.ts';
import { explain } from '../../../control-plane/fleet/placement/placement.ts';
import type { Requirements } from '../../../shared/api/requirements.ts';
import { ANYWHERE, type MachineOptions } from '../../kit/machines.ts';
import { openWorld, type World } from '../../kit/world.ts';

const GIB = 1024 ** 3;
const L40S = { name: 'NVIDIA L40S', memory_mib: 46_068 };

/** Two of four GPUs get half of 40 processors, and half of 65 GB without the one that the host keeps. */
const RIGHT: MachineOptions = { gpus: 4, cpuCores: 40, ramBytes: 65 * GIB, driver: '570.86.15', gpu: L40S };
const REQUIRED: Requirements = {
  regions: ['eu-west', 'eu-north'],
  min_vram_gb: 48,
  min_cpu_cores: 20,
  min_ram_gb: 32,
  min_cuda_version: '12.8',
  min_uptime: 0.99,
};
const REQUEST: CapacityRequest = {
  gpuType: 'L40S',
  gpuCount: 2,
  ...ANYWHERE,
  requirements: REQUIRED,
};

let world: World;
/** The key is the machine's id. */
let names: Map<string, string>;
beforeEach(async () => {
  world = await openWorld();
  names = new Map();
});
afterEach(() => world.close());

async function add(name: string, { uptimeBps, ...patch }: MachineOptions & { uptimeBps?: number } = {}): Promise<void> {
  const { machineId } = await world.machine({ ...RIGHT, ...patch });
  names.set(machineId, name);
  await world.db.tx('test.uptime', (tx) =>
    tx.run(sql`update offerings set uptime_bps = ${uptimeBps ?? 9_900} where machine_id = ${machineId}`),
  );
}
const found = async (patch: Partial<CapacityRequest> = {}): Promise<(string | undefined)[]> =>
  (await candidates(world.db.read, { ...REQUEST, ...patch })).map((row) => names.get(row.machine_id));

async function addAll(): Promise<void> {
  await add('right');
  await add('elsewhere', { region: 'us-east' });
  await add('less VRAM', { gpu: { ...L40S, memory_mib: 24_000 } });
  await add('fewer processors', { cpuCores: 39 });
  await add('less memory', { ramBytes: 65 * GIB - 1 });
  await add('an older driver', { driver: '565.57.01' });
  await add('a lower uptime', { uptimeBps: 9_890 });
}

describe('a launch with requirements', () => {
  test.each<[keyof Requirements, string]>([
    ['regions', 'elsewhere'],
    ['min_vram_gb', 'less VRAM'],
    ['min_cpu_cores', 'fewer processors'],
    ['min_ram_gb', 'less memory'],
    ['min_cuda_version', 'an older driver'],
    ['min_uptime', 'a lower uptime'],
  ])(
    'goes only to machines that meet all, and without %s also to the one that misses it by one',
    async (field, name) => {
      await addAll();
      expect(await found()).toEqual(['right']);
      const { [field]: _dropped, ...others } = REQUIRED;
      expect(new Set(await found({ requirements: others }))).toEqual(new Set(['right', name]));
    },
  );

  test('gets its share of a machine: more GPUs get more, and all GPUs of the host count', async () => {
    await add('right');
    const one = { ...REQUEST, gpuCount: 1 };
    expect(await found({ ...one, requirements: { min_cpu_cores: 10, min_ram_gb: 16 } })).toEqual(['right']);
    expect(await found({ ...one, requirements: { min_cpu_cores: 11 } })).toEqual([]);
    expect(await found({ ...one, requirements: { min_ram_gb: 17 } })).toEqual([]);
    expect(await found({ gpuCount: 4, requirements: { min_cpu_cores: 40, min_ram_gb: 64 } })).toEqual(['right']);
  });

  test('gets one processor of a machine that has fewer of them than GPUs, as from the agent', async () => {
    await add('small', { cpuCores: 1 });
    const one = { ...REQUEST, gpuCount: 1 };
    expect(await found({ ...one, requirements: { min_cpu_cores: 1 } })).toEqual(['small']);
    expect(await found({ ...one, requirements: { min_cpu_cores: 2 } })).toEqual([]);
  });

  test('does not go to a machine that does not report what is required', async () => {
    await add('silent', { cpuCores: 0, ramBytes: 0, driver: '' });
    expect(await found({ requirements: {} })).toEqual(['silent']);
    for (const requirements of [{ min_cpu_cores: 1 }, { min_ram_gb: 1 }, { min_cuda_version: '1.0' }])
      expect(await found({ requirements })).toEqual([]);
  });

  test.each([0.07, 0.57, 0.989, 0.99])(
    'with an uptime of at least %d goes to a machine with just that',
    async (uptime) => {
      await add('just so', { uptimeBps: Math.round(uptime * 10_000) });
      expect(await found({ requirements: { min_uptime: uptime } })).toEqual(['just so']);
      expect(await found({ requirements: { min_uptime: uptime + 0.0001 } })).toEqual([]);
    },
  );

  test('with an uptime of at least 0 goes only to machines whose uptime is known', async () => {
    await add('known', { uptimeBps: 0 });
    const { machineId } = await world.machine(RIGHT);
    names.set(machineId, 'new');
    expect(await found({ requirements: { min_uptime: 0 } })).toEqual(['known']);
    expect(new Set(await found({ requirements: {} }))).toEqual(new Set(['known', 'new']));
  });

  test('tries its preferred region among the required ones, and is told which requirement leaves no offering', async () => {
    await addAll();
    await add('near', { region: 'eu-north' });
    expect(await found({ region: 'eu-north' })).toEqual(['near']);
    const counts = await narrowing(world.db.read, REQUEST);
    expect(counts).toMatchObject({
      listed: 8,
      ofType: 8,
      withVram: 8,
      required: [7, 6, 5, 4, 3, 2],
      free: 2,
      affordable: 2,
    });
    const request = { ...REQUEST, requirements: { ...REQUIRED, min_ram_gb: 33 } };
    expect(explain(request, await narrowing(world.db.read, request))).toBe(
      'No offering fits. Offerings left after each condition: 8 listed, 8 of type L40S, 8 with at least 2 GPUs, 7 in eu-west or eu-north, ' +
        '6 with at least 48 GB of VRAM for each GPU, 5 with at least 20 processors for the instance, ' +
        '0 with at least 33 GB of memory for the instance. Change what the last condition asks for, or try again later.',
    );
  });
});

describe('a launch with several GPU types', () => {
  const { gpuType: _type, ...untyped } = REQUEST;
  const cheapest = (requirements: Requirements): Promise<string | undefined> =>
    cheapestType(world.db.read, { ...untyped, requirements });

  test('takes the cheapest of them that is free and meets the requirements, and no other', async () => {
    await add('L40S', { dollars: 2 });
    await add('A40', { gpu: { name: 'NVIDIA A40', memory_mib: 46_068 }, dollars: 1.5, driver: '535.54.03' });
    await add('L4', { gpu: { name: 'NVIDIA L4', memory_mib: 23_034 }, dollars: 1 });
    expect(await cheapest({ gpu_types: ['L40S', 'A40'] })).toBe('A40');
    expect(await cheapest({ gpu_types: ['L40S', 'A40'], min_cuda_version: '12.8' })).toBe('L40S');
    expect(await cheapest({ gpu_types: ['L40S', 'L4', 'A40'] })).toBe('L4');
    expect(await cheapest({ gpu_types: ['H100_SXM'] })).toBeUndefined();
  });

  test('takes a type that nobody can have now only if no other is on offer', async () => {
    await add('right');
    expect(await cheapest({ gpu_types: ['L40S'], min_cpu_cores: 21 })).toBe('L40S');
  });
});

describe('the filters of the catalogue', () => {
  const listed = async (filters: Parameters<typeof listedOfferings>[2], count = 10): Promise<number[]> => {
    const rows = await listedOfferings(world.db.read, { count }, filters);
    return rows.map((row) => Number(row.price_ucents_per_hour / 1_000_000n) / 100);
  };

  test('compare the share of a launch, as a launch does', async () => {
    await addAll();
    const { regions: _regions, ...minimums } = REQUIRED;
    const isFound = async (filters: object): Promise<number> =>
      (await listed({ ...minimums, gpu_count: 2, region: 'eu-west', gpu_type: 'L40S', ...filters })).length;
    expect(await isFound({})).toBe(1);
    expect(await isFound({ min_cpu_cores: 21 })).toBe(0);
    expect(await isFound({ min_ram_gb: 33 })).toBe(0);
    expect(await isFound({ min_vram_gb: 49 })).toBe(0);
    expect(await isFound({ min_cuda_version: '12.9' })).toBe(0);
    expect(await isFound({ min_uptime: 0.991 })).toBe(0);
    expect(await isFound({ region: 'eu-north' })).toBe(0);
    expect(await isFound({ gpu_type: 'A40' })).toBe(0);
    expect(await isFound({ gpu_count: 4, min_cpu_cores: 40, min_ram_gb: 64 })).toBe(1);
    expect(await isFound({ gpu_count: 5 })).toBe(0);
    expect(await isFound({ disk_gb: 10 })).toBe(0);
  });

  test('bound the price of the whole launch, and sort by the price of a GPU from page to page', async () => {
    for (const dollars of [3, 1, 2]) await add(`at ${dollars}`, { dollars });
    expect(await listed({})).toEqual([2, 1, 3]);
    expect(await listed({ sort: 'newest' })).toEqual([2, 1, 3]);
    expect(await listed({ sort: 'price' })).toEqual([1, 2, 3]);
    expect(await listed({ max_price_per_hour: 2, sort: 'price' })).toEqual([1, 2]);
    expect(await listed({ max_price_per_hour: 1.99, sort: 'price' })).toEqual([1]);
    expect(await listed({ max_price_per_hour: 4, gpu_count: 2, sort: 'price' })).toEqual([1, 2]);
    expect(await listed({ max_price_per_hour: 3.99, gpu_count: 2, sort: 'price' })).toEqual([1]);
  });
});
