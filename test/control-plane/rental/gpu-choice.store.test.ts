// A GPU type that the request names is refused if it is too small, for what the template says or for the weights of its model.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { chooseGpu } from '../../../control-plane/rental/instances/gpu-choice.ts';
import { wantedCapacity } from '../../../control-plane/rental/instances/place.ts';
import type { Runnable } from '../../../control-plane/rental/launch/runnable.ts';
import type { CreateInstance } from '../../../shared/api/instance.ts';
import { LAUNCH, openWorld, type World } from '../../kit/world.ts';

const GIB = 1024 ** 3;

let world: World;
beforeEach(async () => {
  world = await openWorld();
  await world.machine();
});
afterEach(() => world.close());

const choose = (patch: Partial<Runnable>, request: CreateInstance = LAUNCH): ReturnType<typeof chooseGpu> => {
  const runnable = { minVramGb: 0, model: null, ...patch } as Runnable;
  const choices = { pinned: Promise.resolve(undefined), reserved: async () => 'H100_SXM' };
  return chooseGpu(world.db.read, { request, runnable }, wantedCapacity(request, 0), choices);
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

const among = (...gpuTypes: string[]): CreateInstance => ({
  ...LAUNCH,
  gpu_type: undefined,
  requirements: { gpu_types: gpuTypes },
});

test('a list of GPU types is as strict as one type: the weights may just fit, with the same warning', async () => {
  expect(await choose({ model: model(70) }, among('H100_SXM', 'L4'))).toEqual(await choose({ model: model(70) }));
  expect((await choose({ model: model(70) })).warnings).toHaveLength(1);
  await expect(choose({ model: model(80.1) }, among('H100_SXM'))).rejects.toMatchObject({
    code: 'environment_unavailable',
    details: {
      detail:
        'No host on offer has a GPU of one of the types H100_SXM with at least 81 GB of VRAM, as this template needs for the 80.1 GB of a/b. ' +
        'Choose other types from GET /v1/gpu-types, or another gpu_count.',
    },
  });
});

test('a list of GPU types that no host offers is refused with what it lacks', async () => {
  const refused = (patch: Partial<Runnable>, count: number) =>
    choose(patch, { ...among('L4', 'B200'), gpu_count: count }).catch((error: unknown) => error);
  expect(await refused({ ownImage: true }, 1)).toMatchObject({
    code: 'image_unavailable',
    details: {
      detail: expect.stringContaining('No host on offer has a GPU of one of the types L4, B200. Choose'),
      errors: [{ field: 'requirements.gpu_types', rule: 'must have a type with a GPU on one host' }],
    },
  });
  expect(await refused({ minVramGb: 24 }, 2)).toMatchObject({
    code: 'environment_unavailable',
    details: {
      detail: expect.stringContaining(
        '2 GPUs of one of the types L4, B200 with at least 24 GB of VRAM, as this template needs. Choose',
      ),
      errors: [{ field: 'requirements.gpu_types', rule: 'must have a type with 2 GPUs on one host' }],
    },
  });
});
