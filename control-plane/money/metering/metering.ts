// Segments at work: opened and closed by state moves, posted at hour ends, kept covered by a hold.
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import { accruedUcents } from '../../../shared/money.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import { wallet } from '../ledger/accounts.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { costUcents, HOUR_MS, transfersOf, usageParts } from './posting.ts';
import * as store from './store.ts';

export const TICK_MS = 30_000;
/** A rental is stopped while its hold still covers this many ticks, so the overrun stays ours and small. */
const TICKS_COVERED_MIN = 2;
/** Segments that one transaction of the tick handles. */
const TICK_PIECE = 50;

export interface NewSegment {
  /** The instance. */
  subjectId: string;
  orgId: string;
  supplierId: string;
  gpuType: string;
  gpuCount: number;
  rateUcentsPerHour: bigint;
  /** The supplier's part of the price, in basis points. */
  supplierBps: number;
  startedMs: number;
}

export interface Metering {
  /** Sets aside what the launch must be able to pay at first. @throws ServiceError `insufficient_balance` */
  holdForLaunch(tx: Tx, subjectId: string, orgId: string, rateUcentsPerHour: bigint): Promise<void>;
  /** Gives back what was set aside for a rental that does not come about. */
  releaseHold(tx: Tx, subjectId: string, orgId: string): Promise<void>;
  openSegment(tx: Tx, segment: NewSegment): Promise<void>;
  /**
   * Ends the open segment at `endedMs`, posts (or, for an end before what was posted, reverses) the difference and releases the hold.
   * Nothing happens where no segment is open. `evidence` is kept on the transfers.
   */
  closeSegment(tx: Tx, subjectId: string, endedMs: number, evidence?: string): Promise<void>;
  /** One pass over all open segments. Resolves with the rentals whose balance no longer covers the next ticks. */
  tick(signal: AbortSignal): Promise<string[]>;
}

export function openMetering(deps: {
  db: Db;
  clock: Clock;
  ids: Ids;
  ledger: Ledger;
  launchHoldMinutes: number;
}): Metering {
  const { db, clock, ids, ledger } = deps;
  const aheadMs = deps.launchHoldMinutes * 60_000;

  const post = async (tx: Tx, segment: store.Segment, toMs: number, evidence?: string): Promise<void> => {
    const fromMs = segment.posted_through_ms;
    if (toMs === fromMs) return;
    await ledger.setHold(tx, holdId(segment.subject_id), wallet(segment.org_id), 0n);
    const { availableUcents } = await ledger.balance(tx, wallet(segment.org_id));
    const transfers = transfersOf({
      segment,
      fromMs,
      toMs,
      payableUcents: availableUcents,
      ...(evidence === undefined ? {} : { evidence }),
    });
    await ledger.post(tx, `${segment.id}:${fromMs}-${toMs}`, transfers);
    for (const part of usageParts(segment, fromMs, toMs)) await store.addUsage(tx, segment, part);
    await store.setPostedThrough(tx, segment.id, toMs);
  };

  const tickOne = async (tx: Tx, segment: store.Segment, nowMs: number): Promise<boolean> => {
    const hourEndMs = Math.floor(nowMs / HOUR_MS) * HOUR_MS;
    let postedThroughMs = segment.posted_through_ms;
    if (hourEndMs > postedThroughMs) {
      await post(tx, segment, hourEndMs);
      postedThroughMs = hourEndMs;
    }
    const unposted = costUcents(segment, nowMs) - costUcents(segment, postedThroughMs);
    const rate = segment.rate_ucents_per_hour;
    const wanted = unposted + accruedUcents(rate, aheadMs);
    const covered = await ledger.coverHold(tx, holdId(segment.subject_id), wallet(segment.org_id), wanted);
    return covered >= unposted + accruedUcents(rate, TICKS_COVERED_MIN * TICK_MS);
  };

  return {
    holdForLaunch: (tx, subjectId, orgId, rateUcentsPerHour) =>
      ledger.setHold(tx, holdId(subjectId), wallet(orgId), accruedUcents(rateUcentsPerHour, aheadMs)),
    releaseHold: (tx, subjectId, orgId) => ledger.setHold(tx, holdId(subjectId), wallet(orgId), 0n),
    openSegment: (tx, segment) =>
      store.insertSegment(tx, {
        id: ids.prefixed('seg'),
        subject_id: segment.subjectId,
        org_id: segment.orgId,
        supplier_id: segment.supplierId,
        gpu_type: segment.gpuType,
        gpu_count: segment.gpuCount,
        rate_ucents_per_hour: segment.rateUcentsPerHour,
        supplier_bps: segment.supplierBps,
        started_ms: segment.startedMs,
        posted_through_ms: segment.startedMs,
        ended_ms: null,
      }),
    closeSegment: async (tx, subjectId, endedMs, evidence) => {
      const segment = await store.openSegmentOf(tx, subjectId);
      if (segment === undefined) return;
      const endMs = Math.max(endedMs, segment.started_ms);
      await post(tx, segment, endMs, evidence);
      await store.endSegment(tx, segment.id, endMs);
      await ledger.setHold(tx, holdId(subjectId), wallet(segment.org_id), 0n);
    },
    tick: async (signal) => {
      const exhausted: string[] = [];
      let afterId = '';
      while (!signal.aborted) {
        const { lastId, short } = await db.tx('metering.tick', async (tx) => {
          const nowMs = clock.now();
          const segments = await store.openSegments(tx, afterId, TICK_PIECE);
          const uncovered: string[] = [];
          for (const segment of segments) {
            if (!(await tickOne(tx, segment, nowMs))) uncovered.push(segment.subject_id);
          }
          return { lastId: segments.at(-1)?.id, short: uncovered };
        });
        exhausted.push(...short);
        if (lastId === undefined) break;
        afterId = lastId;
      }
      return exhausted;
    },
  };
}

function holdId(subjectId: string): string {
  return `rental:${subjectId}`;
}
