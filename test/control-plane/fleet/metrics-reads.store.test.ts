// Reads of many minutes: they give way to other requests, and no organisation and no host makes them larger than an honest one needs.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { GPU_NAMES } from '../../../control-plane/fleet/metrics/figures.ts';
import { type FleetMetrics, openFleetMetrics } from '../../../control-plane/fleet/metrics/metrics.ts';
import { insertMinutes } from '../../../control-plane/fleet/metrics/store.ts';
import { instanceMetrics, machineMetrics } from '../../../control-plane/fleet/metrics/views.ts';
import { GPUS_PER_MACHINE_MAX, METRICS_READS_PER_ORG_MAX } from '../../../shared/limits.ts';
import { type Api, type ApiAccount, openApi } from '../../contract/api.ts';
import { bringMachine } from '../../contract/suppliers.ts';
import { textOf } from '../../kit/sql-text.ts';

const MINUTE_MS = 60_000;
/** Minutes that are read in one turn. */
const PAGE = 120;
/** Turns of the event loop after the last page of a read, in which other requests are served. */
const BREAK = 8;
const INSTANCE = 'i-aaaaaaaaaaaaaaaaaaaa';

let api: Api;
let supplier: ApiAccount;
let machineId: string;

beforeEach(async () => {
  api = await openApi();
  supplier = await api.account();
  machineId = await bringMachine(api, supplier, {}, 1);
});
afterEach(() => api.close());

/** Stores minutes 0, 1, ... of the machine, each with these GPUs. */
async function store(count: number, uuids: (minute: number) => string[]): Promise<void> {
  const rows = Array.from({ length: count }, (_, minute) => {
    const values = GPU_NAMES.map(() => minute);
    const summary = { n: 1, avg: values, max: values };
    const gpus = uuids(minute).map((uuid) => ({ uuid, index: 0, instance_id: INSTANCE, ...summary }));
    return {
      machine_id: machineId,
      minute_ms: minute * MINUTE_MS,
      samples: 1,
      figures: { gpus, containers: [], host: null },
    };
  });
  await api.world.db.tx('test.minutes', (tx) => insertMinutes(tx, rows));
}

const windowOf = (minutes: number) => ({ fromMs: 0, untilMs: minutes * MINUTE_MS, stepMs: MINUTE_MS });

/** The room on a database and a clock that write down what it does: the rows of each page, and the turns of the event loop that it waits for. */
function recorded(): { metrics: FleetMetrics; events: (number | 'turn')[] } {
  const { db, clock } = api.world;
  const events: (number | 'turn')[] = [];
  const read: typeof db.read = {
    one: (row, statement) => db.read.one(row, statement),
    all: async (row, statement) => {
      const rows = await db.read.all(row, statement);
      if (textOf(statement).includes('metric_minutes')) events.push(rows.length);
      return rows;
    },
  };
  const nextTurn = (): Promise<void> => {
    events.push('turn');
    return clock.nextTurn();
  };
  const link = { isUp: () => false, watch: () => undefined };
  return { metrics: openFleetMetrics({ db: { ...db, read }, clock: { ...clock, nextTurn }, link }), events };
}

/** What one page of this size costs: a turn of the event loop, and a break if it is the last one. */
function turnsOf(page: number): (number | 'turn')[] {
  return [page, ...Array.from({ length: page < PAGE ? 1 + BREAK : 1 }, () => 'turn' as const)];
}

describe('a read of many minutes', () => {
  test.each([
    [PAGE - 1, [PAGE - 1]],
    [PAGE, [PAGE, 0]],
    [PAGE + 1, [PAGE, 1]],
  ])('of %d has each of them once', async (count, expected) => {
    await store(count, () => ['GPU-a']);
    const { metrics, events } = recorded();
    const shown = await machineMetrics(machineId, windowOf(count), metrics);
    await expect.poll(() => events).toEqual(expected.flatMap(turnsOf));
    expect(shown.gpus[0]?.utilization_percent.avg).toEqual(Array.from({ length: count }, (_, minute) => minute));
  });

  test('gives way after each page and before the next answer, and all reads together read one page in a turn', async () => {
    await store(3 * PAGE - 1, () => ['GPU-a']);
    const { metrics, events } = recorded();
    const window = windowOf(3 * PAGE);
    const instance = { id: INSTANCE, machineId, isLive: false };
    const [first, second] = await Promise.all([
      machineMetrics(machineId, window, metrics),
      instanceMetrics(instance, window, metrics),
      machineMetrics(machineId, window, metrics),
    ]);
    // Each gets its next page after the others have got theirs.
    const pages = [PAGE, PAGE, PAGE, PAGE, PAGE, PAGE, PAGE - 1, PAGE - 1, PAGE - 1];
    await expect.poll(() => events).toEqual(pages.flatMap(turnsOf));
    expect(second.gpus).toEqual(first.gpus);
  });

  test('is refused if the database does not answer another one', async () => {
    const { db, clock } = api.world;
    const asked = Promise.withResolvers<void>();
    const read: typeof db.read = {
      one: (row, statement) => db.read.one(row, statement),
      all: () => new Promise(() => asked.resolve()),
    };
    const metrics = openFleetMetrics({
      db: { ...db, read },
      clock,
      link: { isUp: () => false, watch: () => undefined },
    });
    void metrics.eachMinute(machineId, windowOf(1), () => undefined);
    await asked.promise;
    const second = metrics.eachMinute(machineId, windowOf(1), () => undefined).catch((error: unknown) => error);
    await clock.advance(30_000);
    expect(await second).toMatchObject({ code: 'unavailable' });
  });
});

describe('GPUs with new names', () => {
  test.each([
    [GPUS_PER_MACHINE_MAX, 0],
    [GPUS_PER_MACHINE_MAX + 1, 1],
  ])('%d of them in a window: %d is left out, the one with the oldest figures', async (count, leftOut) => {
    await store(count, (minute) => [`GPU-${minute}`]);
    const { gpus } = await machineMetrics(machineId, windowOf(count), recorded().metrics);
    const shown = Array.from({ length: count }, (_, minute) => `GPU-${minute}`).slice(leftOut);
    expect(new Set(gpus.map(({ uuid }) => uuid))).toEqual(new Set(shown));
    const instance = { id: INSTANCE, machineId, isLive: false };
    expect((await instanceMetrics(instance, windowOf(count), recorded().metrics)).gpus).toHaveLength(shown.length);
  });
});

test(`an organisation reads ${METRICS_READS_PER_ORG_MAX} at once: one more waits for its turn, and is refused after a while`, async () => {
  const { fleetMetrics } = api.world.rooms;
  const { eachMinute } = fleetMetrics;
  const gates: (() => void)[] = [];
  fleetMetrics.eachMinute = async (...args) => {
    await new Promise<void>((resolve) => gates.push(resolve));
    return eachMinute(...args);
  };
  const read = (who: ApiAccount, path: string) => api.call('GET', `/v1/community/machines/${path}/metrics`, who);
  const { clock } = api.world;
  const asked = Array.from({ length: METRICS_READS_PER_ORG_MAX }, () => read(supplier, machineId));
  await expect.poll(() => gates.length).toBe(METRICS_READS_PER_ORG_MAX);
  // Each read that waits has a timer, and they come to their turn in their order.
  const timers = clock.waiting();
  for (const waiting of [1, 2]) {
    asked.push(read(supplier, machineId));
    await expect.poll(() => clock.waiting()).toBe(timers + waiting);
  }
  expect(gates).toHaveLength(METRICS_READS_PER_ORG_MAX);
  const other = await api.account();
  const others = read(other, await bringMachine(api, other, {}, 1));
  await expect.poll(() => gates.length).toBe(METRICS_READS_PER_ORG_MAX + 1);
  gates[0]?.();
  await expect.poll(() => gates.length).toBe(METRICS_READS_PER_ORG_MAX + 2);
  await clock.advance(5_000);
  const refused = await asked.at(-1);
  expect(refused).toMatchObject({ status: 429, json: { code: 'rate_limit_exceeded' } });
  expect(refused?.headers['retry-after']).toBe('10');
  for (const open of gates) open();
  const answers = await Promise.all([...asked.slice(0, -1), others]);
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
});
