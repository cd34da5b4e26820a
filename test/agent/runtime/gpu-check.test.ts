// Which refusals of the engine mean that it gives no GPU to any container, when it is asked, and what follows.
import { beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { Engine } from '../../../agent/runtime/engine.ts';
import { findGpuLack, type GpuCheck, openGpuCheck } from '../../../agent/runtime/gpu-check.ts';
import { GPUS_PER_MACHINE_MAX } from '../../../shared/limits.ts';
import { createLog } from '../../../shared/log.ts';
import { type GpuFacts, GpuFault } from '../../../shared/protocol/inventory.ts';

const NO_DRIVER = 'could not select device driver "nvidia" with capabilities: [[gpu]]';

const lackOf = (refusal: string): Promise<string | undefined> =>
  findGpuLack({ runBare: async () => Promise.reject(new Error(refusal)) }, ['GPU-a']);

test.each([
  NO_DRIVER,
  'exec: "nvidia-container-runtime-hook": executable file not found in $PATH',
  'OCI runtime create failed: error running hook #0: exit status 1, stderr: nvidia-container-cli: initialization error: load library failed',
  '/usr/bin/nvidia-container-runtime did not terminate successfully: exit status 1: unknown',
  'CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all',
])('a lack of GPUs: %s', async (refusal) => {
  const words =
    'Docker cannot give a GPU to a container: install the NVIDIA Container Toolkit, then systemctl restart docker';
  expect(await lackOf(refusal)).toBe(`${words} (${refusal})`);
});

test.each([
  'OCI runtime create failed: exec: "/none": stat /none: no such file or directory: unknown',
  '/usr/bin/nvidia-container-runtime did not terminate successfully: exec: "/none": no such file or directory',
  'nvidia-container-cli: device error: GPU-a: unknown device',
  'Conflict. The container name "/svc-bare-gpus-m" is already in use',
  'no space left on device',
  'connect ENOENT /var/run/docker.sock',
])('no lack of GPUs: %s', async (refusal) => {
  expect(await lackOf(refusal)).toBeUndefined();
});

describe('an engine that is asked', () => {
  const card = (uuid: string): GpuFacts => ({
    uuid,
    index: 0,
    name: 'L4',
    memory_mib: 1,
    driver_version: '550',
    bus_id: '',
    foreign_use: false,
  });
  const READING = {
    gpus: [card('GPU-a'), card('GPU-b')],
    gpu_error: '',
    gpu_faults: [{ uuid: 'GPU-a', severity: 'broken' as const, detail: 'Xid 79' }],
  };
  let asked: (readonly string[] | undefined)[];
  let refusal: string;
  let meanwhile: () => void;
  let check: GpuCheck;
  let version: Engine['version'];
  beforeEach(() => {
    [asked, refusal, meanwhile] = [[], NO_DRIVER, () => undefined];
    version = async () => '1';
    const runBare: Engine['runBare'] = async ({ gpu_uuids: uuids }) => {
      asked.push(uuids);
      meanwhile();
      throw new Error(refusal);
    };
    check = openGpuCheck({ engine: { version: () => version(), runBare }, log: createLog('test', 'silent') });
  });

  test('is asked once there is a doubt, for the GPUs that are not broken, and again until it gives them', async () => {
    expect(await check.ask(READING)).toBe(false);
    check.doubt();
    expect([await check.ask(READING), await check.ask(READING)]).toEqual([true, false]);
    refusal = 'exec: "/none"';
    expect([await check.ask(READING), await check.ask(READING)]).toEqual([true, false]);
    expect(asked).toEqual([['GPU-b'], ['GPU-b'], ['GPU-b']]);
  });

  test('that gives no GPUs and then refuses for another reason, as a full disk, still gives none', async () => {
    check.doubt();
    await check.ask(READING);
    const before = check.applyTo(READING);
    refusal = 'no space left on device';
    expect(await check.ask(READING)).toBe(false);
    expect(check.applyTo(READING)).toEqual(before);
    refusal = 'exec: "/none"';
    expect(await check.ask(READING)).toBe(true);
    expect(check.applyTo(READING)).toEqual(READING);
  });

  test('that refuses for another reason is not asked again without a new doubt', async () => {
    refusal = 'no space left on device';
    check.doubt();
    expect([await check.ask(READING), await check.ask(READING)]).toEqual([false, false]);
    expect(asked).toHaveLength(1);
  });

  test('is not asked if all GPUs are broken, and the doubt stays', async () => {
    check.doubt();
    expect(await check.ask({ ...READING, gpus: [card('GPU-a')] })).toBe(false);
    expect(await check.ask(READING)).toBe(true);
    expect(asked).toEqual([['GPU-b']]);
  });

  test('that is away is not asked, and the doubt stays', async () => {
    version = async () => Promise.reject(new Error('no answer'));
    check.doubt();
    await expect(check.ask(READING)).rejects.toThrow('no answer');
    version = async () => '1';
    expect(await check.ask(READING)).toBe(true);
    expect(asked).toHaveLength(1);
  });

  test('adds no more faults than the wire allows', async () => {
    const lost = Array.from({ length: 15 }, (_, n) => ({
      uuid: `GPU-${n}`,
      severity: 'broken' as const,
      detail: 'lost',
    }));
    check.doubt();
    await check.ask(READING);
    expect(check.applyTo({ ...READING, gpu_faults: lost }).gpu_faults).toHaveLength(GPUS_PER_MACHINE_MAX);
  });

  test('is asked again if it refuses GPUs to another rental while it answers', async () => {
    refusal = 'exec: "/none"';
    meanwhile = check.doubt;
    check.doubt();
    await check.ask(READING);
    meanwhile = () => undefined;
    await check.ask(READING);
    await check.ask(READING);
    expect(asked).toHaveLength(2);
  });

  test('makes each whole GPU unfit, in as many characters as the wire allows', async () => {
    expect(check.applyTo(READING)).toEqual(READING);
    refusal = `${NO_DRIVER}${'x'.repeat(300)}`;
    check.doubt();
    await check.ask(READING);
    const { gpu_faults: faults, ...rest } = check.applyTo(READING);
    expect(rest).toEqual({ gpus: READING.gpus, gpu_error: '' });
    expect(faults).toEqual([...READING.gpu_faults, { uuid: 'GPU-b', severity: 'unfit', detail: expect.any(String) }]);
    expect(z.array(GpuFault).safeParse(faults).success).toBe(true);
  });
});
