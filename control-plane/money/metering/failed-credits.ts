// The SQL of credits for our own outages that failed and are tried again.
import { int, text } from '../../base/db/columns.ts';
import { type Query, type Tx, sql } from '../../base/db/db.ts';
import { COLUMNS, type Segment, SegmentRow } from './store.ts';

export interface OwnOutage {
  fromMs: number;
  untilMs: number;
  /** The evidence that is stored on the transfers. */
  evidence: string;
}

const FailedRow = SegmentRow.extend({ from_ms: int, until_ms: int, evidence: text });

/** The earliest failed credit of each segment. The later ones of a segment wait for it. */
export async function failedCredits(query: Query): Promise<{ segment: Segment; outage: OwnOutage }[]> {
  const rows = await query.all(
    FailedRow,
    sql`select ${COLUMNS}, from_ms, until_ms, evidence from failed_outage_credits join meter_segments on id = segment_id
        where from_ms = (select min(earlier.from_ms) from failed_outage_credits earlier where earlier.segment_id = id)
        order by from_ms, segment_id`,
  );
  return rows.map(({ from_ms: fromMs, until_ms: untilMs, evidence, ...segment }) => ({
    segment,
    outage: { fromMs, untilMs, evidence },
  }));
}

/** An outage that is credited again has the same start and a later end. */
export async function insertFailedCredit(tx: Tx, segmentId: string, outage: OwnOutage): Promise<void> {
  await tx.run(
    sql`insert into failed_outage_credits (segment_id, from_ms, until_ms, evidence)
        values (${segmentId}, ${outage.fromMs}, ${outage.untilMs}, ${outage.evidence})
        on conflict (segment_id, from_ms) do update set until_ms = excluded.until_ms, evidence = excluded.evidence`,
  );
}

export async function forgetFailedCredit(tx: Tx, segmentId: string, fromMs: number): Promise<void> {
  await tx.run(sql`delete from failed_outage_credits where segment_id = ${segmentId} and from_ms = ${fromMs}`);
}

/** A credit has ended the segment, and its rental has another open one: what is still to be credited is credited to that. */
export async function handOnFailedCredits(tx: Tx, { id, subject_id: subjectId }: Segment): Promise<void> {
  const open = sql`(select id from meter_segments where subject_id = ${subjectId} and ended_ms is null)`;
  await tx.run(sql`update failed_outage_credits set segment_id = ${open} where segment_id = ${id}`);
}
