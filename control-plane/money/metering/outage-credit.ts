// Credits for our own outages: customers are not charged for that time, but suppliers are paid for it.
//
// A rental that cannot be credited keeps no other one from its credit. Its outage is stored, and each tick tries it again, also after a restart. Each
// attempt is logged. A credit ends the segment, so later outages of the rental wait until the first one is credited, and go to the segment after it.
// If the rental ends or is paused before an attempt succeeds, the operator gives the time back by hand.
import { isoTime } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import { accruedUcents, supplierPartUcents } from '../../../shared/money.ts';
import { type Db, DbError, type Query, type Tx } from '../../base/db/db.ts';
import type { Credits } from '../credits/credits.ts';
import {
  failedCredits,
  forgetFailedCredit,
  handOnFailedCredits,
  insertFailedCredit,
  type OwnOutage,
} from './failed-credits.ts';
import type { NewSegment, Segment } from './store.ts';

/**
 * The time at which a rental ends by its runtime limit; null without a limit. The host enforces the limit without us, so the supplier is paid
 * until that time.
 */
export type LimitOf = (query: Query, subjectId: string) => Promise<number | null>;

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
  db: Db;
  log: Log;
  credits: Pick<Credits, 'end' | 'payOwnOutage'>;
  limitOf: LimitOf;
  /** Locks the rental of a segment and what its credits count against, and reads the segment again. Must begin the transaction. */
  lockSegment(tx: Tx, seen: Segment): Promise<Segment | undefined>;
  openSegment(tx: Tx, segment: NewSegment): Promise<void>;
  /** Charges nothing after `toMs`, because the control plane was away. */
  close(tx: Tx, subjectId: string, until: { toMs: number; evidence: string }): Promise<void>;
}

export function openOutageCredits(deps: OutageCreditsDeps): OutageCredits {
  const { db, log } = deps;
  const tryAgain = async (): Promise<void> => {
    for (const { segment, outage } of await failedCredits(db.read))
      if ((await attempt(segment, outage, deps)) === 'ended')
        log.error(
          fieldsOf(segment, outage),
          'a rental was paused or has ended before an outage of ours was credited: give that time back (admin refund, admin credit grant)',
        );
  };
  return {
    credit: async (outage, forEach) => {
      await tryAgain();
      const waiting = new Set((await failedCredits(db.read)).map(({ segment }) => segment.id));
      let credited = 0;
      await forEach(async (segment) => {
        // A credit opens a new segment with a higher id, which begins at the end of the outage.
        if (segment.started_ms >= outage.untilMs) return;
        if (waiting.has(segment.id)) await noteFailed(segment, outage, deps);
        else if ((await attempt(segment, outage, deps)) === 'credited') credited += 1;
      });
      return credited;
    },
    tryAgain,
  };
}

async function attempt(
  seen: Segment,
  outage: OwnOutage,
  deps: OutageCreditsDeps,
): Promise<'credited' | 'ended' | 'failed'> {
  const { db, log, lockSegment } = deps;
  try {
    return await db.tx('metering.own_outage', async (tx) => {
      const segment = await lockSegment(tx, seen);
      await forgetFailedCredit(tx, seen.id, outage.fromMs);
      if (segment === undefined || segment.ended_ms !== null) return 'ended';
      await creditSegment(tx, segment, outage, deps);
      await handOnFailedCredits(tx, segment);
      return 'credited';
    });
  } catch (error) {
    if (error instanceof DbError) throw error;
    log.error(
      { ...fieldsOf(seen, outage), err: error },
      'an outage of ours could not be credited to a rental; the next tick tries again',
    );
    await noteFailed(seen, outage, deps);
    return 'failed';
  }
}

function noteFailed({ id }: Segment, outage: OwnOutage, { db }: OutageCreditsDeps): Promise<void> {
  return db.tx('metering.own_outage_failed', (tx) => insertFailedCredit(tx, id, outage));
}

function fieldsOf({ id, subject_id: instanceId }: Segment, { fromMs, untilMs }: OwnOutage): Record<string, string> {
  return { segment_id: id, instance_id: instanceId, from: isoTime(fromMs), until: isoTime(untilMs) };
}

/**
 * Ends the segment at the start of the outage and reverses charges after it. Pays the supplier for the outage from our revenue. Opens a new
 * segment at the end of the outage. It is safe to repeat.
 */
async function creditSegment(
  tx: Tx,
  segment: Segment,
  outage: OwnOutage,
  { credits, limitOf, openSegment, close }: OutageCreditsDeps,
): Promise<void> {
  const { untilMs, evidence } = outage;
  const fromMs = Math.max(outage.fromMs, segment.started_ms);
  const limitMs = (await limitOf(tx, segment.subject_id)) ?? untilMs;
  const paidUntilMs = Math.max(fromMs, Math.min(untilMs, limitMs));
  await close(tx, segment.subject_id, { toMs: fromMs, evidence });
  const lostUcents = accruedUcents(segment.rate_ucents_per_hour, paidUntilMs - fromMs);
  await credits.payOwnOutage(tx, {
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
  await credits.end(tx, segment.subject_id, paidUntilMs);
  await openSegment(tx, {
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
