// Usage and cost of an organisation by time bucket (specification 2.8, 4.6). It is computed from the segments, so a window may begin and
// end at any millisecond, and it includes time that is not posted yet.
import { centsFloor } from '../../../shared/money.ts';
import type { Query } from '../../base/db/db.ts';
import { type Bucket, bucketEnd, bucketStart } from './buckets.ts';
import { costUcents } from './posting.ts';
import * as store from './store.ts';

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
  after: { bucketStartMs: number; key: string } | undefined;
  /** The maximum number of rows. */
  limit: number;
}

export interface UsageRow {
  bucketStartMs: number;
  /** The instance id or the GPU type. */
  key: string;
  gpuSeconds: number;
  costCents: bigint;
  /** The exact cost in microcents. */
  costUcents: bigint;
}

/** The segments of one instance, ordered by start. Each outage begins a new one. */
interface Rental {
  segments: store.Segment[];
  key: string;
}

/**
 * Rows ordered by bucket and key. All figures are differences of each rental's totals since its start, so they add up for every bucket,
 * grouping and window. Microcents add up to the charges in the ledger. Seconds and whole cents add up to the totals of each rental, rounded
 * down once.
 */
export async function usageRows(query: Query, asked: UsageQuery): Promise<UsageRow[]> {
  const { bucket, after, limit } = asked;
  const untilMs = Math.min(asked.endMs, asked.nowMs);
  const rows: UsageRow[] = [];
  // Reads slices of 1, 2, 4, ... buckets. A small page does not read the whole window, and an empty year needs few queries.
  let atMs = Math.max(asked.startMs, after?.bucketStartMs ?? asked.startMs);
  for (let buckets = 1; atMs < untilMs && rows.length < limit; buckets *= 2) {
    const slice = { fromMs: atMs, untilMs: Math.min(endOfBuckets(atMs, bucket, buckets), untilMs) };
    const rentals = await rentalsIn(query, slice, asked);
    for (const row of rowsOfSlice(rentals, slice, bucket))
      if (after === undefined || isAfter(row, after)) rows.push(row);
    atMs = slice.untilMs;
  }
  return rows.slice(0, limit);
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

async function rentalsIn(query: Query, slice: Piece, { orgId, groupBy }: UsageQuery): Promise<Rental[]> {
  const segments = await store.segmentsOfRentals(query, orgId, slice);
  return [...Map.groupBy(segments, (segment) => segment.subject_id)].flatMap(([subjectId, ofRental]) => {
    const [first] = ofRental;
    if (first === undefined) return [];
    return [{ segments: ofRental, key: groupBy === 'instance_id' ? subjectId : first.gpu_type }];
  });
}

function rowsOfSlice(rentals: readonly Rental[], slice: Piece, bucket: Bucket): UsageRow[] {
  const rows: UsageRow[] = [];
  for (let atMs = slice.fromMs; atMs < slice.untilMs;) {
    const startMs = bucketStart(atMs, bucket);
    const piece = { fromMs: atMs, untilMs: Math.min(bucketEnd(startMs, bucket), slice.untilMs) };
    for (const row of rowsOfBucket(rentals, piece, startMs)) rows.push(row);
    atMs = piece.untilMs;
  }
  return rows;
}

function rowsOfBucket(rentals: readonly Rental[], piece: Piece, bucketStartMs: number): UsageRow[] {
  const rows = new Map<string, UsageRow>();
  for (const { segments, key } of rentals) {
    if (!segments.some((segment) => isInUse(segment, piece))) continue;
    const [before, after] = [totalsAt(segments, piece.fromMs), totalsAt(segments, piece.untilMs)];
    const row = rows.get(key) ?? { bucketStartMs, key, gpuSeconds: 0, costCents: 0n, costUcents: 0n };
    row.gpuSeconds += Math.floor(after.gpuMs / 1000) - Math.floor(before.gpuMs / 1000);
    row.costCents += centsFloor(after.ucents) - centsFloor(before.ucents);
    row.costUcents += after.ucents - before.ucents;
    rows.set(key, row);
  }
  return [...rows.values()].toSorted((a, b) => (a.key < b.key ? -1 : 1));
}

/** A segment that was credited completely has no length and counts as no use. */
function isInUse(segment: store.Segment, { fromMs, untilMs }: Piece): boolean {
  return Math.max(segment.started_ms, fromMs) < Math.min(endOf(segment), untilMs);
}

/** Usage and cost of the rental from its start to `atMs`. */
function totalsAt(segments: readonly store.Segment[], atMs: number): { ucents: bigint; gpuMs: number } {
  const totals = { ucents: 0n, gpuMs: 0 };
  for (const segment of segments) {
    const untilMs = Math.min(atMs, endOf(segment));
    if (untilMs <= segment.started_ms) continue;
    totals.ucents += costUcents(segment, untilMs);
    totals.gpuMs += (untilMs - segment.started_ms) * segment.gpu_count;
  }
  return totals;
}

function endOf(segment: store.Segment): number {
  return segment.ended_ms ?? Number.POSITIVE_INFINITY;
}

function isAfter(row: UsageRow, position: { bucketStartMs: number; key: string }): boolean {
  if (row.bucketStartMs !== position.bucketStartMs) return row.bucketStartMs > position.bucketStartMs;
  return row.key > position.key;
}
