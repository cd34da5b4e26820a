// Whether a real engine can give GPUs to a container: with the hook of the container toolkit in its PATH, without it, with a bad one, and once it is
// gone.
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, onTestFinished, test } from 'vitest';
import { openDocker } from '../../../agent/runtime/docker.ts';
import { findGpuLack } from '../../../agent/runtime/gpu-check.ts';
import { type Engine, engineContents, GPU_DIR, startEngine } from '../../kit/engine.ts';

const LACK = 'Docker cannot give a GPU to a container: ';
const GPU_OF_NOBODY = 'GPU-0';
const FAKE_GPU = 'GPU-00000000-0000-4000-8000-000000000000';

let engine: Engine;
afterEach(() => engine.stop());

const lack = async (uuid: string): Promise<string | undefined> =>
  (await findGpuLack(openDocker({ socketPath: engine.socketPath, machineId: '' }), [uuid]))?.slice(0, LACK.length);

test.each([
  ['with the hook gives GPUs to containers', true, undefined],
  ['without the hook does not', false, LACK],
])('an engine %s, and nothing of the check stays', async (_what, simulatesGpus, found) => {
  engine = await startEngine({ simulatesGpus });
  expect(await lack(GPU_OF_NOBODY)).toBe(found);
  expect([await engineContents(engine.docker), await engine.docker.listImages()]).toEqual([[], []]);
});

test('an engine whose hook breaks or is removed while it runs gives no GPUs until the hook works again', async () => {
  const hooks = mkdtempSync(join(tmpdir(), 'hooks-'));
  onTestFinished(() => rmSync(hooks, { recursive: true }));
  const hook = join(hooks, 'nvidia-container-runtime-hook');
  const mend = (): void => cpSync(GPU_DIR, hooks, { recursive: true });
  mend();
  engine = await startEngine({ hookDir: hooks });
  expect(await lack(FAKE_GPU)).toBeUndefined();
  writeFileSync(
    hook,
    '#!/bin/sh\necho "nvidia-container-cli: initialization error: load library failed" >&2\nexit 1\n',
  );
  expect(await lack(FAKE_GPU)).toBe(LACK);
  rmSync(hook);
  expect(await lack(FAKE_GPU)).toBe(LACK);
  mend();
  expect(await lack(FAKE_GPU)).toBeUndefined();
});
