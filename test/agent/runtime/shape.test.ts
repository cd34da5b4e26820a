// Commands as containers mean them, and an environment in which our guest cannot be captured.
import { describe, expect, test } from 'vitest';
import { mainProgramOf, shapeOf } from '../../../agent/runtime/shape.ts';
import { commandOf } from '../../../shared/protocol/workload.ts';
import { desiredWorkload } from '../desired-workload.ts';

const image = {
  digest: 'sha256:0',
  entrypoint: ['/entry'],
  cmd: ['a', 'b'],
  env: [
    'PATH=/image',
    'LD_PRELOAD=/evil.so',
    'NVIDIA_VISIBLE_DEVICES=all',
    'NVIDIA_DRIVER_CAPABILITIES=compute',
    'A=1',
  ],
  user: '',
  working_dir: '',
  stop_signal: 'SIGQUIT',
};
const workload = desiredWorkload('wl_a', 'image', {
  env: { A: '2', NODE_OPTIONS: '--inspect' },
  gpu_uuids: ['GPU-0', 'GPU-1'],
});
const machine = { cpu_cores: 64, ram_bytes: 9 * 1024 ** 3, gpu_count: 8, limits: { memlock_bytes: -1, nofile: 1024 } };
const entry = { entrypoint: ['/guest'], mounts: [] };

// Specification 4.3: entrypoint drops the image CMD unless cmd is given; an empty one keeps it.
test.each([
  [null, null, ['/entry', 'a', 'b']],
  [null, ['c'], ['/entry', 'c']],
  [null, [], ['/entry']],
  [['/other'], null, ['/other']],
  [['/other'], ['c'], ['/other', 'c']],
  [[], ['c'], ['c']],
  [[], null, ['a', 'b']],
  [[], [], []],
])('entrypoint %j and cmd %j', (entrypoint, cmd, argv) => {
  expect(commandOf({ entrypoint, cmd }, image)).toEqual(argv);
});

describe('the environment', () => {
  test('belongs to the image for the main process, and the request overrides it', () => {
    const { env, stop_signal } = mainProgramOf(workload, image);
    expect(env).toMatchObject({ PATH: '/image', LD_PRELOAD: '/evil.so', A: '2', NODE_OPTIONS: '--inspect' });
    expect(stop_signal).toBe('SIGQUIT');
  });

  test('gives the guest no variable of the image, and lets no image choose its GPUs', () => {
    const { env } = shapeOf(workload, image, entry, machine);
    const set = env.filter((line) => line.includes('='));
    expect(set).toEqual(['NVIDIA_DRIVER_CAPABILITIES=compute']);
    const hook = ['NVIDIA_REQUIRE_CUDA=cuda>=12', 'NVIDIA_DISABLE_REQUIRE=1', 'CUDA_VERSION=12.4'];
    const devices = [
      'NVIDIA_MOFED',
      'NVIDIA_GDS',
      'NVIDIA_NVSWITCH',
      'NVIDIA_IMEX_CHANNELS',
      'NVIDIA_MIG_CONFIG_DEVICES',
    ];
    const asked = {
      ...image,
      env: [...hook, ...devices.map((name) => `${name}=enabled`), 'NVIDIA_DRIVER_CAPABILITIES_X=a'],
    };
    const made = shapeOf(
      desiredWorkload('wl_a', 'image', { env: { NVIDIA_GDRCOPY: 'enabled' } }),
      asked,
      entry,
      machine,
    );
    expect(made.env.filter((line) => line.includes('=') && !line.startsWith('NVIDIA_VISIBLE'))).toEqual(hook);
    expect(made.env).toEqual(expect.arrayContaining([...devices, 'NVIDIA_GDRCOPY']));
    expect(env).toEqual(expect.arrayContaining(['PATH', 'LD_PRELOAD', 'A', 'NODE_OPTIONS', 'NVIDIA_VISIBLE_DEVICES']));
    const without = shapeOf({ ...workload, gpu_uuids: [] }, image, entry, machine);
    expect(without.env).toContain('NVIDIA_VISIBLE_DEVICES=void');
  });
});

test('a container gets a share of the machine in proportion to its GPUs', () => {
  const shape = shapeOf(workload, image, entry, machine);
  expect(shape).toMatchObject({
    memory_bytes: 2 * 1024 ** 3,
    shm_bytes: 1024 ** 3,
    nano_cpus: 16e9,
    cpu_shares: 2048,
    memlock_bytes: -1,
    nofile: 1024,
  });
});
