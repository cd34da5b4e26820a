// Usage as a chart: windows that begin with a bucket, and columns that add up to what was charged.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  type Bucket,
  chartOf,
  groupsOf,
  OTHERS,
  startOf,
  sum,
} from '../../../control-plane/console/web/money/usage-rows.ts';
import type { UsageRow } from '../../../shared/api/billing.ts';
import { dollarText } from '../../../shared/money.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const LENGTHS: Record<Bucket, { ms: number; count: number }> = {
  hour: { ms: HOUR_MS, count: 48 },
  day: { ms: DAY_MS, count: 30 },
  week: { ms: 7 * DAY_MS, count: 13 },
};
const BUCKETS = ['hour', 'day', 'week'] as const;
const NOW_MS = Date.UTC(2026, 10, 24, 15, 30);
const START_MS = startOf('day', NOW_MS);

const row = (atMs: number, type: string, ucents: bigint, seconds = 0): UsageRow => ({
  bucket_start: new Date(atMs).toISOString(),
  gpu_type: type,
  gpu_seconds: seconds,
  cost_cents: 0,
  cost: dollarText(ucents),
});
const chart = (rows: readonly UsageRow[]): ReturnType<typeof chartOf> =>
  chartOf(rows, { bucket: 'day', groupBy: 'gpu_type', startMs: START_MS, nowMs: NOW_MS });

/** Rows in the window, of at most seven GPU types. */
const rowsOfWindow = fc.array(
  fc
    .record({
      day: fc.nat(29),
      type: fc.constantFrom('A10', 'A40', 'B200', 'H100', 'H200', 'L4', 'L40S'),
      ucents: fc.bigInt({ min: 0n, max: 10n ** 12n }),
      seconds: fc.nat(1_000_000),
    })
    .map(({ day, type, ucents, seconds }) => row(START_MS + day * DAY_MS, type, ucents, seconds)),
);

describe('the window', () => {
  test('begins at midnight on 26 October for days, on a Monday for weeks, and two days ago for hours', () => {
    expect(new Date(startOf('day', NOW_MS)).toISOString()).toBe('2026-10-26T00:00:00.000Z');
    expect(new Date(startOf('week', NOW_MS)).toISOString()).toBe('2026-08-31T00:00:00.000Z');
    expect(new Date(startOf('hour', NOW_MS)).toISOString()).toBe('2026-11-22T16:00:00.000Z');
  });

  test('begins with a whole bucket of UTC, and the present bucket is its last one, at any time', () => {
    fc.assert(
      fc.property(fc.constantFrom(...BUCKETS), fc.integer({ min: 0, max: Date.UTC(2100, 0) }), (bucket, nowMs) => {
        const { ms, count } = LENGTHS[bucket];
        const startMs = startOf(bucket, nowMs);
        const start = new Date(startMs);
        expect([start.getUTCMinutes(), start.getUTCSeconds(), start.getUTCMilliseconds()]).toEqual([0, 0, 0]);
        expect(bucket === 'hour' || start.getUTCHours() === 0).toBe(true);
        expect(bucket !== 'week' || start.getUTCDay() === 1).toBe(true);
        expect(Math.floor((nowMs - startMs) / ms)).toBe(count - 1);
        const { starts } = chartOf([], { bucket, groupBy: 'gpu_type', startMs, nowMs });
        expect(starts).toHaveLength(count);
        expect((starts.at(-1) ?? NaN) <= nowMs && nowMs < (starts.at(-1) ?? NaN) + ms).toBe(true);
      }),
    );
  });
});

describe('the groups', () => {
  test('add up to all rows, the dearest one first', () => {
    fc.assert(
      fc.property(rowsOfWindow, (rows) => {
        const groups = groupsOf(rows, 'gpu_type');
        expect(groups).toHaveLength(new Set(rows.map(({ gpu_type: type }) => type)).size);
        expect(groups.reduce((all, { gpuSeconds }) => all + gpuSeconds, 0)).toBe(
          rows.reduce((all, { gpu_seconds: seconds }) => all + seconds, 0),
        );
        const amounts = groups.map(({ ucents }) => ucents);
        expect(amounts).toEqual(amounts.toSorted((a, b) => (a < b ? 1 : -1)));
        expect(dollarText(sum(amounts))).toBe(dollarText(sum(chart(rows).columns.flat())));
      }),
    );
  });

  test('a row without its member belongs to the group without a name', () => {
    expect(groupsOf([row(START_MS, 'A10', 5n)], 'instance_id')).toEqual([{ name: '', gpuSeconds: 0, ucents: 5n }]);
  });
});

describe('the chart', () => {
  test('has at most four series, and each column has what was charged in its bucket', () => {
    fc.assert(
      fc.property(rowsOfWindow, (rows) => {
        const { starts, series, columns } = chart(rows);
        const types = new Set(rows.map(({ gpu_type: type }) => type)).size;
        expect(series).toHaveLength(Math.min(types, 4));
        expect(series.includes(OTHERS)).toBe(types > 4);
        for (const [index, column] of columns.entries()) {
          const own = rows.filter(({ bucket_start: at }) => Date.parse(at) === starts[index]);
          expect(column).toHaveLength(series.length);
          expect(sum(column)).toBe(sum(own.map(({ cost }) => BigInt(Math.round(Number(cost) * 1e8)))));
        }
      }),
    );
  });

  test('four groups are four series; with a fifth, the cheapest two are one', () => {
    const four = ['A', 'B', 'C', 'D'].map((type, index) => row(START_MS, type, BigInt(100 - index)));
    expect(chart(four).series).toEqual(['A', 'B', 'C', 'D']);
    const five = chart([...four, row(START_MS + DAY_MS, 'E', 1n)]);
    expect(five.series).toEqual(['A', 'B', 'C', OTHERS]);
    expect(five.columns.slice(0, 2)).toEqual([
      [100n, 99n, 98n, 97n],
      [0n, 0n, 0n, 1n],
    ]);
  });

  test('a row outside of the window is left out', () => {
    const { columns } = chart([row(START_MS - DAY_MS, 'A', 7n), row(NOW_MS + DAY_MS, 'A', 7n)]);
    expect(sum(columns.flat())).toBe(0n);
  });

  test('the upper edge is a round number, not below the highest column and at most twice it', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 1n, max: 10n ** 15n }), (ucents) => {
        const { top } = chart([row(START_MS, 'A', ucents)]);
        const highest = Number(ucents) / 1e8;
        expect(top).toBeGreaterThanOrEqual(highest);
        expect(top / highest).toBeLessThan(2.0000001);
        expect(Number(top.toPrecision(2).replace(/e.*/, '').replaceAll(/[0.]/g, ''))).toBeOneOf([1, 2, 25, 5]);
      }),
    );
    expect(chart([]).top).toBe(1);
  });
});
