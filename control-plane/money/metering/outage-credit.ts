// Credits for our own outages: customers are not charged for that time, but suppliers are paid for it.
//
// A rental that cannot be credited keeps no other one from its credit. It is tried again with each tick for as long as this process lives, and each
// attempt is logged. After that, the operator refunds it by hand.
import { isoTime } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import { accruedUcents, supplierPartUcents } from '../../../shared/money.ts';
import { DbError, type Query, type Tx } from '../../base/db/db.ts';
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

export interface OutageCredits {
  /**
   * Credits the outage in all open segments, which `forEach` finds, and returns in how many.
   * @throws DbError if the database fails: the whole outage is to be credited again, which is safe
   */
  credit(outage: OwnOutage, forEach: (each: (segment: Segment) => Promise<void>) => Promise<void>): Promise<number>;
  /** Tries those again that have failed. @throws DbError */
  tryAgain(): Promise<void>;
}

interface OutageCreditsDeps {
  log: Log;
  /** Credits one outage in one segment; false if the segment has ended. */
  creditOne(segment: Segment, outage: OwnOutage): Promise<boolean>;
}

export function openOutageCredits({ log, creditOne }: OutageCreditsDeps): OutageCredits {
  /** The key is the segment and the start of the outage: an outage that is credited again has a later end. */
  const failed = new Map<string, { segment: Segment; outage: OwnOutage }>();

  const attempt = async (segment: Segment, outage: OwnOutage): Promise<'credited' | 'ended' | 'failed'> => {
    try {
      return (await creditOne(segment, outage)) ? 'credited' : 'ended';
    } catch (error) {
      if (error instanceof DbError) throw error;
      log.error(
        { ...fieldsOf(segment, outage), err: error },
        'an outage of ours could not be credited to a rental; the next tick tries again',
      );
      return 'failed';
    }
  };
  return {
    credit: async (outage, forEach) => {
      let credited = 0;
      const failedNow: Segment[] = [];
      await forEach(async (segment) => {
        // A credit opens a new segment with a higher id, which begins at the end of the outage.
        if (segment.started_ms >= outage.untilMs) return;
        const outcome = await attempt(segment, outage);
        if (outcome === 'credited') credited += 1;
        if (outcome === 'failed') failedNow.push(segment);
      });
      for (const segment of failedNow) failed.set(`${segment.id} ${outage.fromMs}`, { segment, outage });
      return credited;
    },
    tryAgain: async () => {
      for (const [key, { segment, outage }] of failed) {
        const outcome = await attempt(segment, outage);
        if (outcome === 'failed') continue;
        failed.delete(key);
        if (outcome === 'ended')
          log.error(
            fieldsOf(segment, outage),
            'a rental has ended before an outage of ours was credited to it: refund that time by hand',
          );
      }
    },
  };
}

function fieldsOf({ id, subject_id: instanceId }: Segment, { fromMs, untilMs }: OwnOutage): Record<string, string> {
  return { segment_id: id, instance_id: instanceId, from: isoTime(fromMs), until: isoTime(untilMs) };
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
