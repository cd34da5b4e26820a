// POST /v1/instances with `requirements`, and the filters of GET /v1/pricing (extensions of specification 4.1 and 4.3).
import { describe, expect, test } from 'vitest';
import { sql } from '../../control-plane/base/db/db.ts';
import { linkHost, loseHost } from '../kit/machines.ts';
import { LAUNCH } from '../kit/world.ts';
import { type Answer, newestInstance, postLaunch } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';

const GIB = 1024 ** 3;

openApiForEachTest();

const launch = (body: object): Promise<Answer> => postLaunch(api, owner, { ...LAUNCH, ...body });
const newest = (): Promise<Record<string, unknown>> => newestInstance(api, owner);
const rows = async (query: string): Promise<Record<string, unknown>[]> =>
  (await api.call('GET', `/v1/pricing?${query}`)).json.data ?? [];
/** Stores what the loop of the supply would: uptime and failed launches of the machine, in hundredths of a percent. */
async function setShown(machineId: string, uptimeBps: number, failedBps: number | null): Promise<void> {
  await api.world.db.tx('test.shown', (tx) =>
    tx.run(
      sql`update offerings set uptime_bps = ${uptimeBps}, failed_launch_share_bps = ${failedBps} where machine_id = ${machineId}`,
    ),
  );
}

describe('a launch', () => {
  test('goes to the required region although another one is cheaper', async () => {
    await api.world.machine({ region: 'us-east', dollars: 1 });
    await api.world.machine({ region: 'eu-north', dollars: 3 });
    await launch({ requirements: { regions: ['eu-north', 'eu-south'] } });
    expect(await newest()).toMatchObject({ region: 'eu-north', price_per_hour: 3 });
  });

  test('takes the cheapest of several GPU types', async () => {
    await api.world.machine({ dollars: 3 });
    await api.world.machine({ dollars: 2, gpu: { name: 'NVIDIA L40S', memory_mib: 46_068 } });
    const accepted = await launch({ gpu_type: undefined, requirements: { gpu_types: ['H100_SXM', 'L40S'] } });
    expect(accepted.status).toBe(202);
    expect(await newest()).toMatchObject({ gpu_type: 'L40S', price_per_hour: 2 });
  });

  test('is refused if none of its GPU types is on offer', async () => {
    await api.world.machine();
    const refused = await launch({ gpu_type: undefined, requirements: { gpu_types: ['B200', 'L4'] } });
    expect(refused).toMatchObject({
      status: 422,
      json: { code: 'image_unavailable', errors: [{ field: 'requirements.gpu_types' }] },
    });
    expect(refused.json.detail).toContain('a GPU of one of the types B200, L4.');
  });

  test('fails if no host meets what it requires, and says what left none', async () => {
    await api.world.machine();
    const accepted = await launch({
      gpu_type: undefined,
      requirements: { gpu_types: ['H100_SXM', 'L4'], min_ram_gb: 511, min_cpu_cores: 65 },
    });
    expect(accepted.status).toBe(202);
    await api.world.drive();
    const operation = await api.call('GET', `/v1/operations/${String(accepted.json['operation_id'])}`, {
      key: owner.key,
    });
    expect(operation.json).toMatchObject({ state: 'failed', error: { code: 'no_capacity' } });
    const detail = JSON.stringify(operation.json['error']);
    expect(detail).toContain('1 of type H100_SXM (chosen from H100_SXM, L4), 1 with at least 1 GPU,');
    expect(detail).toContain('0 with at least 65 processors for the instance.');
  });

  test('may require an uptime, and is told if no host has it', async () => {
    const { machineId } = await api.world.machine();
    await setShown(machineId, 9_950, null);
    await api.world.machine({ dollars: 1 });
    await launch({ requirements: { min_uptime: 0.995 } });
    expect(await newest()).toMatchObject({ price_per_hour: 2 });
    const accepted = await launch({ requirements: { min_uptime: 0.996 } });
    await api.world.drive();
    const operation = await api.call('GET', `/v1/operations/${String(accepted.json['operation_id'])}`, {
      key: owner.key,
    });
    expect(JSON.stringify(operation.json['error'])).toContain(
      '0 with an uptime of at least 99.6 % in the last 30 days.',
    );
  });

  test('shows the offering that it got and its share of the host, also after another host has taken its place', async () => {
    await api.world.machine({ dollars: 1, gpus: 4, cpuCores: 64, ramBytes: 257 * GIB });
    const [first] = await rows('');
    await launch({ gpu_count: 2 });
    const share = { vram_gb: 80, cpu_cores: 32, ram_gb: 128 };
    expect(await newest()).toMatchObject({ offering_id: first?.['offering_id'], ...share });
    await api.world.machine({ dollars: 1, gpus: 2, cpuCores: 12, ramBytes: 65 * GIB });
    const [second] = await rows('');
    const id = String((await newest())['id']);
    await api.world.observe(id, { phase: 'failed', failure_code: 'engine_unavailable', detail: 'the disk broke' });
    await api.world.drive();
    expect(await newest()).toMatchObject({ offering_id: second?.['offering_id'], cpu_cores: 12, ram_gb: 64 });
  });

  test('shows no offering and no share before it has a place', async () => {
    await api.world.machine();
    await launch({ requirements: { min_ram_gb: 65_536 } });
    const instance = await newest();
    for (const field of ['offering_id', 'vram_gb', 'cpu_cores', 'ram_gb']) expect(instance).not.toHaveProperty(field);
  });

  test('that is pinned to an offering needs no GPU type, and says why it cannot run there', async () => {
    const { machineId } = await api.world.machine({ dollars: 36 });
    const [row] = await rows('');
    const pin = { gpu_type: undefined, offering_id: row?.['offering_id'] };
    expect((await launch(pin)).status).toBe(202);
    expect(await newest()).toMatchObject({ gpu_type: 'H100_SXM', price_per_hour: 36 });
    expect((await launch({ ...pin, offering_id: 'off_none' })).json).toMatchObject({ code: 'offering_unavailable' });
    const id = String((await newest())['id']);
    await api.world.observe(id, { phase: 'failed', failure_code: 'engine_unavailable', detail: 'the disk broke' });
    await api.world.drive();
    expect((await newest())['status_reason']).toContain('could not start it. The launch was pinned to it');
    await loseHost(api.world, machineId);
    await linkHost(api.world, machineId);
    await launch({ ...pin, max_price_per_hour: 35.99 });
    await api.world.drive();
    expect((await newest())['status_reason']).toContain('costs $36.00 an hour, above the price cap of $35.99.');
  });

  test('cannot be pinned to an offering too', async () => {
    await api.world.machine();
    const [row] = await rows('');
    const refused = await launch({ offering_id: row?.['offering_id'], requirements: { min_ram_gb: 1 } });
    expect(refused.json.errors).toEqual([{ field: 'requirements', rule: 'cannot be combined with offering_id' }]);
  });

  test.each([
    ['min_vram_gb', 4_096],
    ['min_cpu_cores', 4_096],
    ['min_ram_gb', 65_536],
  ])('may require %s from 1 to %d', async (field, most) => {
    await api.world.machine();
    const answer = async (value: number): Promise<number> =>
      (await launch({ requirements: { [field]: value } })).status;
    expect([await answer(0), await answer(1), await answer(most), await answer(most + 1)]).toEqual([
      422, 202, 202, 422,
    ]);
  });
});

test('a launch may require an uptime from 0 to 1', async () => {
  await api.world.machine();
  const answers = [-0.001, 0, 0.5, 1, 1.001].map((uptime) => launch({ requirements: { min_uptime: uptime } }));
  expect((await Promise.all(answers)).map(({ status }) => status)).toEqual([422, 202, 202, 202, 422]);
});

describe('GET /v1/pricing', () => {
  test('shows how reliable the host was as soon as it is known, and lists those with an uptime', async () => {
    const { machineId } = await api.world.machine({ region: 'us-east' });
    const other = await api.world.machine({ region: 'eu-north' });
    const [row] = await rows('region=us-east');
    expect(row).not.toHaveProperty('uptime');
    expect(row).not.toHaveProperty('failed_launch_share');
    await setShown(machineId, 9_980, 2_000);
    await setShown(other.machineId, 9_900, null);
    const listed = async (query: string): Promise<unknown[]> => (await rows(query)).map(({ region }) => region);
    expect(await rows('region=us-east')).toMatchObject([{ uptime: 0.998, failed_launch_share: 0.2 }]);
    expect(await listed('min_uptime=0.99')).toEqual(['eu-north', 'us-east']);
    expect(await listed('min_uptime=0.991')).toEqual(['us-east']);
    expect(await listed('min_uptime=0.999')).toEqual([]);
  });

  test('lists the offerings that meet all filters', async () => {
    await api.world.machine({ gpus: 2, region: 'eu-north', dollars: 2, cpuCores: 32 });
    await api.world.machine({ gpus: 2, region: 'us-east', dollars: 1, driver: '580.65.06' });
    const regions = async (query: string): Promise<unknown[]> => (await rows(query)).map(({ region }) => region);
    expect(await regions('')).toEqual(['us-east', 'eu-north']);
    expect(await regions('region=eu-north')).toEqual(['eu-north']);
    expect(await regions('min_cpu_cores=17')).toEqual(['us-east']);
    expect(await regions('min_cpu_cores=32&gpu_count=2')).toEqual(['us-east', 'eu-north']);
    expect(await regions('min_cuda_version=13.0')).toEqual(['us-east']);
    expect(await regions('max_price_per_hour=2&gpu_count=2')).toEqual(['us-east']);
    expect(await regions('gpu_type=L4')).toEqual([]);
    expect(await regions('gpu_type=L4,H100_SXM&region=us-east')).toEqual(['us-east']);
    const types = (count: number): string => Array.from({ length: count }, () => 'A').join(',');
    expect((await api.call('GET', `/v1/pricing?gpu_type=${types(20)}`)).status).toBe(200);
    expect((await api.call('GET', `/v1/pricing?gpu_type=${types(21)}`)).json.errors).toEqual([
      { field: 'gpu_type', rule: 'must be at most 20 types' },
    ]);
  });

  test('comes in pages by price, whose cursors are of no use in the list by time', async () => {
    for (const dollars of [3, 1, 2]) await api.world.machine({ dollars });
    const first = await api.call('GET', '/v1/pricing?sort=price&limit=2');
    expect(first.json.data?.map((row) => row['price_per_hour'])).toEqual([1, 2]);
    const cursor = first.json.next_cursor;
    expect((await rows(`sort=price&limit=2&cursor=${cursor}`)).map((row) => row['price_per_hour'])).toEqual([3]);
    expect((await api.call('GET', `/v1/pricing?cursor=${cursor}`)).status).toBe(422);
  });

  test.each([
    ['gpu_count', '0', '1', '8', '9'],
    ['disk_gb', '9', '10', '1000', '1001'],
    ['min_vram_gb', '0', '1', '4096', '4097'],
    ['min_cpu_cores', '0', '1', '4096', '4097'],
    ['min_ram_gb', '0', '1', '65536', '65537'],
    ['max_price_per_hour', '0', '0.01', '1000000', '1000001'],
    ['min_uptime', '-0.001', '0', '1', '1.001'],
    ['auto_terminate_hours', '0', '1', '720', '721'],
  ])('takes %s from %s on no, from %s to %s yes, and %s no', async (field, ...values) => {
    const answers = await Promise.all(values.map((value) => api.call('GET', `/v1/pricing?${field}=${value}`)));
    expect(answers.map(({ status }) => status)).toEqual([422, 200, 200, 422]);
    expect(answers[0]?.json.errors?.map((error) => error.field)).toEqual([field]);
  });
});
