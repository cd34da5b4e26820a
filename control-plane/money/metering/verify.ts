// The proof that metering and ledger agree: for each rental, the cost and supplier part of its segments equal what was posted, no moment is
// in two segments, and each day's earnings are the transfers of that day. Usage is computed from the same segments.
import { isoTime } from '../../../shared/clock.ts';
import type { RoomProof, SubjectProof } from '../ledger/charges.ts';
import { amountsOfSubject } from '../ledger/store.ts';
import { bucketEnd, bucketStart } from './buckets.ts';
import { costUcents, stretchOf, supplierUcents } from './posting.ts';
import * as store from './store.ts';

/** The transfer kinds of posting.ts and their signs: charged (from the wallet or as bad debt) or earned, and taken back. */
const SIGNS: Record<'charged' | 'earned', Record<string, bigint>> = {
  charged: {
    'rental.charge': 1n,
    'rental.shortfall': 1n,
    'rental.refund_charge': -1n,
    'rental.refund_shortfall': -1n,
  },
  earned: { 'rental.supplier': 1n, 'rental.refund_supplier': -1n },
};

export const meteringProof: RoomProof = {
  subjectsAfter: store.subjectsAfter,
  prove: async (query, posted) => {
    const metered = { charged: new Map<string, bigint>(), earned: new Map<string, bigint>() };
    const segments = await store.segmentsOf(query, [...posted.keys()]);
    for (const segment of segments) {
      const cost = costUcents(segment, segment.posted_through_ms);
      add(metered.charged, segment.subject_id, cost);
      add(metered.earned, segment.subject_id, supplierUcents(segment, segment.posted_through_ms));
    }
    const faults = (['charged', 'earned'] as const).flatMap((what) =>
      [...posted].flatMap(([subjectId, kinds]) => {
        const due = metered[what].get(subjectId) ?? 0n;
        const is = [...kinds].reduce((sum, [kind, total]) => sum + (SIGNS[what][kind] ?? 0n) * total, 0n);
        return due === is ? [] : [`${subjectId}: ${due} should be ${what} for its segments, the ledger has ${is}`];
      }),
    );
    return { faults: [...faults, ...overlaps(segments)], rowless: { ucents: 0n, ids: [] } };
  },
};

/** Finds moments that are in two segments, which would be charged twice. `segments` are in the order of their start. */
function overlaps(segments: readonly store.Segment[]): string[] {
  const before = new Map<string, store.Segment>();
  return segments.flatMap((segment) => {
    const { subject_id: id, started_ms: startedMs } = segment;
    const last = before.get(id);
    before.set(id, segment);
    if (last === undefined || (last.ended_ms !== null && last.ended_ms <= startedMs)) return [];
    return [`${id}: its segment ${segment.id} begins before ${last.id} has ended`];
  });
}

function add(sums: Map<string, bigint>, subjectId: string, ucents: bigint): void {
  sums.set(subjectId, (sums.get(subjectId) ?? 0n) + ucents);
}

/**
 * The earnings of a rental by UTC day: its segments on one side, the transfers of the ledger on the other. The id of a transfer names its
 * stretch, so a posting that covers midnight is divided as its segment is.
 */
export const earningsByDay: SubjectProof = {
  subjectsAfter: store.subjectsAfter,
  prove: async (query, subjectId) => {
    const segments = new Map((await store.segmentsOf(query, [subjectId])).map((segment) => [segment.id, segment]));
    const due = new Map<number, bigint>();
    for (const segment of segments.values()) addDays(due, segment, segment.started_ms, segment.posted_through_ms);
    const faults: string[] = [];
    const posted = new Map<number, bigint>();
    for (const { id, amount_ucents: amount } of await amountsOfSubject(query, subjectId, Object.keys(SIGNS.earned))) {
      const stretch = stretchOf(id);
      const segment = segments.get(stretch?.segmentId ?? '');
      const part = segment && stretch && addDays(posted, segment, stretch.fromMs, stretch.toMs);
      if (part !== amount && part !== -amount)
        faults.push(`${subjectId}: ${id} is ${amount}, which its segment does not explain`);
    }
    const days = [...new Set([...due.keys(), ...posted.keys()])].toSorted((a, b) => a - b);
    for (const day of days) {
      const earned = due.get(day) ?? 0n;
      const inLedger = posted.get(day) ?? 0n;
      const name = isoTime(day).slice(0, 10);
      if (earned !== inLedger)
        faults.push(`${subjectId}: its segments earned ${earned} on ${name}, the ledger has ${inLedger}`);
    }
    return faults;
  },
};

/** Adds the earnings of the stretch to their days, and returns their sum. All are negative for time that is taken back. */
function addDays(days: Map<number, bigint>, segment: store.Segment, fromMs: number, toMs: number): bigint {
  const sign = toMs < fromMs ? -1n : 1n;
  const endMs = Math.max(fromMs, toMs);
  let sum = 0n;
  for (let atMs = Math.min(fromMs, toMs); atMs < endMs;) {
    const day = bucketStart(atMs, 'day');
    const untilMs = Math.min(bucketEnd(day, 'day'), endMs);
    const earned = sign * (supplierUcents(segment, untilMs) - supplierUcents(segment, atMs));
    days.set(day, (days.get(day) ?? 0n) + earned);
    sum += earned;
    atMs = untilMs;
  }
  return sum;
}
