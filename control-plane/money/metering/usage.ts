// What an organisation used and what it cost, by time bucket (specification 2.8, 4.6). Includes the time that is not posted yet.
import { centsFloor } from '../../../shared/money.ts';
import type { Query } from '../../base/db/db.ts';
import { HOUR_MS, type UsagePart, usageParts } from './posting.ts';
import * as store from './store.ts';

export type Bucket = 'hour' | 'day' | 'week' | 'month';
export type GroupBy = 'instance_id' | 'gpu_type';

export interface UsageQuestion {
  orgId: string;
  bucket: Bucket;
  groupBy: GroupBy;
  /** Inclusive; hours that start in [startMs, endMs) count. */
  startMs: number;
  endMs: number;
  nowMs: number;
}

export interface UsageRow {
  bucketStartMs: number;
  /** The instance or the GPU type. */
  key: string;
  gpuSeconds: number;
  costCents: bigint;
}

/**
 * Rows ordered by bucket and key. Whole cents and seconds are differences of each rental's cumulative totals, so rows add up to the
 * same sum in every bucket and grouping.
 */
export async function usageRows(query: Query, question: UsageQuestion): Promise<UsageRow[]> {
  const { orgId, startMs, endMs } = question;
  const hours = await store.usageHours(query, orgId, { fromMs: startMs, beforeMs: endMs });
  const totals = await store.usageTotalsBefore(query, orgId, startMs);
  const before = new Map(totals.map((total) => [total.subject_id, total]));
  for (const segment of await store.openSegmentsOfOrg(query, orgId)) {
    for (const part of usageParts(
      segment,
      segment.posted_through_ms,
      Math.max(segment.posted_through_ms, question.nowMs),
    )) {
      if (part.hourStartMs >= endMs) continue;
      if (part.hourStartMs < startMs) {
        addTotal(before, segment.subject_id, part);
        continue;
      }
      hours.push({
        subject_id: segment.subject_id,
        gpu_type: segment.gpu_type,
        hour_start_ms: part.hourStartMs,
        ucents: part.ucents,
        gpu_ms: part.gpuMs,
      });
    }
  }
  const rows = new Map<string, UsageRow>();
  for (const [subjectId, ofRental] of Map.groupBy(hours, (hour) => hour.subject_id)) {
    addRental(rows, ofRental, { question, before: before.get(subjectId) });
  }
  return [...rows.values()].toSorted((a, b) => a.bucketStartMs - b.bucketStartMs || (a.key < b.key ? -1 : 1));
}

/** Time that is not posted yet can begin before the window, too. */
function addTotal(before: Map<string, store.UsageTotal>, subjectId: string, part: UsagePart): void {
  const total = before.get(subjectId) ?? { subject_id: subjectId, ucents: 0n, gpu_ms: 0 };
  before.set(subjectId, { ...total, ucents: total.ucents + part.ucents, gpu_ms: total.gpu_ms + part.gpuMs });
}

function addRental(
  rows: Map<string, UsageRow>,
  hours: store.UsageHour[],
  of: { question: UsageQuestion; before: store.UsageTotal | undefined },
): void {
  const { question } = of;
  let ucents = of.before?.ucents ?? 0n;
  let gpuMs = of.before?.gpu_ms ?? 0;
  for (const hour of hours.toSorted((a, b) => a.hour_start_ms - b.hour_start_ms)) {
    const centsBefore = centsFloor(ucents);
    const secondsBefore = Math.floor(gpuMs / 1000);
    ucents += hour.ucents;
    gpuMs += hour.gpu_ms;
    const key = question.groupBy === 'instance_id' ? hour.subject_id : hour.gpu_type;
    const bucketStartMs = bucketStart(hour.hour_start_ms, question.bucket);
    const id = `${bucketStartMs}/${key}`;
    const row = rows.get(id) ?? { bucketStartMs, key, gpuSeconds: 0, costCents: 0n };
    row.gpuSeconds += Math.floor(gpuMs / 1000) - secondsBefore;
    row.costCents += centsFloor(ucents) - centsBefore;
    rows.set(id, row);
  }
}

/** UTC; weeks start on Monday. */
export function bucketStart(atMs: number, bucket: Bucket): number {
  const date = new Date(atMs);
  const dayMs = Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate());
  switch (bucket) {
    case 'hour':
      return Math.floor(atMs / HOUR_MS) * HOUR_MS;
    case 'day':
      return dayMs;
    case 'week':
      return dayMs - ((date.getUTCDay() + 6) % 7) * 24 * HOUR_MS;
    case 'month':
      return Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), 1);
  }
}
