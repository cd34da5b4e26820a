// Credits for our own outages: customers are not charged for that time, but suppliers are paid for it.
import { accruedUcents, supplierPartUcents } from '../../../shared/money.ts';
import type { Query, Tx } from '../../base/db/db.ts';
import type { Credits } from '../credits/credits.ts';
import type { NewSegment, Segment } from './store.ts';

export interface OwnOutage {
  fromMs: number;
  untilMs: number;
  /** The evidence that is stored on the transfers. */
  evidence: string;
  /**
   * The time at which the rental ends by its runtime limit; null without a limit. The host enforces the limit without us, so the supplier
   * is paid until that time.
   */
  limitOf(query: Query, subjectId: string): Promise<number | null>;
}

/**
 * Ends the segment at the start of the outage and reverses charges after it. Pays the supplier for the outage from our revenue. Opens a new
 * segment at the end of the outage. It is safe to repeat.
 */
export async function creditSegment(
  tx: Tx,
  segment: Segment,
  outage: OwnOutage,
  deps: {
    credits: Pick<Credits, 'end' | 'payOwnOutage'>;
    openSegment(tx: Tx, segment: NewSegment): Promise<void>;
    closeForOwnOutage(subjectId: string, toMs: number): Promise<void>;
  },
): Promise<void> {
  const { untilMs, evidence } = outage;
  const fromMs = Math.max(outage.fromMs, segment.started_ms);
  const limitMs = (await outage.limitOf(tx, segment.subject_id)) ?? untilMs;
  const paidUntilMs = Math.max(fromMs, Math.min(untilMs, limitMs));
  await deps.closeForOwnOutage(segment.subject_id, fromMs);
  const lostUcents = accruedUcents(segment.rate_ucents_per_hour, paidUntilMs - fromMs);
  await deps.credits.payOwnOutage(tx, {
    id: `${segment.id}:own_outage:${fromMs}`,
    subjectId: segment.subject_id,
    orgId: segment.org_id,
    supplierId: segment.supplier_id,
    supplierBps: segment.supplier_bps,
    amountUcents: supplierPartUcents(lostUcents, segment.supplier_bps),
    fromMs,
    untilMs,
    evidence,
  });
  // The rental ends at its limit, so the time after it would not have been charged. It must not count against the bounds of credits.
  await deps.credits.end(tx, segment.subject_id, paidUntilMs);
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
