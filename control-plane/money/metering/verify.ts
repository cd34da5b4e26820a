// The proof that metering and ledger tell the same: per rental, what its segments cost and pay = what was posted. Usage is read from the
// segments.
import { supplierPartUcents } from '../../../shared/money.ts';
import type { Tx } from '../../base/db/db.ts';
import { totalsBySubject } from '../ledger/store.ts';
import { costUcents } from './posting.ts';
import * as store from './store.ts';

/** The kinds that posting.ts writes: charged (by the wallet or as bad debt) or earned, and taken back. */
const SIGNS: Record<'charged' | 'earned', Record<string, bigint>> = {
  charged: {
    'rental.charge': 1n,
    'rental.shortfall': 1n,
    'rental.refund_charge': -1n,
    'rental.refund_shortfall': -1n,
  },
  earned: { 'rental.supplier': 1n, 'rental.refund_supplier': -1n },
};

/** Broken invariants in words, empty when all hold. */
export async function meteringFaults(tx: Tx): Promise<string[]> {
  const metered = { charged: new Map<string, bigint>(), earned: new Map<string, bigint>() };
  const posted = { charged: new Map<string, bigint>(), earned: new Map<string, bigint>() };
  for (const segment of await store.allSegments(tx)) {
    const cost = costUcents(segment, segment.posted_through_ms);
    add(metered.charged, segment.subject_id, cost);
    add(metered.earned, segment.subject_id, supplierPartUcents(cost, segment.supplier_bps));
  }
  for (const { subject_id: subjectId, kind, total_ucents: total } of await totalsBySubject(tx, 'rental.')) {
    add(posted.charged, subjectId, (SIGNS.charged[kind] ?? 0n) * total);
    add(posted.earned, subjectId, (SIGNS.earned[kind] ?? 0n) * total);
  }
  return (['charged', 'earned'] as const).flatMap((what) =>
    [...new Set([...metered[what].keys(), ...posted[what].keys()])].flatMap((subjectId) => {
      const [due, is] = [metered[what].get(subjectId) ?? 0n, posted[what].get(subjectId) ?? 0n];
      return due === is ? [] : [`${subjectId}: ${due} should be ${what} for its segments, the ledger has ${is}`];
    }),
  );
}

function add(sums: Map<string, bigint>, subjectId: string, ucents: bigint): void {
  sums.set(subjectId, (sums.get(subjectId) ?? 0n) + ucents);
}
