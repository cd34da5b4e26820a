// Whether a real engine can give GPUs to a container: with the hook of the container toolkit in its PATH, and without it.
import { afterEach, expect, test } from 'vitest';
import { openDocker } from '../../../agent/runtime/docker.ts';
import { findGpuLack } from '../../../agent/runtime/gpu-check.ts';
import { type Engine, engineContents, startEngine } from '../../kit/engine.ts';

let engine: Engine;
afterEach(() => engine.stop());

test.each([
  ['with the hook gives GPUs to containers', true, undefined],
  ['without the hook does not', false, 'Docker cannot give a GPU to a container'],
])('an engine %s, and nothing of the check stays', async (_what, simulatesGpus, lack) => {
  engine = await startEngine({ simulatesGpus });
  const found = await findGpuLack(openDocker({ socketPath: engine.socketPath, machineId: '' }), ['GPU-0']);
  expect(found?.slice(0, lack?.length)).toBe(lack);
  expect([await engineContents(engine.docker), await engine.docker.listImages()]).toEqual([[], []]);
});
