// Segments over their life: state moves open and close them, hour ends post them, and a hold covers their next minutes.
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import { accruedUcents } from '../../../shared/money.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import { wallet } from '../ledger/accounts.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { Credits } from '../credits/credits.ts';
import type { FreeTime } from '../credits/store.ts';
import { type OwnOutage, creditSegment } from './outage-credit.ts';
import { costUcents, holdId, transfersOf, unpostedUcents } from './posting.ts';
import * as store from './store.ts';

export const TICK_MS = 30_000;
const HOUR_MS = 3_600_000;
/** A rental is stopped while its hold still covers this many ticks, so the uncovered cost that we bear stays small. */
const TICKS_COVERED_MIN = 2;
/** Limit of segments in one transaction of the tick. */
const TICK_PIECE = 50;

export interface Metering {
  /** Holds the amount that a launch must be able to pay at first. @throws ServiceError `insufficient_balance` */
  holdForLaunch(tx: Tx, subjectId: string, orgId: string, rateUcentsPerHour: bigint): Promise<void>;
  /** Releases the hold of a rental that failed to start or has ended. */
  releaseHold(tx: Tx, subjectId: string, orgId: string): Promise<void>;
  openSegment(tx: Tx, segment: store.NewSegment): Promise<void>;
  /**
   * Charges nothing after `endedMs`: posts the difference, or reverses what was posted beyond it, and releases the hold. It may shorten
   * several segments: an outage that began before one of our own outages also shortens the segment before that. Does nothing if all
   * segments ended earlier. With `evidence`, which is stored on the transfers, the instance was unreachable from `endedMs` on. Its time is
   * then free, within the bounds of money/credits, until the next segment begins or the hold is released.
   */
  closeSegment(tx: Tx, subjectId: string, endedMs: number, evidence?: string): Promise<void>;
  /** The same for a rental whose host reports a broken GPU. */
  pauseForGpuFault(tx: Tx, subjectId: string, endedMs: number, evidence: string): Promise<void>;
  /**
   * Takes the time since `sinceMs` back from all sides and returns the customer's refund. A running rental is charged again from now on.
   * `evidence` is stored on the transfers.
   */
  refund(tx: Tx, subjectId: string, back: { sinceMs: number; evidence: string }): Promise<bigint>;
  /** Credits an outage of the whole control plane in every open segment, in pieces. Returns the number of segments. */
  creditOwnOutage(outage: OwnOutage): Promise<number>;
  /**
   * Removes time that never passed, because the wall clock was set forward, from every segment. Nobody is paid for it and it is no credit.
   */
  skipAll(step: { fromMs: number; untilMs: number; evidence: string }): Promise<void>;
  /** Handles all open segments once. Resolves with the rentals whose balance does not cover the next ticks. */
  tick(signal: AbortSignal): Promise<string[]>;
}

interface MeteringDeps {
  db: Db;
  clock: Clock;
  ids: Ids;
  ledger: Ledger;
  credits: Pick<Credits, 'begin' | 'end' | 'skip' | 'payOwnOutage'>;
  launchHoldMinutes: number;
}

export function openMetering(deps: MeteringDeps): Metering {
  const { clock, ids, ledger, credits } = deps;
  const metering: Metering = {
    holdForLaunch: (tx, subjectId, orgId, rateUcentsPerHour) =>
      ledger.setHold(tx, holdId(subjectId), wallet(orgId), accruedUcents(rateUcentsPerHour, aheadMs(deps))),
    releaseHold: async (tx, subjectId, orgId) => {
      await ledger.setHold(tx, holdId(subjectId), wallet(orgId), 0n);
      await credits.end(tx, subjectId, clock.now());
    },
    openSegment: async (tx, segment) => {
      await credits.end(tx, segment.subjectId, segment.startedMs);
      await store.insertSegment(tx, {
        id: ids.prefixed('seg'),
        subject_id: segment.subjectId,
        org_id: segment.orgId,
        supplier_id: segment.supplierId,
        machine_id: segment.machineId,
        gpu_type: segment.gpuType,
        gpu_count: segment.gpuCount,
        rate_ucents_per_hour: segment.rateUcentsPerHour,
        supplier_bps: segment.supplierBps,
        started_ms: segment.startedMs,
        posted_through_ms: segment.startedMs,
        ended_ms: null,
      });
    },
    closeSegment: (tx, subjectId, toMs, evidence) => close(tx, subjectId, { toMs, evidence, cause: 'outage' }, deps),
    pauseForGpuFault: (tx, subjectId, toMs, evidence) =>
      close(tx, subjectId, { toMs, evidence, cause: 'gpu_fault' }, deps),
    refund: (tx, subjectId, back) => refund(tx, subjectId, back, deps),
    creditOwnOutage: (outage) => creditOwnOutage(outage, { ...deps, metering }),
    skipAll: (step) => skipAll(step, deps),
    tick: (signal) => tick(signal, deps),
  };
  return metering;
}

/** Ends each segment at `toMs`, or at its start if that is later. Returns the amount of posted charges that customers get back. */
async function cutBack(tx: Tx, segments: readonly store.Segment[], until: Until, ledger: Ledger): Promise<bigint> {
  let refundedUcents = 0n;
  for (const segment of segments) {
    const toMs = Math.max(until.toMs, segment.started_ms);
    const changeUcents = costUcents(segment, segment.posted_through_ms) - costUcents(segment, toMs);
    if (changeUcents > 0n) refundedUcents += changeUcents;
    await postThrough(tx, segment, { ...until, toMs }, ledger);
    await store.endSegment(tx, segment.id, toMs);
    await ledger.setHold(tx, holdId(segment.subject_id), wallet(segment.org_id), 0n);
  }
  return refundedUcents;
}

async function refund(
  tx: Tx,
  subjectId: string,
  { sinceMs, evidence }: { sinceMs: number; evidence: string },
  { ids, clock, ledger }: MeteringDeps,
): Promise<bigint> {
  const segments = await store.segmentsPast(tx, subjectId, sinceMs);
  const refundedUcents = await cutBack(tx, segments, { toMs: sinceMs, evidence }, ledger);
  const open = segments.find((segment) => segment.ended_ms === null);
  const nowMs = clock.now();
  if (open !== undefined) {
    const again = { ...open, id: ids.prefixed('seg'), started_ms: nowMs, posted_through_ms: nowMs };
    await store.insertSegment(tx, again);
  }
  return refundedUcents;
}

async function close(
  tx: Tx,
  subjectId: string,
  { cause, ...until }: Until & { cause: FreeTime['cause'] },
  { clock, credits, ledger }: MeteringDeps,
): Promise<void> {
  const segments = await store.segmentsPast(tx, subjectId, until.toMs);
  await cutBack(tx, segments, until, ledger);
  const last = segments.at(-1);
  if (last === undefined || until.evidence === undefined) return;
  const nowMs = clock.now();
  const cut = segments.map((each) => (each.ended_ms ?? nowMs) - Math.max(until.toMs, each.started_ms));
  await credits.begin(tx, {
    subjectId,
    orgId: last.org_id,
    supplierId: last.supplier_id,
    machineId: last.machine_id,
    cause,
    rateUcentsPerHour: last.rate_ucents_per_hour,
    supplierBps: last.supplier_bps,
    fromMs: until.toMs,
    countedMs: cut.reduce((sum, ms) => sum + Math.max(0, ms), 0),
    evidence: until.evidence,
  });
}

/**
 * Runs `each` for the ids of every page, several at a time. Each id has its own transaction, which locks its own rows, so that a thousand
 * rentals are never held at once.
 */
async function forEachOf(
  page: (afterId: string) => Promise<store.Segment[]>,
  each: (segment: store.Segment) => Promise<void>,
  isOver: () => boolean = () => false,
): Promise<void> {
  for (let afterId: string | undefined = ''; afterId !== undefined && !isOver();) {
    const segments: store.Segment[] = await page(afterId);
    await Promise.all(segments.map(each));
    afterId = segments.at(-1)?.id;
  }
}

/** Locks the rental of a segment and what its credits count against, and reads the segment again. Must begin the transaction. */
async function lockSegment(tx: Tx, seen: store.Segment): Promise<store.Segment | undefined> {
  await tx.lock('org', seen.org_id);
  await tx.lock('supplier', seen.supplier_id);
  await tx.lock('instance', seen.subject_id);
  return (await store.segmentsOf(tx, [seen.subject_id])).find((segment) => segment.id === seen.id);
}

async function creditOwnOutage(outage: OwnOutage, deps: MeteringDeps & { metering: Metering }): Promise<number> {
  const { db, credits, metering } = deps;
  const credited = new Set<string>();
  const credit = async (seen: store.Segment): Promise<void> => {
    // The new segments have higher ids and begin at the end of the outage, so they are skipped.
    if (seen.started_ms >= outage.untilMs) return;
    await db.tx('metering.own_outage', async (tx) => {
      const segment = await lockSegment(tx, seen);
      if (segment === undefined || segment.ended_ms !== null) return;
      const closeForOwnOutage = (subjectId: string, toMs: number): Promise<void> =>
        close(tx, subjectId, { toMs, evidence: outage.evidence, cause: 'own_outage' }, deps);
      await creditSegment(tx, segment, outage, { credits, openSegment: metering.openSegment, closeForOwnOutage });
    });
    credited.add(seen.id);
  };
  await forEachOf((afterId) => store.openSegments(db.read, afterId, TICK_PIECE), credit);
  return credited.size;
}

async function skipAll(
  { fromMs, untilMs, evidence }: { fromMs: number; untilMs: number; evidence: string },
  { db, ids, credits, ledger }: MeteringDeps,
): Promise<void> {
  await db.tx('metering.skip_free', (tx) => credits.skip(tx, untilMs - fromMs));
  const skip = (seen: store.Segment): Promise<void> =>
    db.tx('metering.skip', async (tx) => {
      const segment = await lockSegment(tx, seen);
      if (segment === undefined || (segment.ended_ms !== null && segment.ended_ms <= fromMs)) return;
      const toMs = segment.ended_ms === null ? fromMs : segment.ended_ms - (untilMs - fromMs);
      await cutBack(tx, [segment], { toMs, evidence }, ledger);
      if (segment.ended_ms !== null) return;
      // The id is higher than `afterId` and the start is after the step, so the loop does not meet this segment again.
      const again = { ...segment, id: ids.prefixed('seg'), started_ms: untilMs, posted_through_ms: untilMs };
      await store.insertSegment(tx, again);
    });
  await forEachOf((afterId) => store.segmentsAcross(db.read, fromMs, { afterId, limit: TICK_PIECE }), skip);
}

interface Until {
  toMs: number;
  evidence?: string | undefined;
}

/** Posts the ledger up to `toMs`, forwards or backwards. This releases the hold; the caller sets it again. */
async function postThrough(tx: Tx, segment: store.Segment, until: Until, ledger: Ledger): Promise<void> {
  const { toMs, evidence } = until;
  const fromMs = segment.posted_through_ms;
  if (toMs === fromMs) return;
  await ledger.setHold(tx, holdId(segment.subject_id), wallet(segment.org_id), 0n);
  const availableUcents = await ledger.availableNow(tx, wallet(segment.org_id));
  const transfers = transfersOf({
    segment,
    fromMs,
    toMs,
    payableUcents: availableUcents,
    ...(evidence === undefined ? {} : { evidence }),
  });
  await ledger.post(tx, `${segment.id}:${fromMs}-${toMs}`, transfers);
  await store.setPostedThrough(tx, segment.id, toMs);
}

async function tick(signal: AbortSignal, deps: MeteringDeps): Promise<string[]> {
  const { db, clock } = deps;
  const exhausted: string[] = [];
  const one = async (seen: store.Segment): Promise<void> => {
    const isCovered = await db.tx('metering.tick', async (tx) => {
      await tx.lock('org', seen.org_id);
      await tx.lock('instance', seen.subject_id);
      const segment = (await store.segmentsOf(tx, [seen.subject_id])).find(({ id }) => id === seen.id);
      return segment === undefined || segment.ended_ms !== null || tickOne(tx, segment, clock.now(), deps);
    });
    if (!isCovered) exhausted.push(seen.subject_id);
  };
  await forEachOf(
    (afterId) => store.openSegments(db.read, afterId, TICK_PIECE),
    one,
    () => signal.aborted,
  );
  return exhausted;
}

/** Posts at hour ends and adjusts the hold; false if the balance does not cover the next ticks. */
async function tickOne(tx: Tx, segment: store.Segment, nowMs: number, deps: MeteringDeps): Promise<boolean> {
  const { ledger } = deps;
  const hourEndMs = Math.floor(nowMs / HOUR_MS) * HOUR_MS;
  const isDue = hourEndMs > segment.posted_through_ms;
  if (isDue) await postThrough(tx, segment, { toMs: hourEndMs }, ledger);
  const unposted = unpostedUcents(isDue ? { ...segment, posted_through_ms: hourEndMs } : segment, nowMs);
  const rate = segment.rate_ucents_per_hour;
  const wanted = unposted + accruedUcents(rate, aheadMs(deps));
  const covered = await ledger.coverHold(tx, holdId(segment.subject_id), wallet(segment.org_id), wanted);
  return covered >= unposted + accruedUcents(rate, TICKS_COVERED_MIN * TICK_MS);
}

function aheadMs({ launchHoldMinutes }: MeteringDeps): number {
  return launchHoldMinutes * 60_000;
}
