// Usage of many segments: they are read in pages with turns of the event loop between, and an organisation reads few of them at once.
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { usageRows } from '../../../control-plane/money/metering/usage.ts';
import { openSums, type UsageRow } from '../../../control-plane/money/metering/usage-sums.ts';
import { USAGE_READS_PER_ORG_MAX } from '../../../shared/limits.ts';
import { type Api, type ApiAccount, openApi } from '../../contract/api.ts';
import { textOf } from '../../kit/sql-text.ts';

const HOUR_MS = 3_600_000;
/** Segments that are read in one turn of the event loop, and parts that are added up in one. */
const PAGE = 500;
const PARTS = 2_000;
/** Rows above twice the limit that are kept before some are dropped. */
const SLACK = 1_000;

let api: Api;
let account: ApiAccount;
beforeEach(async () => {
  api = await openApi();
  account = await api.account();
});
afterEach(async () => {
  await clear();
  await api.close();
});

interface Made {
  id: string;
  subject?: string;
  from: number;
  to: number | null;
}
const clear = (): Promise<number> => api.world.db.tx('test.clear', (tx) => tx.run(sql`delete from meter_segments`));
/** Inserts segments at $0.36 an hour, which is 10,000 microcents a second. */
async function store(made: readonly Made[]): Promise<void> {
  await api.world.db.tx('test.segments', async (tx) => {
    for (const { id, subject = id, from, to } of made)
      await tx.run(
        sql`insert into meter_segments (id, subject_id, org_id, supplier_id, machine_id, gpu_type, gpu_count, rate_ucents_per_hour, supplier_bps,
              started_ms, posted_through_ms, ended_ms)
            values (${id}, ${subject}, ${account.orgId}, 's', 'm', 'H100', 1, 36000000, 8000, ${from}, ${from}, ${to})`,
      );
  });
}
/** The segments of as many rentals, all of the same time. */
const rentals = (count: number, to: number | null): Made[] =>
  Array.from({ length: count }, (_, i) => ({ id: `r-${String(i).padStart(5, '0')}`, from: 1_000, to }));

/** Reads the usage of some hours by GPU type, and writes down the segments of each page and the turns of the event loop. */
async function read(hours: number): Promise<{ rows: UsageRow[]; events: (number | 'turn')[] }> {
  const { db, clock } = api.world;
  const events: (number | 'turn')[] = [];
  const all: typeof db.read.all = async (row, statement) => {
    const found = await db.read.all(row, statement);
    if (textOf(statement).includes('org_id =')) events.push(found.length);
    return found;
  };
  const nextTurn = (): Promise<void> => {
    events.push('turn');
    return clock.nextTurn();
  };
  const window = { startMs: 0, endMs: hours * HOUR_MS, nowMs: hours * HOUR_MS, bucket: 'hour' as const };
  const asked = { orgId: account.orgId, groupBy: 'gpu_type' as const, after: undefined, limit: 10_000 };
  const deps = { db: { read: { one: db.read.one, all } }, clock: { nextTurn } };
  return { rows: await usageRows(deps, { ...window, ...asked }), events };
}

describe('a read of usage', () => {
  test.each([
    [PAGE - 1, [PAGE - 1, 'turn']],
    [PAGE, [PAGE, 'turn', 0, 'turn']],
    [PAGE + 1, [PAGE, 'turn', 1, 'turn']],
  ])('of %d segments gives way after each page, and counts each once', async (count, pages) => {
    await store(rentals(count, 2_000));
    const ended = await read(1);
    expect(ended.events).toEqual([0, 'turn', ...pages]);
    expect(ended.rows).toEqual([rowOf(count)]);
    await clear();
    await store(rentals(count, null));
    const open = await read(1);
    expect(open.events).toEqual([...pages, 0, 'turn']);
    expect(open.rows).toEqual([rowOf(count * 3_599)]);
  });

  test.each([
    [PARTS - 1, 0],
    [PARTS, 1],
    [PARTS + 1, 1],
  ])('of a rental of %d hours gives way %d times between its parts', async (hours, turns) => {
    await store([{ id: 'i', from: 0, to: null }]);
    const { rows, events } = await read(hours);
    expect(rows).toHaveLength(hours);
    // Slices have 1, 2, 4, ... hours, and each gives way after the page of open segments and after that of ended ones.
    const slices = Math.ceil(Math.log2(hours + 1));
    expect(events.filter((event) => event === 'turn')).toHaveLength(2 * slices + turns);
  });

  test('counts a rental once that ends while the pages are read', async () => {
    await store([{ id: 'i', from: 1_000, to: null }]);
    const { db, clock } = api.world;
    const nextTurn = async (): Promise<void> => {
      await db.tx('test.end', (tx) => tx.run(sql`update meter_segments set ended_ms = ${HOUR_MS - 1} where id = 'i'`));
      await clock.nextTurn();
    };
    const window = { startMs: 0, endMs: HOUR_MS, nowMs: HOUR_MS, bucket: 'hour' as const };
    const asked = { orgId: account.orgId, groupBy: 'gpu_type' as const, after: undefined, limit: 10 };
    expect(await usageRows({ db, clock: { nextTurn } }, { ...window, ...asked })).toEqual([rowOf(3_599)]);
  });

  test('has the totals of each rental, whatever its outages and whichever page they are on', async () => {
    const made = Array.from({ length: 300 }, (_, i): Made[] => {
      const [subject, from] = [`r-${i}`, i * 700];
      return [
        { id: `c-${i}`, subject, from, to: from + 1_333 },
        { id: `b-${i}`, subject, from: from + 1_333, to: from + 1_333 },
        { id: `a-${i}`, subject, from: from + 2 * HOUR_MS, to: from + 2 * HOUR_MS + 1_777 },
      ];
    }).flat();
    await store(made);
    const { rows } = await read(3);
    // 1.333 s and 3.110 s are rounded down to whole seconds, so the second part has two.
    expect(rows).toEqual([
      { ...rowOf(0), gpuSeconds: 300, costUcents: 300n * 13_330n },
      { ...rowOf(0), bucketStartMs: 2 * HOUR_MS, gpuSeconds: 600, costUcents: 300n * 17_770n },
    ]);
  });
});

/** The row of the first hour with as many seconds. */
function rowOf(seconds: number): UsageRow {
  const costUcents = BigInt(seconds) * 10_000n;
  // Cents are rounded down for each rental, and none of these rentals costs more than 36 cents.
  return { bucketStartMs: 0, key: 'H100', gpuSeconds: seconds, costCents: centsOf(seconds), costUcents };
}
/** 3,599 seconds cost 35.99 cents. */
function centsOf(seconds: number): bigint {
  return BigInt(Math.floor(seconds / 3_599)) * 35n;
}

describe('the sums of a page', () => {
  const part = (bucket: number, key: string, seconds = 1): UsageRow => ({
    bucketStartMs: bucket,
    key,
    gpuSeconds: seconds,
    costCents: BigInt(seconds),
    costUcents: BigInt(seconds) * 7n,
  });

  test.each([
    [2 * 3 + SLACK, 2 * 3 + SLACK],
    [2 * 3 + SLACK + 1, 3],
  ])('of 3 rows store %d others, and then %d', (count, stored) => {
    const sums = openSums({ after: undefined, limit: 3 });
    for (let i = count; i > 0; i -= 1) sums.add(part(i, 'k'));
    expect(sums.size()).toBe(stored);
    expect(sums.first().map((row) => row.bucketStartMs)).toEqual([1, 2, 3]);
  });

  test('are those of all rows, of which the first are taken', () => {
    const anyPart = fc.record({ bucket: fc.nat({ max: 60 }), key: fc.nat({ max: 40 }), seconds: fc.nat({ max: 9 }) });
    const parts = fc.array(anyPart, { minLength: 1_500, maxLength: 4_000, size: 'max' });
    fc.assert(
      fc.property(parts, fc.integer({ min: 1, max: 9 }), fc.option(anyPart), (given, limit, from) => {
        const after = from === null ? undefined : part(from.bucket, `k${from.key}`);
        const sums = openSums({ after, limit });
        const order = (row: UsageRow): string => `${String(row.bucketStartMs).padStart(3, '0')} ${row.key}`;
        const expected = new Map<string, number>();
        for (const { bucket, key, seconds } of given) {
          const row = part(bucket, `k${key}`, seconds);
          sums.add(row);
          if (after === undefined || order(row) > order(after))
            expected.set(order(row), (expected.get(order(row)) ?? 0) + seconds);
        }
        const first = [...expected].toSorted(([a], [b]) => (a < b ? -1 : 1)).slice(0, limit);
        expect(sums.first().map((row) => [order(row), row.gpuSeconds])).toEqual(first);
        expect(sums.first().every((row) => row.costUcents === BigInt(row.gpuSeconds) * 7n)).toBe(true);
      }),
      { seed: 34, numRuns: 50 },
    );
  });
});

test(`an organisation reads ${USAGE_READS_PER_ORG_MAX} at once: one more waits for its turn, and is refused after a while`, async () => {
  const { clock, db } = api.world;
  const { all } = db.read;
  const gates: (() => void)[] = [];
  db.read.all = async (row, statement) => {
    if (textOf(statement).includes('ended_ms is null and started_ms <'))
      await new Promise<void>((resolve) => gates.push(resolve));
    return all(row, statement);
  };
  // One slice, so that each read waits at one gate.
  const start = new Date(clock.now() - 1).toISOString();
  const usage = (who: ApiAccount) => api.call('GET', `/v1/usage?bucket=month&start=${start}`, who);
  const asked = Array.from({ length: USAGE_READS_PER_ORG_MAX }, () => usage(account));
  await expect.poll(() => gates.length).toBe(USAGE_READS_PER_ORG_MAX);
  // Each read that waits has a timer, and they come to their turn in their order.
  const timers = clock.waiting();
  for (const waiting of [1, 2]) {
    asked.push(usage(account));
    await expect.poll(() => clock.waiting()).toBe(timers + waiting);
  }
  const others = usage(await api.account());
  await expect.poll(() => gates.length).toBe(USAGE_READS_PER_ORG_MAX + 1);
  gates[0]?.();
  await expect.poll(() => gates.length).toBe(USAGE_READS_PER_ORG_MAX + 2);
  await clock.advance(5_000);
  expect(await asked.at(-1)).toMatchObject({ status: 429, json: { code: 'rate_limit_exceeded' } });
  for (const open of gates) open();
  const answers = await Promise.all([...asked.slice(0, -1), others]);
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
});
