// Time in which we were away ourselves: customers are not charged for it, suppliers are paid for it all the same.
import { accruedUcents, supplierPartUcents } from '../../../shared/money.ts';
import type { Query, Tx } from '../../base/db/db.ts';
import type { Credits } from '../credits/credits.ts';
import type { NewSegment, Segment } from './store.ts';

export interface Absence {
  fromMs: number;
  untilMs: number;
  /** Kept on the transfers. */
  evidence: string;
  /** When a rental ends by its runtime limit, which its host keeps without us: it is paid until then. Null without one. */
  limitOf(query: Query, subjectId: string): Promise<number | null>;
}

/**
 * Ends the segment where the absence began (what was charged beyond that is taken back), pays the supplier for the rest from our
 * revenue, and begins a new segment where the absence ended. Repeating it is harmless.
 */
export async function excuse(
  tx: Tx,
  segment: Segment,
  absence: Absence,
  deps: {
    credits: Pick<Credits, 'payOwnOutage'>;
    openSegment(tx: Tx, segment: NewSegment): Promise<void>;
    closeForOwnOutage(subjectId: string, toMs: number): Promise<void>;
  },
): Promise<void> {
  const { untilMs, evidence } = absence;
  const fromMs = Math.max(absence.fromMs, segment.started_ms);
  const limitMs = (await absence.limitOf(tx, segment.subject_id)) ?? untilMs;
  const paidUntilMs = Math.max(fromMs, Math.min(untilMs, limitMs));
  await deps.closeForOwnOutage(segment.subject_id, fromMs);
  const lostUcents = accruedUcents(segment.rate_ucents_per_hour, paidUntilMs - fromMs);
  await deps.credits.payOwnOutage(tx, {
    id: `${segment.id}:absence:${fromMs}`,
    subjectId: segment.subject_id,
    orgId: segment.org_id,
    supplierId: segment.supplier_id,
    supplierBps: segment.supplier_bps,
    amountUcents: supplierPartUcents(lostUcents, segment.supplier_bps),
    fromMs,
    untilMs,
    evidence,
  });
  await deps.openSegment(tx, {
    subjectId: segment.subject_id,
    orgId: segment.org_id,
    supplierId: segment.supplier_id,
    machineId: segment.machine_id,
    gpuType: segment.gpu_type,
    gpuCount: segment.gpu_count,
    rateUcentsPerHour: segment.rate_ucents_per_hour,
    supplierBps: segment.supplier_bps,
    startedMs: untilMs,
  });
}
