// The proof that metering and ledger agree: for each rental, the cost and supplier part of its segments equal what was posted, and no moment is
// in two segments. Usage is computed from the same segments.
import { supplierPartUcents } from '../../../shared/money.ts';
import type { RoomProof } from '../ledger/charges.ts';
import { costUcents } from './posting.ts';
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
      add(metered.earned, segment.subject_id, supplierPartUcents(cost, segment.supplier_bps));
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

/** A moment in two segments would be charged twice. `segments` are in the order of their begin. */
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
