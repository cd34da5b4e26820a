// The SQL of metered segments.
import { z } from 'zod';
import { idRow, int, text, ucents } from '../../base/db/columns.ts';
import { join, type Query, type Sql, type Tx, sql } from '../../base/db/db.ts';

export interface NewSegment {
  /** The instance. */
  subjectId: string;
  orgId: string;
  supplierId: string;
  machineId: string;
  gpuType: string;
  gpuCount: number;
  rateUcentsPerHour: bigint;
  /** The supplier's part of the price, in basis points. */
  supplierBps: number;
  startedMs: number;
}

export const SegmentRow = z.object({
  id: text,
  subject_id: text,
  org_id: text,
  supplier_id: text,
  machine_id: text,
  gpu_type: text,
  gpu_count: int,
  rate_ucents_per_hour: ucents,
  supplier_bps: int,
  started_ms: int,
  posted_through_ms: int,
  ended_ms: int.nullable(),
});
export type Segment = z.infer<typeof SegmentRow>;

export const COLUMNS = sql`id, subject_id, org_id, supplier_id, machine_id, gpu_type, gpu_count,
  rate_ucents_per_hour, supplier_bps, started_ms, posted_through_ms, ended_ms`;

/**
 * Inserts an open segment. If the clock was set back, it begins at the end of the segments before it. So no moment of the clock is charged
 * twice, and nothing is charged until the clock has caught up.
 */
export async function insertSegment(tx: Tx, segment: Segment): Promise<void> {
  const { started_ms: startedMs } = segment;
  const lastEnd = sql`(select max(ended_ms) from meter_segments where subject_id = ${segment.subject_id} and ended_ms > ${startedMs})`;
  await tx.run(
    sql`insert into meter_segments (${COLUMNS})
        values (${segment.id}, ${segment.subject_id}, ${segment.org_id}, ${segment.supplier_id}, ${segment.machine_id}, ${segment.gpu_type}, ${segment.gpu_count},
                ${segment.rate_ucents_per_hour}, ${segment.supplier_bps}, coalesce(${lastEnd}, ${startedMs}), coalesce(${lastEnd}, ${segment.posted_through_ms}), null)`,
  );
}

/** A condition: the rental with this id ran on a machine of the supplier. */
export function isRentedFrom(supplierId: string, subjectId: Sql): Sql {
  return sql`exists (select 1 from meter_segments where subject_id = ${subjectId} and supplier_id = ${supplierId})`;
}

/** Segments of these rentals that are open or end after `ms`, ordered by start. */
export function segmentsPast(query: Query, subjectIds: readonly string[], ms: number): Promise<Segment[]> {
  if (subjectIds.length === 0) return Promise.resolve([]);
  return query.all(
    SegmentRow,
    sql`select ${COLUMNS} from meter_segments
        where subject_id in (${join([...subjectIds])}) and (ended_ms is null or ended_ms > ${ms}) order by started_ms, id`,
  );
}

/** Open segments after `afterId`, in id order. The tick walks through them in pieces. */
export function openSegments(query: Query, afterId: string, limit: number): Promise<Segment[]> {
  return query.all(
    SegmentRow,
    sql`select ${COLUMNS} from meter_segments where ended_ms is null and id > ${afterId} order by id limit ${limit}`,
  );
}

export function openSegmentsOf(query: Query, orgId: string): Promise<Segment[]> {
  return query.all(
    SegmentRow,
    sql`select ${COLUMNS} from meter_segments where org_id = ${orgId} and ended_ms is null order by id`,
  );
}

const RateRow = z.object({ rate: ucents });

/** The price of all open segments of an organisation for an hour. */
export async function openRateOf(query: Query, orgId: string): Promise<bigint> {
  const row = await query.one(
    RateRow,
    sql`select cast(coalesce(sum(rate_ucents_per_hour), 0) as bigint) as rate from meter_segments
        where org_id = ${orgId} and ended_ms is null`,
  );
  return row?.rate ?? 0n;
}

/** Segments that contain the time `ms` or are open and began before it, in id order. */
export function segmentsAcross(query: Query, ms: number, page: { afterId: string; limit: number }): Promise<Segment[]> {
  return query.all(
    SegmentRow,
    sql`select ${COLUMNS} from meter_segments
        where started_ms <= ${ms} and (ended_ms is null or ended_ms > ${ms}) and id > ${page.afterId} order by id limit ${page.limit}`,
  );
}

/** A page of segments that were in use within a window; `after` is the last one of the page before. */
interface WindowPage {
  fromMs: number;
  untilMs: number;
  after: Segment | undefined;
  limit: number;
}

/**
 * The open segments of the organisation that began before the end of the window, ordered by start and rental. The order names `ended_ms`, which
 * none of them has, because PostgreSQL follows an index only in all of its columns.
 */
export function openWithin(query: Query, orgId: string, { untilMs, after, limit }: WindowPage): Promise<Segment[]> {
  return query.all(
    SegmentRow,
    sql`select ${COLUMNS} from meter_segments
        where org_id = ${orgId} and ended_ms is null and started_ms < ${untilMs}
          and (started_ms, subject_id) > (${after?.started_ms ?? 0}, ${after?.subject_id ?? ''})
        order by ended_ms, started_ms, subject_id limit ${limit}`,
  );
}

/**
 * The segments of the organisation that were in use within the window and have ended, ordered by end, start and rental. Of several segments of a
 * rental with the same start and end, which have no length, one may be left out.
 */
export function endedWithin(query: Query, orgId: string, page: WindowPage): Promise<Segment[]> {
  const { fromMs, untilMs, after, limit } = page;
  const last = after ?? { ended_ms: fromMs, started_ms: untilMs, subject_id: '' };
  // The first condition follows from the second one. With it, SQLite walks through the index three times as fast.
  return query.all(
    SegmentRow,
    sql`select ${COLUMNS} from meter_segments
        where org_id = ${orgId} and ended_ms >= ${last.ended_ms}
          and (ended_ms, started_ms, subject_id) > (${last.ended_ms}, ${last.started_ms}, ${last.subject_id})
          and started_ms < ${untilMs}
        order by ended_ms, started_ms, subject_id limit ${limit}`,
  );
}

const GpuMsRow = z.object({ gpu_ms: int });

/** Charged time between `sinceMs` and `nowMs` in milliseconds, multiplied by the number of GPUs. */
export async function chargedGpuMs(
  query: Query,
  orgId: string,
  { sinceMs, nowMs }: { sinceMs: number; nowMs: number },
): Promise<number> {
  const fromMs = sql`case when started_ms < ${sinceMs} then ${sinceMs} else started_ms end`;
  const part = (untilMs: Sql, which: Sql): Sql =>
    sql`select gpu_count * (${untilMs} - (${fromMs})) as gpu_ms from meter_segments
        where org_id = ${orgId} and ${which} and rate_ucents_per_hour > 0`;
  // Two queries, so that each uses its index: an organisation may have had rentals for years.
  const row = await query.one(
    GpuMsRow,
    sql`select cast(coalesce(sum(gpu_ms), 0) as bigint) as gpu_ms from (
          ${part(sql`ended_ms`, sql`ended_ms > ${sinceMs}`)} union all ${part(sql`${nowMs}`, sql`ended_ms is null`)}) as parts`,
  );
  return row?.gpu_ms ?? 0;
}

/** The time that a rental was charged for until its last segment ended, in milliseconds, as an expression of a statement about rentals. */
export function chargedMs(subjectId: Sql): Sql {
  return sql`(select coalesce(sum(s.ended_ms - s.started_ms), 0) from meter_segments s where s.subject_id = ${subjectId})`;
}

const MachineRow = z.object({ machine_id: text });

/**
 * Machines on which organisations other than this one were charged for at least `forMs` between `sinceMs` and `nowMs`, among those on which this one
 * had a rental in that time.
 */
export async function machinesThatServed(
  query: Query,
  exceptOrgId: string,
  { sinceMs, nowMs, forMs }: { sinceMs: number; nowMs: number; forMs: number },
): Promise<Set<string>> {
  const from = sql`case when started_ms < ${sinceMs} then ${sinceMs} else started_ms end`;
  const isMine = sql`org_id = ${exceptOrgId} and machine_id <> ''`;
  // Queries for what has ended and for what is open, so that each uses its index: an organisation and a machine may have had rentals for years.
  const mine = sql`select machine_id from meter_segments where ${isMine} and ended_ms > ${sinceMs}
    union select machine_id from meter_segments where ${isMine} and ended_ms is null`;
  const others = sql`from meter_segments where machine_id in (select machine_id from mine) and org_id <> ${exceptOrgId}`;
  const rows = await query.all(
    MachineRow,
    sql`with mine as materialized (${mine})
        select machine_id from (
          select machine_id, ended_ms - (${from}) as ms ${others} and ended_ms > ${sinceMs}
          union all
          select machine_id, ${nowMs} - (${from}) as ms ${others} and ended_ms is null) as parts
        group by machine_id having sum(ms) >= ${forMs} order by machine_id`,
  );
  return new Set(rows.map((row) => row.machine_id));
}

const ChargedRow = z.object({ machine_id: text, gpu_ms: int });

/** Time between `sinceMs` and `nowMs` that was charged on each of these machines, in milliseconds, multiplied by the number of GPUs. */
export async function chargedOnMachines(
  query: Query,
  machineIds: readonly string[],
  { sinceMs, nowMs }: { sinceMs: number; nowMs: number },
): Promise<Map<string, number>> {
  const ids = join([...machineIds]);
  const from = sql`case when started_ms < ${sinceMs} then ${sinceMs} else started_ms end`;
  // Two queries, so that each uses its index: a machine may have served for years.
  const rows = await query.all(
    ChargedRow,
    sql`select machine_id, cast(sum(gpu_ms) as bigint) as gpu_ms from (
          select machine_id, gpu_count * (ended_ms - (${from})) as gpu_ms from meter_segments
          where machine_id in (${ids}) and ended_ms > ${sinceMs}
          union all
          select machine_id, gpu_count * (${nowMs} - (${from})) as gpu_ms from meter_segments
          where machine_id in (${ids}) and ended_ms is null) as parts
        group by machine_id order by machine_id`,
  );
  return new Map(rows.map((row) => [row.machine_id, row.gpu_ms]));
}

/** All segments of these rentals, ordered by start. */
export function segmentsOf(query: Query, subjectIds: readonly string[]): Promise<Segment[]> {
  if (subjectIds.length === 0) return Promise.resolve([]);
  return query.all(
    SegmentRow,
    sql`select ${COLUMNS} from meter_segments where subject_id in (${join([...subjectIds])}) order by started_ms, id`,
  );
}

/** Rentals after `afterId` that have segments, in id order. */
export async function subjectsAfter(query: Query, afterId: string, limit: number): Promise<string[]> {
  const rows = await query.all(
    idRow,
    sql`select distinct subject_id as id from meter_segments where subject_id > ${afterId} order by subject_id limit ${limit}`,
  );
  return rows.map((row) => row.id);
}

export async function setPostedThrough(tx: Tx, id: string, throughMs: number): Promise<void> {
  await tx.run(sql`update meter_segments set posted_through_ms = ${throughMs} where id = ${id}`);
}

/** Notes that a step of the wall clock, which began at `stepMs`, is cut out of the segment. False if it was cut out before. */
export async function noteSkipped(tx: Tx, id: string, stepMs: number): Promise<boolean> {
  const noted = await tx.run(
    sql`update meter_segments set skipped_step_ms = ${stepMs}
        where id = ${id} and (skipped_step_ms is null or skipped_step_ms <> ${stepMs})`,
  );
  return noted === 1;
}

export async function endSegment(tx: Tx, id: string, endedMs: number): Promise<void> {
  await tx.run(sql`update meter_segments set ended_ms = ${endedMs} where id = ${id}`);
}
