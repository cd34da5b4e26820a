// Converts the usage rows of the API into a chart and into sums, by time bucket and by group. All functions are pure.
import type { UsageRow } from '../../../../shared/api/billing.ts';
import { nearestUcents } from '../../../../shared/money.ts';

export type Bucket = 'hour' | 'day' | 'week';
export type GroupBy = 'gpu_type' | 'instance_id';

export interface Group {
  name: string;
  gpuSeconds: number;
  ucents: bigint;
}

export interface Chart {
  /** Start of each bucket, also of those in which nothing was used. */
  starts: readonly number[];
  /** The names of the series: the groups with the highest cost, then all other groups as one. */
  series: readonly string[];
  /** Microcents of each series, for each bucket. */
  columns: readonly (readonly bigint[])[];
  /** Dollars at the upper edge of the chart. */
  top: number;
}

export const OTHERS = 'All others';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const WEEK_MS = 7 * DAY_MS;
/** 1 January 1970 was a Thursday, and weeks begin on Monday. */
const MONDAY_MS = 4 * DAY_MS;
const SPANS: Record<Bucket, { ms: number; count: number; fromMs: number }> = {
  hour: { ms: HOUR_MS, count: 48, fromMs: 0 },
  day: { ms: DAY_MS, count: 30, fromMs: 0 },
  week: { ms: WEEK_MS, count: 13, fromMs: MONDAY_MS },
};
/** Number of groups that have their own colour. All others share one more colour. */
const SERIES_MAX = 3;

/** The first moment of the window of a chart, in epoch ms. The last bucket of the window is the current one. */
export function startOf(bucket: Bucket, nowMs: number): number {
  const { ms, count, fromMs } = SPANS[bucket];
  return Math.floor((nowMs - fromMs) / ms) * ms + fromMs - (count - 1) * ms;
}

/** The groups, the one with the highest cost first. */
export function groupsOf(rows: readonly UsageRow[], groupBy: GroupBy): Group[] {
  const groups = new Map<string, Group>();
  for (const row of rows) {
    const name = row[groupBy] ?? '';
    const before = groups.get(name) ?? { name, gpuSeconds: 0, ucents: 0n };
    groups.set(name, {
      name,
      gpuSeconds: before.gpuSeconds + row.gpu_seconds,
      ucents: before.ucents + nearestUcents(Number(row.cost)),
    });
  }
  return [...groups.values()].toSorted((a, b) => Number(b.ucents - a.ucents));
}

export function chartOf(
  rows: readonly UsageRow[],
  { bucket, groupBy, startMs, nowMs }: { bucket: Bucket; groupBy: GroupBy; startMs: number; nowMs: number },
): Chart {
  const names = groupsOf(rows, groupBy).map(({ name }) => name);
  const hasOthers = names.length > SERIES_MAX + 1;
  const own = names.slice(0, hasOthers ? SERIES_MAX : SERIES_MAX + 1);
  const series = hasOthers ? [...own, OTHERS] : own;
  const { ms } = SPANS[bucket];
  const length = Math.floor((nowMs - startMs) / ms) + 1;
  const columns = Array.from({ length }, () => series.map(() => 0n));
  for (const row of rows) {
    const column = columns[Math.floor((Date.parse(row.bucket_start) - startMs) / ms)];
    const found = own.indexOf(row[groupBy] ?? '');
    const at = found === -1 ? series.length - 1 : found;
    if (column !== undefined) column[at] = (column[at] ?? 0n) + nearestUcents(Number(row.cost));
  }
  const highest = Math.max(...columns.map((column) => Number(sum(column)) / 1e8));
  return { starts: columns.map((_, index) => startMs + index * ms), series, columns, top: topOf(highest) };
}

export function sum(amounts: readonly bigint[]): bigint {
  return amounts.reduce((all, each) => all + each, 0n);
}

/** The next of 1, 2, 2.5 and 5 times a power of ten. */
function topOf(highest: number): number {
  if (highest <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(highest));
  return power * ([1, 2, 2.5, 5].find((step) => step * power >= highest) ?? 10);
}
