// The options of `svc` that say on which host a launch may run, and the same conditions as filters of `svc price list`.
import { describe, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { LAUNCH } from '../../kit/world.ts';
import { END, exited, play, RUN, svcOf as svcOfPlayed } from './played-api.ts';
import { api, openSvcForEachTest, owner, svcOf } from './svc-of-test.ts';

/** The body that a launch with these options sends. */
async function sentBy(words: string[], options: string[]): Promise<unknown> {
  const played = play({ ends: [exited(0)], logs: [END] });
  expect(await svcOfPlayed(played, ...words, ...options)).toMatchObject({ code: 0 });
  return played.launches[0];
}

/** Stores the uptime of all machines that there are, in hundredths of a percent. */
async function setUptime(bps: number): Promise<void> {
  await api.world.db.tx('test.uptime', (tx) => tx.run(sql`update offerings set uptime_bps = ${bps}`));
}

const CREATE = ['instance', 'create', '--image', 'busybox'];
const H100 = ['--gpu-type', 'H100_SXM'];
const L40S = { name: 'NVIDIA L40S', memory_mib: 46_068 };
const DISKS = { diskEnforced: true, storageBytes: 4 * 1024 ** 4 };

describe.each([
  ['instance create', CREATE],
  ['run', RUN.slice(0, 4)],
])('svc %s', (_name, words) => {
  test.each([
    [['--gpu-type', 'H100_SXM'], { gpu_type: 'H100_SXM' }],
    [['--gpu-type', 'H100_SXM,L40S'], { requirements: { gpu_types: ['H100_SXM', 'L40S'] } }],
    [['--gpu-type', 'L4', '--gpu-type', 'H100_SXM, L40S'], { requirements: { gpu_types: ['L4', 'H100_SXM', 'L40S'] } }],
    [
      ['--region', 'eu-west', '--only-region', 'eu-west', '--only-region', 'eu-north'],
      { region: 'eu-west', requirements: { regions: ['eu-west', 'eu-north'] } },
    ],
    [['--only-region', 'eu-west, eu-north'], { requirements: { regions: ['eu-west', 'eu-north'] } }],
    [['--min-vram', '80'], { requirements: { min_vram_gb: 80 } }],
    [['--min-cpus', '16'], { requirements: { min_cpu_cores: 16 } }],
    [['--min-ram', '64'], { requirements: { min_ram_gb: 64 } }],
    [['--min-cuda', '12.8'], { requirements: { min_cuda_version: '12.8' } }],
    [['--min-uptime', '0.99'], { requirements: { min_uptime: 0.99 } }],
    [['--offering', 'off_1'], { offering_id: 'off_1' }],
  ])('with %j sends what it requires of the host', async (options, members) => {
    expect(await sentBy(words, options)).toMatchObject(members);
  });

  test('requires nothing of the host without such an option, and names no type that is not given', async () => {
    const sent = await sentBy(words, []);
    expect(sent).not.toHaveProperty('requirements');
    expect(await sentBy(words, ['--gpu-type', 'L4,L40S'])).not.toHaveProperty('gpu_type');
  });
});

describe('against the API,', () => {
  openSvcForEachTest();

  test('a launch goes where its options allow it', async () => {
    await api.world.machine({ region: 'us-east', dollars: 1 });
    await api.world.machine({ region: 'eu-north', dollars: 3 });
    const options = ['--gpu-type', `L4,${LAUNCH.gpu_type ?? ''}`, '--only-region', 'eu-north', '--min-cpus', '8'];
    expect(await svcOf().run(...CREATE, ...options)).toMatchObject({ code: 0, stderr: '' });
    const { json } = await api.call('GET', '/v1/instances', { key: owner.key });
    expect(json.data).toEqual([expect.objectContaining({ region: 'eu-north', gpu_type: LAUNCH.gpu_type })]);
  });

  test.each([
    { options: [...H100, '--only-region', 'eu-north', '--region', 'us-east'], named: ['--region', '--only-region'] },
    { options: ['--gpu-type', 'L4,'], named: ['--gpu-type with several types'] },
    { options: [...H100, '--offering', 'off_1', '--min-ram', '1'], named: ['--offering \\(svc price list\\)'] },
    { options: ['--gpu-type', 'B200,L4'], named: ['--count', '--gpu-type with several types'] },
    { options: [...H100, '--min-vram', '0'], named: ['--min-vram'] },
    { options: [...H100, '--min-cpus', '1.5'], named: ['--min-cpus'] },
    { options: [...H100, '--min-ram', '65537'], named: ['--min-ram'] },
    { options: [...H100, '--min-cuda', '12'], named: ['--min-cuda'] },
    { options: [...H100, '--min-uptime', '99'], named: ['--min-uptime'] },
    { options: [...H100, '--env', 'my-path=x'], named: ['--env'] },
    {
      options: [...H100, '--min-cuda', '12.8', '--tier', 'reserved'],
      named: ['what --only-region, --min-vram'],
    },
  ])('a refusal of $options names the option', async ({ options, named }) => {
    const refused = await svcOf().run(...CREATE, ...options);
    expect(refused).toMatchObject({ code: 1, stdout: '' });
    const [, next = ''] = refused.stderr.split('\n');
    expect(named.filter((option) => !new RegExp(` is ${option}[,.]`).test(next))).toEqual([]);
  });

  test('a launch that no host fits says what every host lacks', async () => {
    await api.world.machine();
    const launch = [...CREATE, '--gpu-type', LAUNCH.gpu_type ?? '', '--min-cpus', '4096', '--wait'];
    const failed = await svcOf({ onSleep: () => api.world.drive() }).run(...launch);
    expect(failed.code).toBe(5);
    expect(failed.stderr).toContain('0 with at least 4096 processors for the instance.');
  });

  test('the prices show what a customer needs to choose, within 130 characters', async () => {
    await api.world.machine({ gpus: 2, region: 'eu-north', dollars: 2, cpuCores: 32 });
    await setUptime(9_980);
    const { stdout } = await svcOf().run('price', 'list');
    expect(stdout).toMatch(
      /^OFFERING_ID +GPU_TYPE +REGION +PRICE_PER_HOUR +AVAILABLE +CPU_CORES +RAM_GB +HOST_GPU_COUNT +UPTIME\n/,
    );
    expect(stdout).toMatch(/^off_\w+ +H100_SXM +eu-north +2 +2 +32 +\d+ +2 +0\.998$/m);
    expect(Math.max(...stdout.split('\n').map((line) => line.length))).toBeLessThanOrEqual(130);
  });

  test.each([
    [['--gpu-type', 'L40S'], ['us-east']],
    [
      ['--gpu-type', 'L40S,H100_SXM'],
      ['eu-north', 'us-east'],
    ],
    [
      ['--gpu-type', 'L40S', '--gpu-type', 'H100_SXM'],
      ['eu-north', 'us-east'],
    ],
    [['--region', 'eu-north'], ['eu-north']],
    [['--count', '2'], ['eu-north']],
    [['--count', '2', '--max-price', '3'], []],
    [['--max-price', '1.5'], ['us-east']],
    [['--disk', '900'], ['eu-north']],
    [['--min-vram', '80'], ['eu-north']],
    [['--min-cpus', '30'], ['us-east']],
    [['--min-ram', '300'], ['us-east']],
    [['--min-cuda', '13.0'], ['us-east']],
    [['--min-uptime', '0.998'], ['us-east']],
    [
      ['--sort', 'price'],
      ['us-east', 'eu-north'],
    ],
    [
      ['--sort', 'newest'],
      ['eu-north', 'us-east'],
    ],
  ])('the prices with %j are those of %j', async (options, regions) => {
    await api.world.machine({ region: 'us-east', dollars: 1, driver: '580.65.06', gpu: L40S });
    await setUptime(9_980);
    await api.world.machine({ gpus: 2, region: 'eu-north', dollars: 2, cpuCores: 48, ...DISKS });
    const { code, stdout } = await svcOf().run('price', 'list', ...options, '--json');
    expect(code).toBe(0);
    const { data } = JSON.parse(stdout) as { data: { region: string }[] };
    expect(data.map(({ region }) => region)).toEqual(regions);
  });

  test.each([
    [['--count', '9'], 'gpu_count is --count.'],
    [['--sort', 'cheap'], 'sort is --sort.'],
    [['--min-cuda', '12'], 'min_cuda_version is --min-cuda.'],
  ])('a refusal of the prices with %j names the option', async (options, next) => {
    const refused = await svcOf().run('price', 'list', ...options);
    expect(refused).toMatchObject({ code: 1, stdout: '' });
    expect(refused.stderr.split('\n')[1]).toBe(next);
  });
});
