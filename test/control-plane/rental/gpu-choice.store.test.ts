// A GPU type that the request names is refused if it is too small, for what the template says or for the weights of its model.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { chooseGpu } from '../../../control-plane/rental/instances/gpu-choice.ts';
import { wantedCapacity } from '../../../control-plane/rental/instances/place.ts';
import type { Runnable } from '../../../control-plane/rental/launch/runnable.ts';
import { LAUNCH, openWorld, type World } from '../../kit/world.ts';

const GIB = 1024 ** 3;

let world: World;
beforeEach(async () => {
  world = await openWorld();
  await world.machine();
});
afterEach(() => world.close());

const choose = (patch: Partial<Runnable>): ReturnType<typeof chooseGpu> => {
  const runnable = { minVramGb: 0, model: null, ...patch } as Runnable;
  const choices = { pinned: Promise.resolve(undefined), reserved: async () => 'H100_SXM' };
  return chooseGpu(world.db.read, { request: LAUNCH, runnable }, wantedCapacity(LAUNCH, 0), choices);
};
const model = (gib: number): Runnable['model'] => ({ name: 'a/b', bytes: gib * GIB }) as Runnable['model'];

test('the VRAM that a template needs is enough at its edge, with and without a model', async () => {
  expect(await choose({ minVramGb: 80 })).toEqual({ gpuType: 'H100_SXM', minVramGb: 80, warnings: [] });
  await expect(choose({ minVramGb: 81 })).rejects.toMatchObject({ code: 'gpu_vram_too_small' });
  await expect(choose({ minVramGb: 81, model: model(1) })).rejects.toMatchObject({ code: 'gpu_vram_too_small' });
  expect(await choose({})).toEqual({ gpuType: 'H100_SXM', minVramGb: 0, warnings: [] });
});

test('the weights of a model fit at the edge, with a warning if little is left', async () => {
  await expect(choose({ model: model(80.1) })).rejects.toMatchObject({ code: 'model_too_large' });
  expect((await choose({ model: model(80) })).warnings).toEqual([
    expect.stringContaining('The weights of a/b take 80 of the 80 GB of VRAM of 1 x H100_SXM with 80 GB each'),
  ]);
  expect(await choose({ model: model(60) })).toEqual({ gpuType: 'H100_SXM', minVramGb: 60, warnings: [] });
});
