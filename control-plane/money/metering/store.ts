// The SQL of segments and usage hours.
import { z } from 'zod';
import { int, text, ucents } from '../../base/db/columns.ts';
import { type Query, type Tx, sql } from '../../base/db/db.ts';
import type { UsagePart } from './posting.ts';

const SegmentRow = z.object({
  id: text,
  subject_id: text,
  org_id: text,
  supplier_id: text,
  gpu_type: text,
  gpu_count: int,
  rate_ucents_per_hour: ucents,
  supplier_bps: int,
  started_ms: int,
  posted_through_ms: int,
  ended_ms: int.nullable(),
});
export type Segment = z.infer<typeof SegmentRow>;

const UsageHourRow = z.object({
  subject_id: text,
  gpu_type: text,
  hour_start_ms: int,
  ucents,
  gpu_ms: int,
});
export type UsageHour = z.infer<typeof UsageHourRow>;

const COLUMNS = sql`id, subject_id, org_id, supplier_id, gpu_type, gpu_count, rate_ucents_per_hour, supplier_bps, started_ms, posted_through_ms, ended_ms`;

export async function insertSegment(tx: Tx, segment: Segment): Promise<void> {
  await tx.run(
    sql`insert into meter_segments (${COLUMNS})
        values (${segment.id}, ${segment.subject_id}, ${segment.org_id}, ${segment.supplier_id}, ${segment.gpu_type}, ${segment.gpu_count},
                ${segment.rate_ucents_per_hour}, ${segment.supplier_bps}, ${segment.started_ms}, ${segment.posted_through_ms}, null)`,
  );
}

export function openSegmentOf(query: Query, subjectId: string): Promise<Segment | undefined> {
  return query.one(
    SegmentRow,
    sql`select ${COLUMNS} from meter_segments where subject_id = ${subjectId} and ended_ms is null`,
  );
}

/** Open segments after `afterId`, in id order: the tick walks through them in pieces. */
export function openSegments(query: Query, afterId: string, limit: number): Promise<Segment[]> {
  return query.all(
    SegmentRow,
    sql`select ${COLUMNS} from meter_segments where ended_ms is null and id > ${afterId} order by id limit ${limit}`,
  );
}

export function openSegmentsOfOrg(query: Query, orgId: string): Promise<Segment[]> {
  return query.all(SegmentRow, sql`select ${COLUMNS} from meter_segments where org_id = ${orgId} and ended_ms is null`);
}

export function allSegments(query: Query): Promise<Segment[]> {
  return query.all(SegmentRow, sql`select ${COLUMNS} from meter_segments order by id`);
}

export async function setPostedThrough(tx: Tx, id: string, throughMs: number): Promise<void> {
  await tx.run(sql`update meter_segments set posted_through_ms = ${throughMs} where id = ${id}`);
}

export async function endSegment(tx: Tx, id: string, endedMs: number): Promise<void> {
  await tx.run(sql`update meter_segments set ended_ms = ${endedMs} where id = ${id} and ended_ms is null`);
}

export async function addUsage(tx: Tx, segment: Segment, part: UsagePart): Promise<void> {
  await tx.run(
    sql`insert into usage_hours (segment_id, hour_start_ms, subject_id, org_id, gpu_type, ucents, gpu_ms)
        values (${segment.id}, ${part.hourStartMs}, ${segment.subject_id}, ${segment.org_id}, ${segment.gpu_type}, ${part.ucents}, ${part.gpuMs})
        on conflict (segment_id, hour_start_ms) do update
          set ucents = usage_hours.ucents + excluded.ucents, gpu_ms = usage_hours.gpu_ms + excluded.gpu_ms`,
  );
}

/** Posted hours of an organisation that start in [fromMs, beforeMs). */
export function usageHours(
  query: Query,
  orgId: string,
  window: { fromMs: number; beforeMs: number },
): Promise<UsageHour[]> {
  return query.all(
    UsageHourRow,
    sql`select subject_id, gpu_type, hour_start_ms, ucents, gpu_ms from usage_hours
        where org_id = ${orgId} and hour_start_ms >= ${window.fromMs} and hour_start_ms < ${window.beforeMs}`,
  );
}

const UsageTotalRow = z.object({ subject_id: text, ucents, gpu_ms: int });
export type UsageTotal = z.infer<typeof UsageTotalRow>;

/** What each rental had used before `beforeMs`: whole cents are differences of totals from its start. */
export function usageTotalsBefore(query: Query, orgId: string, beforeMs: number): Promise<UsageTotal[]> {
  return query.all(
    UsageTotalRow,
    sql`select subject_id, cast(sum(ucents) as bigint) as ucents, cast(sum(gpu_ms) as bigint) as gpu_ms from usage_hours
        where org_id = ${orgId} and hour_start_ms < ${beforeMs} group by subject_id`,
  );
}

const SubjectSumRow = z.object({ subject_id: text, ucents });

export function usageBySubject(query: Query): Promise<z.infer<typeof SubjectSumRow>[]> {
  return query.all(
    SubjectSumRow,
    sql`select subject_id, cast(sum(ucents) as bigint) as ucents from usage_hours group by subject_id`,
  );
}
