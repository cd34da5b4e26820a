// The proof that metering and ledger tell the same: per rental, cost of its segments = what was posted. Usage is read from the segments.
import type { Tx } from '../../base/db/db.ts';
import { totalsBySubject } from '../ledger/store.ts';
import { costUcents } from './posting.ts';
import * as store from './store.ts';

/** Charged (by the wallet or as bad debt) and taken back: the kinds that posting.ts writes. */
const CHARGES = new Set(['rental.charge', 'rental.shortfall']);
const REFUNDS = new Set(['rental.refund_charge', 'rental.refund_shortfall']);

/** Broken invariants in words, empty when all hold. */
export async function meteringFaults(tx: Tx): Promise<string[]> {
  const costs = new Map<string, bigint>();
  for (const segment of await store.allSegments(tx)) {
    const cost = costUcents(segment, segment.posted_through_ms);
    costs.set(segment.subject_id, (costs.get(segment.subject_id) ?? 0n) + cost);
  }
  const posted = new Map<string, bigint>();
  for (const { subject_id: subjectId, kind, total_ucents: total } of await totalsBySubject(tx, 'rental.')) {
    const sign = CHARGES.has(kind) ? 1n : REFUNDS.has(kind) ? -1n : 0n;
    posted.set(subjectId, (posted.get(subjectId) ?? 0n) + sign * total);
  }
  const faults: string[] = [];
  for (const subjectId of new Set([...costs.keys(), ...posted.keys()])) {
    const cost = costs.get(subjectId) ?? 0n;
    const charged = posted.get(subjectId) ?? 0n;
    if (cost !== charged) faults.push(`${subjectId}: segments cost ${cost}, the ledger has ${charged}`);
  }
  return faults;
}
