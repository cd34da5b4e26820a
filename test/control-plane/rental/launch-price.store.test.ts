// What a launch may cost: the price that its caller has viewed, its cap, and the disk beyond the included one.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import type { CreateInstance } from '../../../shared/api/instance.ts';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';

const GIB = 1024 ** 3;
const DOLLAR = 100_000_000n;

let world: World;
let who: WorldAccount;
beforeEach(async () => {
  world = await openWorld();
  who = await world.customer(1_000_000);
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

/** The price of the launch in microcents, or the code of its refusal. */
async function launch(request: Partial<CreateInstance>): Promise<bigint | string | undefined> {
  try {
    const id = await world.launch(who, request);
    return (await findInstance(world.db.read, id))?.price_ucents_per_hour;
  } catch (error) {
    return (error as { code: string }).code;
  }
}

describe('the viewed price', () => {
  beforeEach(() => world.machine({ gpus: 8, dollars: 1 }));

  test.each([
    [undefined, DOLLAR],
    [9, DOLLAR],
    [1, DOLLAR],
    [0.99, DOLLAR],
    [0.98999999, 'price_changed'],
    [0, 'price_changed'],
  ])('of %s for a GPU of a dollar: %s', async (viewed, outcome) => {
    expect(await launch(viewed === undefined ? {} : { viewed_price_per_hour: viewed })).toBe(outcome);
  });

  test('is that of all GPUs together', async () => {
    expect(await launch({ gpu_count: 2, viewed_price_per_hour: 1.98 })).toBe('price_changed');
    expect(await launch({ gpu_count: 2, viewed_price_per_hour: 1.99 })).toBe(2n * DOLLAR);
  });
});

test('a disk beyond 100 GB costs more, which counts against the cap and not against the viewed price', async () => {
  await world.machine({ gpus: 8, dollars: 1, diskEnforced: true, storageBytes: 10_000 * GIB });
  expect(await launch({ disk_gb: 100 })).toBe(DOLLAR);
  const price = await launch({ disk_gb: 101 });
  if (typeof price !== 'bigint') throw new Error(`the launch was refused: ${price}`);
  const perGb = price - DOLLAR;
  expect(perGb).toBeGreaterThan(0n);
  expect(await launch({ disk_gb: 300, viewed_price_per_hour: 1 })).toBe(DOLLAR + 200n * perGb);
  const cap = Number(DOLLAR + 200n * perGb) / 1e8;
  expect(await launch({ disk_gb: 300, max_price_per_hour: cap })).toBe(DOLLAR + 200n * perGb);
  expect(await launch({ disk_gb: 301, max_price_per_hour: cap })).toBe(0n);
});

test('a launch without a size gets the disk that is there, of at least the smallest and at most the included size', async () => {
  const disk = async (gib: number): Promise<number | null | undefined> => {
    const { machineId } = await world.machine({ dollars: 1, diskEnforced: true, storageBytes: gib * GIB });
    const id = await world.launch(who);
    const row = await findInstance(world.db.read, id);
    expect(row?.machine_id).toBe(machineId);
    return row?.disk_gb;
  };
  expect([await disk(1_000), await disk(100), await disk(60)]).toEqual([100, 100, 60]);
  await world.machine();
  const id = await world.launch(who);
  expect((await findInstance(world.db.read, id))?.disk_gb).toBeNull();
});
