// The figures of instances and machines over the API: who sees what, by the minute and live, and what is stored when.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { brought } from '../../../control-plane/brings.ts';
import { countRow } from '../../../control-plane/base/db/columns.ts';
import { type Db, sql } from '../../../control-plane/base/db/db.ts';
import { openFleetMetrics } from '../../../control-plane/fleet/metrics/metrics.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { METRICS_KEEP_MS, METRICS_STALE_MS } from '../../../shared/limits.ts';
import type { MetricsSample } from '../../../shared/protocol/metrics.ts';
import { type Api, type ApiAccount, openApi } from '../../contract/api.ts';
import { bringMachine } from '../../contract/suppliers.ts';
import { containerSample, gpuSample, metricsSample } from '../../kit/samples.ts';

const MINUTE_MS = 60_000;

interface Series {
  avg: (number | null)[];
  max: (number | null)[];
}
/** An answer as the tests below read it. */
interface Shown {
  status: number;
  points: string[];
  gpus: {
    uuid: string;
    utilization_percent: Series;
    memory_temperature_celsius: Series;
    power_watts: Series;
    throttle_reasons: (number | null)[];
  }[];
  container: Record<string, Series>;
  host: Record<string, Series>;
  latest: { at: string } | null;
  errors: { field: string }[];
}

let api: Api;
let supplier: ApiAccount;
let customer: ApiAccount;
let machineId: string;
let instanceId: string;
let workloadId: string;

beforeEach(async () => {
  api = await openApi();
  supplier = await api.account();
  customer = await api.account();
  machineId = await bringMachine(api, supplier, {}, 2);
  instanceId = await api.world.run(customer, { gpu_type: 'H100_SXM' });
  workloadId = (await findInstance(api.world.db.read, instanceId))?.workload_id ?? '';
});
afterEach(() => api.close());

const take = (patch: Partial<MetricsSample>): void => {
  const { clock, rooms } = api.world;
  rooms.fleetMetrics.take(machineId, metricsSample(clock.monotonicMs(), patch));
};
const tick = (): Promise<void> => api.world.rooms.fleetMetrics.tick();
const read = async (who: ApiAccount, path: string): Promise<Shown> => {
  const { status, json } = await api.call('GET', `/v1${path}`, { key: who.key });
  return { status, ...json } as unknown as Shown;
};
const ofInstance = (who = customer, query = '') => read(who, `/instances/${instanceId}/metrics${query}`);
const ofMachine = (who = supplier, query = '') => read(who, `/community/machines/${machineId}/metrics${query}`);
const scrape = async (who: ApiAccount): Promise<string[]> => {
  const answer = await api.call('GET', '/v1/metrics', { key: who.key });
  expect(answer.headers['content-type']).toBe('text/plain; version=0.0.4; charset=utf-8');
  return String(answer.body).split('\n');
};
const own = (more: object = {}) => gpuSample('GPU-a', { index: 1, workload_id: workloadId, ...more });
const rows = async (): Promise<number> =>
  (await api.world.db.read.one(countRow, sql`select count(*) as count from metric_minutes`))?.count ?? 0;

/** Two samples of one minute, ten seconds apart, and the beginning of the next minute. */
async function aMinute(): Promise<void> {
  take({ gpus: [own({ utilization_percent: 40, throttle_reasons: 1 })], containers: [containerSample(workloadId)] });
  await api.world.clock.advance(10_000);
  const containers = [containerSample(workloadId, { cpu_seconds: 125, network_received_bytes: 20_000 })];
  take({ gpus: [own({ utilization_percent: 60 }), gpuSample('GPU-free')], containers });
  await api.world.clock.advance(50_000);
  await tick();
}

describe('a minute', () => {
  test('is one row with the average and the largest sample of each figure', async () => {
    await aMinute();
    expect(await rows()).toBe(1);
    const shown = await ofInstance();
    expect(shown).toMatchObject({ status: 200, instance_id: instanceId, step_s: 60 });
    const [gpu, ...others] = shown.gpus;
    expect(others).toEqual([]);
    // The container counts its own GPUs from 0.
    expect(gpu).toMatchObject({ uuid: 'GPU-a', index: 0 });
    const at = (gpu?.utilization_percent.avg ?? []).findIndex((value) => value !== null);
    expect(gpu?.utilization_percent.avg[at]).toBe(50);
    expect(gpu?.utilization_percent.max[at]).toBe(60);
    expect(gpu?.memory_temperature_celsius.avg[at]).toBeNull();
    expect(gpu?.throttle_reasons[at]).toBe(5);
    expect(gpu?.power_watts.avg).toHaveLength(shown.points.length);
    expect(shown.container['cpu_cores_used']?.avg[at]).toBe(2.5);
    expect(shown.container['network_received_bytes_per_second']?.avg[at]).toBe(1_000);
    expect(shown.container['network_sent_bytes_per_second']?.avg[at]).toBe(0);
  });

  test('is stored once, and the newest sample with it', async () => {
    await aMinute();
    await tick();
    await tick();
    expect(await rows()).toBe(1);
    expect((await ofInstance()).latest).toMatchObject({
      gpus: [{ uuid: 'GPU-a', index: 0, utilization_percent: 60 }],
      container: { cpu_cores_used: 2.5, memory_limit_bytes: 2_000 },
    });
  });

  test('that is not over is stored when the process ends', async () => {
    take({ gpus: [own()] });
    await tick();
    expect(await rows()).toBe(0);
    await api.world.rooms.fleetMetrics.close();
    expect(await rows()).toBe(1);
  });

  test('that cannot be stored keeps no minute of other machines from being stored', async () => {
    const { db, clock } = api.world;
    let writes = 0;
    const flaky: Db = {
      ...db,
      tx: (name, body) => ((writes += 1) === 1 ? Promise.reject(new Error('it took too long')) : db.tx(name, body)),
    };
    const figures = openFleetMetrics({ db: flaky, clock, link: { isUp: () => false, watch: () => undefined } });
    // One statement has a hundred machines.
    for (let i = 0; i < 101; i += 1) figures.take(`m-${1_000 + i}`, metricsSample(0, {}));
    await expect(figures.close()).rejects.toThrow('it took too long');
    expect(await rows()).toBe(1);
  });

  test('of which another process has stored more samples stays as it is', async () => {
    take({ gpus: [own({ utilization_percent: 10 })] });
    take({ gpus: [own({ utilization_percent: 10 })] });
    await api.world.rooms.fleetMetrics.close();
    const { db, clock } = api.world;
    const next = openFleetMetrics({ db, clock, link: { isUp: () => false, watch: () => undefined } });
    next.take(machineId, metricsSample(0, { gpus: [own({ utilization_percent: 99 })] }));
    await next.close();
    const { gpus } = await ofInstance(customer, `?until=${new Date(clock.now() + MINUTE_MS).toISOString()}`);
    expect(gpus[0]?.utilization_percent.max).toContain(10);
    expect(gpus[0]?.utilization_percent.max).not.toContain(99);
  });

  test('is forgotten after seven days, and not a millisecond earlier', async () => {
    const { clock } = api.world;
    await clock.advance(MINUTE_MS - (clock.now() % MINUTE_MS));
    const startMs = clock.now();
    await aMinute();
    const forget = async (): Promise<void> => {
      const [room] = brought(api.world.brings(), 'forgets').filter(({ what }) => what === 'metrics');
      await room?.run(new AbortController().signal);
    };
    clock.jump(startMs + METRICS_KEEP_MS - 1 - clock.now());
    await forget();
    expect(await rows()).toBe(1);
    clock.jump(1);
    await forget();
    expect(await rows()).toBe(0);
  });
});

describe('who sees what', () => {
  test('another organisation sees no instance and no machine', async () => {
    await aMinute();
    const stranger = await api.account();
    expect(await ofInstance(stranger)).toMatchObject({ status: 404, code: 'not_found' });
    expect(await ofMachine(stranger)).toMatchObject({ status: 404, code: 'not_found' });
    expect(await ofMachine(customer)).toMatchObject({ status: 404 });
    expect(await ofInstance(supplier)).toMatchObject({ status: 404 });
    expect((await scrape(stranger)).filter((line) => line !== '' && !line.startsWith('#'))).toEqual([]);
  });

  test('the supplier sees all GPUs and the host, and nothing from inside the container', async () => {
    await aMinute();
    const shown = await ofMachine();
    expect(shown.gpus.map(({ uuid }) => uuid)).toEqual(['GPU-free', 'GPU-a']);
    expect(shown.host['disk_used_bytes']?.max).toContain(300);
    expect(shown.latest).toMatchObject({ host: { cpu_cores: 64 } });
    expect(JSON.stringify(shown)).not.toContain('container');
    expect(JSON.stringify(shown)).not.toContain(instanceId);
  });

  test('a GPU that changes hands within a minute shows each customer its own part', async () => {
    take({ gpus: [own({ workload_id: null, utilization_percent: 100 })] });
    take({ gpus: [own({ utilization_percent: 20 })] });
    await api.world.clock.advance(MINUTE_MS);
    await tick();
    const { gpus } = await ofInstance();
    expect(gpus[0]?.utilization_percent.max.filter((value) => value !== null)).toEqual([20]);
    const machine = await ofMachine();
    expect(machine.gpus[0]?.utilization_percent.avg).toContain(60);
  });

  test('a workload that is not placed on the machine is not believed', async () => {
    const other = await bringMachine(api, supplier, {}, 1);
    const { clock, rooms } = api.world;
    const forged = { gpus: [own({ uuid: 'GPU-forged' })], containers: [containerSample(workloadId)] };
    rooms.fleetMetrics.take(other, metricsSample(0, forged));
    await clock.advance(MINUTE_MS);
    await tick();
    expect(await ofInstance()).toMatchObject({ gpus: [], container: null, latest: null });
    const shown = await read(supplier, `/community/machines/${other}/metrics`);
    expect(shown.gpus[0]?.uuid).toBe('GPU-forged');
  });
});

describe('the window', () => {
  const at = (ms: number): string => new Date(api.world.clock.now() + ms).toISOString();

  test.each([
    ['?step_s=59', 'step_s'],
    ['?step_s=90', 'step_s'],
    ['?step_s=86460', 'step_s'],
    ['?from=yesterday', 'from'],
    ['?until=-271821-04-20', 'until'],
    ['?until=0000-12-31T23:59:59.999Z', 'until'],
    ['?until=%2B010000-01-01', 'until'],
    ['?bogus=1', 'bogus'],
  ])('refuses %s', async (query, field) => {
    const answer = await ofInstance(customer, query);
    expect(answer).toMatchObject({ status: 422, code: 'validation_failed' });
    expect(answer.errors[0]?.field).toContain(field);
  });

  test('must not be empty', async () => {
    const now = at(0);
    expect(await ofInstance(customer, `?from=${now}&until=${now}`)).toMatchObject({ status: 422 });
    expect(await ofInstance(customer, `?from=${at(-MINUTE_MS)}&until=${now}`)).toMatchObject({ status: 200 });
  });

  test.each(['0001-01-01', '9999-12-31T23:59:59.999Z'])('may end at %s', async (until) => {
    expect(await ofInstance(customer, `?until=${until}`)).toMatchObject({ status: 200 });
  });

  test('has at most 1,440 points, and a larger step by default if it is long', async () => {
    const day = `from=${at(-1_440 * MINUTE_MS)}&until=${at(0)}`;
    const longer = `from=${at(-1_441 * MINUTE_MS)}&until=${at(0)}`;
    expect((await ofInstance(customer, `?${day}&step_s=60`)).points).toHaveLength(1_440);
    expect(await ofInstance(customer, `?${longer}&step_s=60`)).toMatchObject({ status: 422 });
    expect(await ofInstance(customer, `?${longer}`)).toMatchObject({ status: 200, step_s: 120 });
    expect((await ofInstance(customer, '?step_s=86400')).points).toHaveLength(1);
  });

  test('may be longer than a day', async () => {
    const { clock } = api.world;
    const startMs = clock.now();
    for (let i = 0; i < 1_445; i += 1) {
      take({ gpus: [own()] });
      clock.jump(MINUTE_MS);
      await tick();
    }
    const shown = await ofInstance(customer, `?from=${new Date(startMs).toISOString()}&step_s=86400`);
    expect(shown.gpus[0]?.utilization_percent.avg).toEqual([90, 90]);
  });
});

describe('live figures', () => {
  test('are stored every second while somebody looks, and with the minute otherwise', async () => {
    const { clock } = api.world;
    await clock.advance(MINUTE_MS - (clock.now() % MINUTE_MS));
    take({ gpus: [own()] });
    await tick();
    expect((await ofInstance()).latest).toBeNull();
    await tick();
    expect((await ofInstance()).latest).toMatchObject({ gpus: [{ utilization_percent: 90 }] });
    await clock.advance(1_000);
    take({ gpus: [own({ utilization_percent: 91 })] });
    await tick();
    expect((await ofInstance()).latest).toMatchObject({ gpus: [{ utilization_percent: 91 }] });
  });

  test('are absent once they are old', async () => {
    await aMinute();
    const { clock } = api.world;
    const sampledMs = Date.parse((await ofInstance()).latest?.at ?? '');
    clock.jump(sampledMs + METRICS_STALE_MS - clock.now());
    expect((await ofInstance()).latest).not.toBeNull();
    expect((await scrape(customer)).join()).toContain('GPU-a');
    clock.jump(1);
    expect((await ofInstance()).latest).toBeNull();
    expect((await scrape(customer)).join()).not.toContain('GPU-a');
  });

  test('are the new ones after the clock was set back', async () => {
    await ofMachine();
    take({});
    await tick();
    api.world.clock.step(-3_600_000);
    expect((await ofMachine()).latest).toBeNull();
    await api.world.clock.advance(1_000);
    take({});
    await tick();
    const { latest } = await ofMachine();
    expect(Date.parse(latest?.at ?? '')).toBe(api.world.clock.now());
  });

  test('make the host sample quickly: it is told once per look, and the look is renewed by a reader that polls', async () => {
    const { db, clock } = api.world;
    const sent: [string, number, number][] = [];
    const link = {
      isUp: () => true,
      watch: (id: string, forMs: number) => void sent.push([id, forMs, clock.monotonicMs() - startMs]),
    };
    const metrics = openFleetMetrics({ db, clock, link });
    const startMs = clock.monotonicMs();
    for (let second = 0; second < 40; second += 1) {
      // The reader polls for 20 s and goes away.
      if (second < 20) await metrics.look(machineId);
      await metrics.tick();
      clock.jump(1_000);
    }
    expect(sent).toEqual([
      [machineId, 30_000, 0],
      [machineId, 30_000, 16_000],
    ]);
  });

  test('of an instance that has ended make nobody sample', async () => {
    await api.world.end(customer, instanceId);
    await ofInstance();
    const count = await api.world.db.read.one(countRow, sql`select count(*) as count from metric_machines`);
    expect(count?.count).toBe(0);
  });
});

describe('GET /v1/metrics', () => {
  const valueOf = (lines: readonly string[], name: string): string[] =>
    lines.filter((line) => line.startsWith(`${name}{`));

  test("has the figures of the caller's instances under DCGM's names", async () => {
    await aMinute();
    const lines = await scrape(customer);
    expect(lines).toContain('# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).');
    expect(lines).toContain('# TYPE DCGM_FI_DEV_GPU_UTIL gauge');
    expect(valueOf(lines, 'DCGM_FI_DEV_GPU_UTIL')).toEqual([
      `DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",device="nvidia0",modelName="H100_SXM",Hostname="${instanceId}",instance_id="${instanceId}"} 60`,
    ]);
    for (const name of ['FB_USED', 'FB_FREE', 'POWER_USAGE', 'GPU_TEMP', 'SM_CLOCK', 'MEM_CLOCK'])
      expect(valueOf(lines, `DCGM_FI_DEV_${name}`)).toHaveLength(1);
    // The card has no such value.
    expect(valueOf(lines, 'DCGM_FI_DEV_MEMORY_TEMP')).toEqual([]);
    expect(valueOf(lines, 'svc_instance_cpu_cores_used')).toEqual([
      `svc_instance_cpu_cores_used{instance_id="${instanceId}"} 2.5`,
    ]);
    expect(valueOf(lines, 'svc_machine_cpu_cores')).toEqual([]);
  });

  test('has the machines of a supplier, and escapes what a host has named', async () => {
    take({ gpus: [gpuSample('GPU-"x"\\\n')] });
    await api.world.clock.advance(MINUTE_MS);
    await tick();
    const lines = await scrape(supplier);
    const [gpu, ...others] = valueOf(lines, 'DCGM_FI_DEV_GPU_UTIL');
    expect(others).toEqual([]);
    expect(gpu).toContain(String.raw`UUID="GPU-\"x\"\\\n"`);
    expect(gpu).toContain(`machine_id="${machineId}"`);
    expect(valueOf(lines, 'svc_machine_cpu_cores')).toEqual([`svc_machine_cpu_cores{machine_id="${machineId}"} 64`]);
  });

  test('shows only what the other scopes of the key let it read', async () => {
    await aMinute();
    const limited = async (orgId: string, scopes: string[]): Promise<ApiAccount> => {
      const made = await api.world.rooms.accounts.createKey({ orgId, name: 'scraper', scopes, expiresMs: null });
      return { orgId, principalId: made.id, key: made.key };
    };
    const blind = await limited(customer.orgId, ['metrics:read']);
    expect((await scrape(blind)).join()).not.toContain('GPU-a');
    const seeing = await limited(customer.orgId, ['metrics:read', 'instances:read']);
    expect((await scrape(seeing)).join()).toContain('GPU-a');
  });

  test('makes no host sample quickly', async () => {
    await aMinute();
    await scrape(customer);
    const looked = sql`select count(*) as count from metric_machines where watched_until_ms > 0`;
    expect((await api.world.db.read.one(countRow, looked))?.count).toBe(0);
  });
});
