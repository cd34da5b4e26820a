// Usage and cost of an organisation by time bucket (specification 2.8, 4.6). It is computed from the segments, so a window may begin and
// end at any millisecond, and it includes time that is not posted yet.
//
// Segments are read in pages, and each adds only to the buckets that it touches. A rental's totals stand still between two of its segments, so
// the difference of the totals over a bucket is the sum of the differences over the parts of its segments:
//
//   bucket           |-------------------------------------|
//   segments   ==========            ===========       ===========
//   parts            |--|            |---------|       |---|         each: the totals at its end minus the totals at its start
import type { Clock } from '../../../shared/clock.ts';
import { centsFloor } from '../../../shared/money.ts';
import type { Db, Query } from '../../base/db/db.ts';
import { type Bucket, bucketEnd, bucketStart } from './buckets.ts';
import { costUcents } from './posting.ts';
import * as store from './store.ts';
import { openSums, type Position, type UsageRow } from './usage-sums.ts';

export type GroupBy = 'instance_id' | 'gpu_type';

export interface UsageQuery {
  orgId: string;
  bucket: Bucket;
  groupBy: GroupBy;
  /** Inclusive. */
  startMs: number;
  /** Exclusive. Running rentals count up to `nowMs` at most. */
  endMs: number;
  nowMs: number;
  /** Only rows after this one are returned. */
  after: Position | undefined;
  /** The maximum number of rows. */
  limit: number;
}

interface UsageDeps {
  db: Pick<Db, 'read'>;
  clock: Pick<Clock, 'nextTurn'>;
}

/** Segments that are read in one turn of the event loop, and parts that are added up in one: a few milliseconds each. */
const SEGMENTS_PER_PAGE = 500;
const PARTS_PER_TURN = 2_000;

/**
 * Rows ordered by bucket and key. All figures are differences of each rental's totals since its start, so they add up for every bucket,
 * grouping and window. Microcents add up to the charges in the ledger. Seconds and whole cents add up to the totals of each rental, rounded
 * down once. Other work of the process goes on in between.
 */
export async function usageRows({ db, clock }: UsageDeps, asked: UsageQuery): Promise<UsageRow[]> {
  const { orgId, bucket, groupBy, after, limit } = asked;
  const untilMs = Math.min(asked.endMs, asked.nowMs);
  const rows: UsageRow[] = [];
  let parts = 0;
  // Reads slices of 1, 2, 4, ... buckets. A small page does not read the whole window, and an empty year needs few queries.
  let atMs = Math.max(asked.startMs, after?.bucketStartMs ?? asked.startMs);
  for (let buckets = 1; atMs < untilMs && rows.length < limit; buckets *= 2) {
    const slice = { fromMs: atMs, untilMs: Math.min(endOfBuckets(atMs, bucket, buckets), untilMs) };
    const sums = openSums({ after, limit: limit - rows.length });
    for await (const page of segmentsIn(db.read, orgId, slice)) {
      const before = await totalsBefore(db.read, page);
      for (const segment of page) {
        const key = groupBy === 'instance_id' ? segment.subject_id : segment.gpu_type;
        for (const part of partsOf(segment, before(segment), slice, bucket)) {
          sums.add({ ...part, key });
          parts += 1;
          if (parts % PARTS_PER_TURN === 0) await clock.nextTurn();
        }
      }
      await clock.nextTurn();
    }
    for (const row of sums.first()) rows.push(row);
    atMs = slice.untilMs;
  }
  return rows;
}

interface Piece {
  fromMs: number;
  untilMs: number;
}

function endOfBuckets(atMs: number, bucket: Bucket, count: number): number {
  let endMs = bucketStart(atMs, bucket);
  for (let i = 0; i < count; i += 1) endMs = bucketEnd(endMs, bucket);
  return endMs;
}

/** The segments that were in use within the slice, in pages. */
async function* segmentsIn(query: Query, orgId: string, slice: Piece): AsyncGenerator<store.Segment[]> {
  // Open segments come first. One that is closed meanwhile is found among the ended ones again, and was counted already.
  const open = new Set<string>();
  for (let after: store.Segment | undefined; ;) {
    const page = await store.openWithin(query, orgId, { ...slice, after, limit: SEGMENTS_PER_PAGE });
    for (const { id } of page) open.add(id);
    yield page;
    if (page.length < SEGMENTS_PER_PAGE) break;
    after = page.at(-1);
  }
  for (let after: store.Segment | undefined; ;) {
    const page = await store.endedWithin(query, orgId, { ...slice, after, limit: SEGMENTS_PER_PAGE });
    yield page.filter(({ id }) => !open.has(id));
    if (page.length < SEGMENTS_PER_PAGE) return;
    after = page.at(-1);
  }
}

/** Usage and cost of a rental since its start. */
interface Totals {
  ucents: bigint;
  gpuMs: number;
}

/** The totals of the rental of each of these segments at its start. */
async function totalsBefore(
  query: Query,
  segments: readonly store.Segment[],
): Promise<(segment: store.Segment) => Totals> {
  const all = await store.segmentsOf(query, [...new Set(segments.map(({ subject_id: id }) => id))]);
  const before = new Map<string, Totals>();
  const totals = new Map<string, Totals>();
  for (const segment of all) {
    const sum = totals.get(segment.subject_id) ?? { ucents: 0n, gpuMs: 0 };
    before.set(segment.id, sum);
    totals.set(segment.subject_id, totalsAt(segment, sum, segment.ended_ms ?? segment.started_ms));
  }
  return ({ id }) => before.get(id) ?? { ucents: 0n, gpuMs: 0 };
}

function totalsAt(segment: store.Segment, { ucents, gpuMs }: Totals, atMs: number): Totals {
  return {
    ucents: ucents + costUcents(segment, atMs),
    gpuMs: gpuMs + (atMs - segment.started_ms) * segment.gpu_count,
  };
}

/** What a segment adds to each bucket of the slice that it touches. One that was credited completely has no length and no parts. */
function* partsOf(
  segment: store.Segment,
  before: Totals,
  slice: Piece,
  bucket: Bucket,
): Generator<Omit<UsageRow, 'key'>> {
  const untilMs = Math.min(segment.ended_ms ?? slice.untilMs, slice.untilMs);
  let atMs = Math.max(segment.started_ms, slice.fromMs);
  let start = totalsAt(segment, before, atMs);
  while (atMs < untilMs) {
    const bucketStartMs = bucketStart(atMs, bucket);
    atMs = Math.min(bucketEnd(bucketStartMs, bucket), untilMs);
    const end = totalsAt(segment, before, atMs);
    yield {
      bucketStartMs,
      gpuSeconds: Math.floor(end.gpuMs / 1000) - Math.floor(start.gpuMs / 1000),
      costCents: centsFloor(end.ucents) - centsFloor(start.ucents),
      costUcents: end.ucents - start.ucents,
    };
    start = end;
  }
}
