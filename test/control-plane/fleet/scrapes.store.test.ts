// Scrapes by Prometheus: the text is the one that its client library makes, in pieces, and an organisation makes one at a time.
import { Gauge, Registry } from 'prom-client';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Scrape, type Scraped, prometheusPieces } from '../../../control-plane/fleet/metrics/exposition.ts';
import { CONTAINER_NAMES, GPU_NAMES, HOST_NAMES, type Values } from '../../../control-plane/fleet/metrics/figures.ts';
import { type LiveFigures, openFleetMetrics } from '../../../control-plane/fleet/metrics/metrics.ts';
import { findMachine, insertMachine } from '../../../control-plane/fleet/supply/store.ts';
import { METRICS_SCRAPES_PER_ORG_MAX } from '../../../shared/limits.ts';
import { type Api, type ApiAccount, openApi } from '../../contract/api.ts';
import { bringMachine } from '../../contract/suppliers.ts';

/** Lines of one piece. */
const LINES = 2_000;
/** Machines whose newest samples are read in one turn of the event loop. */
const CHUNK = 50;

const summary = (avg: Values) => ({ n: 1, avg, max: avg });
const gpu = (uuid: string, index: number, instance: string | null, seed = 1) => ({
  uuid,
  index,
  instance_id: instance,
  ...summary(GPU_NAMES.map((_, i) => (i === 6 ? null : seed * i * 1.1))),
});
const machine = (id: string, hostname = 'host'): Scraped => ({ id, machineId: id, modelName: 'H100', hostname });
const textOf = (scrape: Scrape): string => [...prometheusPieces(scrape)].join('');

describe('the text', () => {
  const odd = 'a "b" \\n \\\\ \n,$&é';
  const container = (id: string, avg: Values) => ({ instance_id: id, ...summary(avg) });
  const figures: LiveFigures['figures'] = {
    gpus: [gpu(odd, 3, 'i-1'), gpu('GPU-b', 1, 'i-1', 1e21), gpu('GPU-c', 0, null, -1e-7), gpu('GPU-c', 0, 'i-2', 0)],
    containers: [
      container('i-1', [1.5, null, 3, null, 5]),
      container('i-1', [0.25, 2, null, null, 1]),
      container('i-3', [9, 9, 9, 9, 9]),
    ],
    host: summary([1, 2, 3, 4, 5, null, 7, 8e30]),
  };
  const scrape: Scrape = {
    instances: [
      { ...machine('i-1', 'i-1'), machineId: 'm-1' },
      { ...machine('i-9'), machineId: 'm-silent' },
    ],
    machines: [machine('m-1', odd), machine('m-silent')],
    live: new Map([['m-1', { sampledMs: 1, figures }]]),
  };

  test('is the one that the client library of Prometheus makes', async () => {
    const registry = new Registry();
    const names = textOf(scrape).matchAll(/^# HELP (?<name>\w+) (?<help>.*)$/gm);
    const gauges = [...names].map(({ groups }) => {
      const labelNames = ['gpu', 'UUID', 'device', 'modelName', 'Hostname', 'instance_id', 'machine_id'];
      return new Gauge({
        name: groups?.['name'] ?? '',
        help: groups?.['help'] ?? '',
        labelNames,
        registers: [registry],
      });
    });
    expect(gauges).toHaveLength(GPU_NAMES.length + CONTAINER_NAMES.length + HOST_NAMES.length);
    const add = (from: number, labels: Record<string, string>, values: Values): void => {
      for (const [i, value] of values.entries()) if (value !== null) gauges[from + i]?.inc(labels, value);
    };
    const card = (uuid: string, index: number, host: string) =>
      ({ gpu: `${index}`, UUID: uuid, device: `nvidia${index}`, modelName: 'H100', Hostname: host }) as const;
    const [first, second, , third] = figures.gpus;
    // A container counts its own GPUs from 0, and a GPU that a host names twice is shown once.
    add(0, { ...card('GPU-b', 0, 'i-1'), instance_id: 'i-1' }, second?.avg ?? []);
    add(0, { ...card(odd, 1, 'i-1'), instance_id: 'i-1' }, first?.avg ?? []);
    add(0, { ...card('GPU-c', 0, odd), machine_id: 'm-1' }, third?.avg ?? []);
    add(0, { ...card('GPU-b', 1, odd), machine_id: 'm-1' }, second?.avg ?? []);
    add(0, { ...card(odd, 3, odd), machine_id: 'm-1' }, first?.avg ?? []);
    for (const { avg } of figures.containers.slice(0, 2)) add(GPU_NAMES.length, { instance_id: 'i-1' }, avg);
    add(GPU_NAMES.length + CONTAINER_NAMES.length, { machine_id: 'm-1' }, figures.host?.avg ?? []);
    expect(textOf(scrape)).toBe(await registry.metrics());
  });

  test('of nothing has all names', async () => {
    const empty = textOf({ instances: [], machines: [], live: new Map() });
    expect(empty.split('\n').filter((line) => line !== '' && !line.startsWith('#'))).toEqual([]);
    expect(empty).toContain('# TYPE svc_machine_disk_total_bytes gauge\n');
  });

  test.each([
    [LINES - 1, 1],
    [LINES, 1],
    [LINES + 1, 2],
  ])('of %d machines has %d pieces for a figure', (count, pieces) => {
    const machines = Array.from({ length: count }, (_, i) => machine(`m-${i}`));
    const host = summary(HOST_NAMES.map(() => 1));
    const live = new Map(machines.map(({ id }) => [id, { sampledMs: 1, figures: { gpus: [], containers: [], host } }]));
    const own = [...prometheusPieces({ instances: [], machines, live })].filter((piece) => !piece.includes('#'));
    expect(own).toHaveLength(pieces * HOST_NAMES.length);
    for (const piece of own) expect(piece.split('\n').length - 1).toBeLessThanOrEqual(LINES);
  });
});

describe('a scrape', () => {
  let api: Api;
  let supplier: ApiAccount;
  let machineId: string;
  beforeEach(async () => {
    api = await openApi();
    supplier = await api.account();
    machineId = await bringMachine(api, supplier, {}, 1);
  });
  afterEach(() => api.close());
  const scrape = (who: ApiAccount) => api.call('GET', '/v1/metrics', who);

  test.each([
    [CHUNK, 0],
    [CHUNK + 1, 1],
    [2 * CHUNK + 1, 2],
  ])('reads the newest samples of %d machines with %d turns of the event loop between', async (count, turns) => {
    const { db, clock } = api.world;
    const events: string[] = [];
    const nextTurn = (): Promise<void> => {
      events.push('turn');
      return clock.nextTurn();
    };
    const all: typeof db.read.all = (row, statement) => {
      events.push('read');
      return db.read.all(row, statement);
    };
    const read: typeof db.read = { one: (row, statement) => db.read.one(row, statement), all };
    const link = { isUp: () => false, watch: () => undefined };
    const metrics = openFleetMetrics({ db: { ...db, read }, clock: { ...clock, nextTurn }, link });
    await metrics.live(Array.from({ length: count }, (_, i) => `m-${i}`));
    expect(events).toEqual(['read', ...Array.from({ length: turns }, () => ['turn', 'read']).flat()]);
  });

  test('gives way after each piece', async () => {
    const { clock, rooms } = api.world;
    const { nextTurn } = clock;
    let turns = 0;
    const { live } = rooms.fleetMetrics;
    rooms.fleetMetrics.live = (ids) => {
      turns = 0;
      return live(ids);
    };
    clock.nextTurn = () => {
      turns += 1;
      return nextTurn();
    };
    expect((await scrape(supplier)).status).toBe(200);
    expect(turns).toBeGreaterThanOrEqual(GPU_NAMES.length + CONTAINER_NAMES.length + HOST_NAMES.length);
  });

  test.each([49, 50, 51, 101])('has each of %d machines once', async (count) => {
    const { db, rooms } = api.world;
    const asked: string[][] = [];
    rooms.fleetMetrics.live = (ids) => {
      asked.push([...ids]);
      return Promise.resolve(new Map());
    };
    const first = await findMachine(db.read, machineId);
    if (first === undefined) throw new Error('the machine is gone');
    const { created_ms: createdMs } = first;
    const others = Array.from({ length: count - 1 }, (_, i) => `m-${String(i).padStart(30, '0')}`);
    await db.tx('test.machines', async (tx) => {
      for (const [i, id] of others.entries())
        await insertMachine(tx, { ...first, id, created_ms: createdMs + (i % 7) });
    });
    expect((await scrape(supplier)).status).toBe(200);
    expect(asked.flat().toSorted()).toEqual([machineId, ...others].toSorted());
    expect(asked).toHaveLength(1);
  });

  test(`runs ${METRICS_SCRAPES_PER_ORG_MAX} at a time for an organisation: one more waits, and is refused after a while`, async () => {
    const { clock, rooms } = api.world;
    const { live } = rooms.fleetMetrics;
    const gates: (() => void)[] = [];
    rooms.fleetMetrics.live = async (ids) => {
      await new Promise<void>((resolve) => gates.push(resolve));
      return live(ids);
    };
    const asked = Array.from({ length: METRICS_SCRAPES_PER_ORG_MAX }, () => scrape(supplier));
    await expect.poll(() => gates.length).toBe(METRICS_SCRAPES_PER_ORG_MAX);
    // Each scrape that waits has a timer, and they come to their turn in their order.
    const timers = clock.waiting();
    for (const waiting of [1, 2]) {
      asked.push(scrape(supplier));
      await expect.poll(() => clock.waiting()).toBe(timers + waiting);
    }
    const others = scrape(await api.account());
    await expect.poll(() => gates.length).toBe(METRICS_SCRAPES_PER_ORG_MAX + 1);
    gates[0]?.();
    await expect.poll(() => gates.length).toBe(METRICS_SCRAPES_PER_ORG_MAX + 2);
    await clock.advance(5_000);
    expect(await asked.at(-1)).toMatchObject({ status: 429, json: { code: 'rate_limit_exceeded' } });
    for (const open of gates) open();
    const answers = await Promise.all([...asked.slice(0, -1), others]);
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
  });
});
