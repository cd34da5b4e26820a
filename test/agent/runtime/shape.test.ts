// Commands as containers mean them, and an environment in which our guest cannot be captured.
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { makeEtcFiles, mainProgramOf, shapeOf } from '../../../agent/runtime/shape.ts';
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

  test('has variables without a value, and values with an equals sign; the signal is SIGTERM if the image names none', () => {
    const odd = { ...image, env: ['EMPTY=', 'BARE', 'OPTS=a=b'], stop_signal: '' };
    const { env, stop_signal } = mainProgramOf({ ...workload, env: {} }, odd);
    expect(env).toEqual({ EMPTY: '', BARE: '', OPTS: 'a=b' });
    expect(stop_signal).toBe('SIGTERM');
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
    // A second line for a variable would win over the first one.
    const names = env.map((line) => line.split('=')[0]);
    expect(new Set(names).size).toBe(names.length);
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

describe('the share of a container', () => {
  const GIB = 1024 ** 3;
  const share = (gpus: number, patch: Partial<typeof machine>): [number, number, number] => {
    const gpu_uuids = Array.from({ length: gpus }, (_, i) => `GPU-${i}`);
    const shape = shapeOf({ ...workload, gpu_uuids }, image, entry, { ...machine, ...patch });
    return [shape.memory_bytes / GIB, shape.nano_cpus / 1e9, shape.cpu_shares];
  };

  test.each([
    ['all GPUs', 8, {}, [8, 64, 8_192]],
    ['no GPU is that of one', 0, {}, [1, 8, 1_024]],
    ['no GPU, on a machine without GPUs, is the whole machine', 0, { gpu_count: 0 }, [8, 64, 1_024]],
    ['more GPUs than the machine shows now is the whole machine', 2, { gpu_count: 1 }, [8, 64, 2_048]],
    [
      'one of eight GPUs on a small machine is half a GiB and one core',
      1,
      { cpu_cores: 4, ram_bytes: 2 * GIB },
      [0.5, 1, 1_024],
    ],
    ['one of eight GPUs may be a part of a core above one', 1, { cpu_cores: 12 }, [1, 1.5, 1_024]],
  ])('with %s', (_what, gpus, patch, expected) => {
    expect(share(gpus, patch)).toEqual(expected);
  });

  test('has at most 16,384 processes, and its host name is that of the instance', () => {
    const shape = shapeOf(workload, image, entry, machine);
    expect(shape).toMatchObject({
      pids_max: 16_384,
      hostname: 'i-wl_a',
      instance_id: 'i-wl_a',
      network: 'own',
      folders: [],
    });
  });
});

test('a container has our own files in /etc, which everybody may read', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'etc-'));
  const mounts = await makeEtcFiles(folder, 'host-1');
  const contentOf = new Map(mounts.map(({ source, target }) => [target, readFileSync(source, 'utf8')]));
  expect([...contentOf.keys()]).toEqual(['/etc/hosts', '/etc/hostname', '/etc/resolv.conf']);
  expect(contentOf.get('/etc/hostname')).toBe('host-1\n');
  expect(contentOf.get('/etc/hosts')).toContain('127.0.0.1 localhost\n');
  expect(contentOf.get('/etc/hosts')).toContain('127.0.1.1 host-1\n');
  // Docker's own DNS server, in every network but the default one.
  expect(contentOf.get('/etc/resolv.conf')).toContain('nameserver 127.0.0.11\n');
  for (const { source } of mounts) expect(statSync(source).mode & 0o777).toBe(0o644);
  rmSync(folder, { recursive: true });
});
