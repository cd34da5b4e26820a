// Answers of nvidia-smi: real ones, unusual ones, and failures.
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, expect, test, vi } from 'vitest';
import { parseComputeProcesses, parseGpuCards, readGpus, readUnfit } from '../../../agent/gpus/nvidia-smi.ts';
import { GPU_DIR } from '../../kit/engine.ts';

const dir = mkdtempSync(join(tmpdir(), 'smi-'));
afterAll(() => rmSync(dir, { recursive: true }));
afterEach(() => vi.unstubAllEnvs());

function script(text: string): string {
  const file = join(dir, `smi-${Math.random()}`);
  writeFileSync(file, `#!/bin/sh\n${text}\n`);
  chmodSync(file, 0o755);
  return file;
}

test('cards are parsed with and without every value', () => {
  const text =
    'GPU-1, 0, NVIDIA H100 80GB HBM3, 81559, 550.54.15, 00000000:3B:00.0\nGPU-2, 1, [N/A], [N/A], [Not Supported]\n[GPU is lost], 2, x, 1, 2\n';
  expect(parseGpuCards(text)).toEqual([
    {
      uuid: 'GPU-1',
      index: 0,
      name: 'NVIDIA H100 80GB HBM3',
      memory_mib: 81_559,
      driver_version: '550.54.15',
      bus_id: '00000000:3B:00.0',
    },
    { uuid: 'GPU-2', index: 1, name: 'unknown', memory_mib: 0, driver_version: '', bus_id: '' },
  ]);
  expect(parseGpuCards('No devices were found\n')).toEqual([]);
});

test('processes are parsed, and sentences in their place are ignored', () => {
  expect(parseComputeProcesses('GPU-1, 42\nGPU-1, [N/A]\nNo running processes found\n')).toEqual([
    { gpu_uuid: 'GPU-1', pid: 42 },
  ]);
});

test('a process outside our containers makes its card foreign, one inside does not', async () => {
  const smi = script(
    `case $1 in *apps*) echo "GPU-1, ${process.pid}";; *) echo "GPU-1, 0, X, 1, 1"; echo "GPU-2, 1, X, 1, 1";; esac`,
  );
  const inOurs = await readGpus(smi, () => ['']);
  expect(inOurs?.map((gpu) => gpu.foreign_use)).toEqual([false, false]);
  const foreign = await readGpus(smi, () => ['0123456789abcdef']);
  expect(foreign?.map((gpu) => gpu.foreign_use)).toEqual([true, false]);
});

test('a container that starts while nvidia-smi works is not foreign', async () => {
  const slow = join(dir, 'processes are listed');
  const smi = script(
    `case $1 in *apps*) touch '${slow}'; echo "GPU-1, ${process.pid}";; *) echo "GPU-1, 0, X, 1, 1";; esac`,
  );
  const gpus = await readGpus(smi, () => (existsSync(slow) ? [''] : ['0123456789abcdef']));
  expect(gpus?.map((gpu) => gpu.foreign_use)).toEqual([false]);
});

test('a host without nvidia-smi lists nothing; a failing nvidia-smi gives an error in its own words', async () => {
  expect(await readGpus('/no/such/nvidia-smi', () => [])).toBeUndefined();
  const broken = script('echo "NVIDIA-SMI has failed because it could not communicate with the driver"; exit 9');
  await expect(readGpus(broken, () => [])).rejects.toThrow('could not communicate with the driver');
});

test('the simulated nvidia-smi answers in the same format', async () => {
  const gpus = await readGpus(join(GPU_DIR, 'nvidia-smi'), () => []);
  expect(gpus).toHaveLength(8);
  expect(gpus?.[0]).toMatchObject({ index: 0, memory_mib: 81_559, foreign_use: false });
});

test('the simulated nvidia-smi reports MIG mode of the card that a file of faults names', async () => {
  const smi = join(GPU_DIR, 'nvidia-smi');
  expect([...(await readUnfit(smi))]).toEqual([]);
  const [, second] = (await readGpus(smi, () => [])) ?? [];
  writeFileSync(join(dir, 'faults'), `${second?.uuid},mig.mode.current,Enabled\n`);
  vi.stubEnv('FAKE_GPU_FAULTS', join(dir, 'faults'));
  expect([...(await readUnfit(smi)).keys()]).toEqual([second?.uuid]);
});
