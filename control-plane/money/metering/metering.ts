// Segments over their life: state moves open and close them, hours.ts says when their hours are posted, and a hold covers the time until then.
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Log } from '../../../shared/log.ts';
import { accruedUcents } from '../../../shared/money.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import { wallet } from '../ledger/accounts.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { amountsHeld } from '../ledger/store.ts';
import type { Credits } from '../credits/credits.ts';
import type { FreeTime } from '../credits/store.ts';
import type { OwnOutage } from './failed-credits.ts';
import { type LimitOf, openOutageCredits } from './outage-credit.ts';
import { coverUcents, longHoldUcents, postableMs, WALLET_MS } from './hours.ts';
import { costUcents, holdId, transfersOf } from './posting.ts';
import * as store from './store.ts';

export const TICK_MS = 30_000;
/** A rental is stopped while its hold still covers two ticks, so the uncovered cost that we bear stays small. */
const COVERED_MS_MIN = 2 * TICK_MS;
/** Number of segments that the tick reads in one query. */
const TICK_PAGE = 500;
/** Number of transactions that run at the same time. */
const TICK_PIECE = 50;

/** The evidence of a refund after a dispute begins with this text. */
export const DISPUTED = 'refunded after dispute ';

export interface Metering {
  /** Holds the amount that a launch must be able to pay at first. @throws ServiceError `insufficient_balance`, see `shortenHolds` */
  holdForLaunch(tx: Tx, subjectId: string, orgId: string, rateUcentsPerHour: bigint): Promise<void>;
  /**
   * Shortens the holds of the organisation's running rentals to `launchHoldMinutes` ahead, because one of them, or a launch, needs the
   * money now. False if no hold was longer.
   */
  shortenHolds(orgId: string): Promise<boolean>;
  /** Releases the hold of a rental that failed to start or has ended. Its uncharged time ends at `endedMs`, by default now. */
  releaseHold(tx: Tx, subjectId: string, orgId: string, endedMs?: number): Promise<void>;
  openSegment(tx: Tx, segment: store.NewSegment): Promise<void>;
  /**
   * Charges nothing after `endedMs`: posts the difference, or reverses what was posted beyond it, and releases the hold. It may shorten
   * several segments: an outage that began before one of our own outages also shortens the segment before that. Does nothing if all
   * segments ended earlier. With `evidence`, which is stored on the transfers, the instance was unreachable from `endedMs` on. Its time is
   * then free, within the bounds of money/credits, until the next segment begins or the hold is released.
   */
  closeSegment(tx: Tx, subjectId: string, endedMs: number, evidence?: string): Promise<void>;
  /** Does the same as `closeSegment` for a rental whose host reports a broken GPU. */
  pauseForGpuFault(tx: Tx, subjectId: string, endedMs: number, evidence: string): Promise<void>;
  /**
   * Takes the time since `sinceMs` back from all sides and returns the customer's refund. A running rental is charged again from now on.
   * `evidence` is stored on the transfers.
   */
  refund(tx: Tx, subjectId: string, back: { sinceMs: number; evidence: string }): Promise<bigint>;
  /**
   * Credits an outage of the whole control plane in every open segment, in pieces. Returns the number of segments. A segment that fails is
   * logged, and tried again with the next ticks. @throws DbError if the database fails
   */
  creditOwnOutage(outage: OwnOutage): Promise<number>;
  /**
   * Removes time that never passed, because the wall clock was set forward, from every segment. Nobody is paid for it and it is no credit. `note` is
   * called after the segments. If it rejects, or anything before it fails, the same step can be skipped again.
   */
  skipAll(step: SkippedStep, note: () => Promise<void>): Promise<void>;
  /**
   * Goes once through all open segments and posts those that are due. Resolves with the rentals whose balance does not cover the next
   * ticks. A customer may add funds before such a rental is stopped, so `cover` decides that. A rental that fails is logged and keeps nobody else.
   */
  tick(signal: AbortSignal): Promise<string[]>;
  /**
   * Does what the tick does for one rental. False if the balance does not cover the next ticks. The caller has locked its organisation and the
   * rental. A rental that is not charged now is covered.
   */
  cover(tx: Tx, subjectId: string): Promise<boolean>;
}

interface MeteringDeps {
  db: Db;
  clock: Clock;
  ids: Ids;
  log: Log;
  ledger: Ledger;
  credits: Pick<Credits, 'begin' | 'end' | 'skip' | 'payOwnOutage'>;
  launchHoldMinutes: number;
  limitOf: LimitOf;
  /**
   * Called after charges were reversed. If an operator has refunded some of them before, it undoes these refunds, so that nothing is paid
   * back twice.
   */
  keepRefundsWithinCharge(tx: Tx, subjectId: string, evidence: string): Promise<void>;
}

export function openMetering(deps: MeteringDeps): Metering {
  const { db, clock, ids, ledger, credits } = deps;
  const metering: Metering = {
    holdForLaunch: (tx, subjectId, orgId, rateUcentsPerHour) =>
      ledger.holdAtOnce(tx, holdId(subjectId), wallet(orgId), accruedUcents(rateUcentsPerHour, aheadMs(deps))),
    shortenHolds: (orgId) => shortenHolds(orgId, deps),
    releaseHold: async (tx, subjectId, orgId, endedMs = clock.now()) => {
      await ledger.setHold(tx, holdId(subjectId), wallet(orgId), 0n);
      await credits.end(tx, subjectId, endedMs);
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
    creditOwnOutage: (outage) => ownOutages.credit(outage, (each) => forEachOf(openPage, each)),
    skipAll: (step, note) => skipAll(step, note, deps),
    tick: async (signal) => {
      await ownOutages.tryAgain();
      return tick(signal, deps);
    },
    cover: async (tx, subjectId) => {
      const open = (await store.segmentsOf(tx, [subjectId])).find((segment) => segment.ended_ms === null);
      return open === undefined || cover(tx, open, deps);
    },
  };
  const openPage = (afterId: string): Promise<store.Segment[]> => store.openSegments(db.read, afterId, TICK_PIECE);
  const ownOutages = openOutageCredits({
    ...deps,
    lockSegment,
    openSegment: metering.openSegment,
    close: (tx, subjectId, until) => close(tx, subjectId, { ...until, cause: 'own_outage' }, deps),
  });
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
  const nowMs = clock.now();
  // If the clock was set back, the time may be in the future. A charge until then would be made again by the segment from now on.
  const toMs = Math.min(sinceMs, nowMs);
  const segments = await store.segmentsPast(tx, [subjectId], toMs);
  const refundedUcents = await cutBack(tx, segments, { toMs, evidence }, ledger);
  const open = segments.find((segment) => segment.ended_ms === null);
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
  { clock, credits, ledger, keepRefundsWithinCharge }: MeteringDeps,
): Promise<void> {
  const segments = await store.segmentsPast(tx, [subjectId], until.toMs);
  const backUcents = await cutBack(tx, segments, until, ledger);
  if (backUcents > 0n) await keepRefundsWithinCharge(tx, subjectId, until.evidence ?? '');
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
 * Runs `each` for the segments of every page, those of one page at the same time. Each segment has its own transaction, which locks only
 * its own rows. So thousands of rentals are never locked at once.
 */
async function forEachOf(
  page: (afterId: string) => Promise<store.Segment[]>,
  each: (segment: store.Segment) => Promise<void>,
): Promise<void> {
  for (let afterId: string | undefined = ''; afterId !== undefined;) {
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

export interface SkippedStep {
  fromMs: number;
  untilMs: number;
  evidence: string;
}

async function skipAll(
  { fromMs, untilMs, evidence }: SkippedStep,
  note: () => Promise<void>,
  { db, ids, credits, ledger, keepRefundsWithinCharge }: MeteringDeps,
): Promise<void> {
  const skip = (seen: store.Segment): Promise<void> =>
    db.tx('metering.skip', async (tx) => {
      const segment = await lockSegment(tx, seen);
      if (segment === undefined || (segment.ended_ms !== null && segment.ended_ms <= fromMs)) return;
      if (!(await store.noteSkipped(tx, segment.id, fromMs))) return;
      const toMs = segment.ended_ms === null ? fromMs : segment.ended_ms - (untilMs - fromMs);
      const backUcents = await cutBack(tx, [segment], { toMs, evidence }, ledger);
      if (backUcents > 0n) await keepRefundsWithinCharge(tx, segment.subject_id, evidence);
      if (segment.ended_ms !== null) return;
      // The new segment has a higher id, but it begins after the step. So `segmentsAcross` does not return it, and it is not cut again.
      const again = { ...segment, id: ids.prefixed('seg'), started_ms: untilMs, posted_through_ms: untilMs };
      await store.insertSegment(tx, again);
    });
  await forEachOf((afterId) => store.segmentsAcross(db.read, fromMs, { afterId, limit: TICK_PIECE }), skip);
  await note();
  // A second run would shorten these times twice, so they are last.
  await db.tx('metering.skip_free', (tx) => credits.skip(tx, untilMs - fromMs));
}

interface Until {
  toMs: number;
  evidence?: string | undefined;
}

/**
 * Posts the charge of the segment up to `toMs`. If more was posted already, reverses the charge after `toMs`. Releases the hold, which the caller
 * then sets again.
 */
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

/**
 * Posts and covers what is due, in pages. A rental whose balance is too small is then tried once more, after the other rentals of its organisation
 * have given back the money that they hold for later. Returns the rentals that are still not covered.
 */
async function tick(signal: AbortSignal, deps: MeteringDeps): Promise<string[]> {
  const { db, clock, log } = deps;
  const uncovered: store.Segment[] = [];
  const failed: { segment: store.Segment; error: unknown }[] = [];
  const settled = (segment: store.Segment, isCovered: Promise<boolean>): Promise<boolean> =>
    isCovered.catch((error: unknown) => {
      failed.push({ segment, error });
      // Nobody is stopped because of an error of ours.
      return true;
    });
  const page = async (afterId: string): Promise<store.Segment[]> => {
    const segments = await store.openSegments(db.read, afterId, TICK_PAGE);
    const holds = segments.map((segment) => holdId(segment.subject_id));
    const held = await amountsHeld(db.read, holds);
    const due = segments.filter((segment) =>
      isDue(segment, held.get(holdId(segment.subject_id)) ?? 0n, { nowMs: clock.now(), aheadMs: aheadMs(deps) }),
    );
    for (let i = 0; i < due.length && !signal.aborted; i += TICK_PIECE) {
      const piece = due.slice(i, i + TICK_PIECE);
      const covered = await Promise.all(piece.map((segment) => settled(segment, tickOne(segment, deps))));
      uncovered.push(...piece.filter((_, index) => covered[index] === false));
    }
    return segments;
  };
  for (let afterId: string | undefined = ''; afterId !== undefined && !signal.aborted;) {
    afterId = (await page(afterId)).at(-1)?.id;
  }
  const exhausted: string[] = [];
  for (const segment of uncovered) {
    const isCovered = shortenHolds(segment.org_id, deps).then(() => tickOne(segment, deps));
    if (!(await settled(segment, isCovered))) exhausted.push(segment.subject_id);
  }
  const [first] = failed;
  if (first !== undefined) {
    const fields = { rentals: failed.length, instance_id: first.segment.subject_id, err: first.error };
    log.error(fields, 'rentals could not be charged; the next tick tries again');
  }
  return exhausted;
}

/** Whether a transaction is needed: an hour is to be posted, or the hold covers less than half of the time ahead. */
function isDue(
  segment: store.Segment,
  heldUcents: bigint,
  { nowMs, aheadMs: ahead }: { nowMs: number; aheadMs: number },
): boolean {
  if (postableMs(segment, nowMs) > segment.posted_through_ms) return true;
  return heldUcents < coverUcents(segment, nowMs, Math.max(ahead / 2, COVERED_MS_MIN));
}

/** False if the balance does not cover the next ticks. */
function tickOne(seen: store.Segment, deps: MeteringDeps): Promise<boolean> {
  return deps.db.tx('metering.tick', async (tx) => {
    await tx.lock('org', seen.org_id);
    await tx.lock('instance', seen.subject_id);
    const segment = (await store.segmentsOf(tx, [seen.subject_id])).find(({ id }) => id === seen.id);
    if (segment === undefined || segment.ended_ms !== null) return true;
    return cover(tx, segment, deps);
  });
}

/** Posts an hour if it is time, and renews the hold. False if the balance does not cover the next ticks. */
async function cover(tx: Tx, before: store.Segment, deps: MeteringDeps): Promise<boolean> {
  const { clock, ledger } = deps;
  const { org_id: orgId, subject_id: subjectId } = before;
  const nowMs = clock.now();
  const toMs = Math.max(postableMs(before, nowMs), before.posted_through_ms);
  await postThrough(tx, before, { toMs }, ledger);
  const segment = { ...before, posted_through_ms: toMs };
  const isLasting = await lastsLong(tx, orgId, ledger);
  const wanted = isLasting ? longHoldUcents(segment, aheadMs(deps)) : coverUcents(segment, nowMs, aheadMs(deps));
  const covered = await ledger.coverHold(tx, holdId(subjectId), wallet(orgId), wanted);
  return covered >= coverUcents(segment, nowMs, COVERED_MS_MIN);
}

/** Whether the wallet pays for all rentals of the organisation for WALLET_MS. */
async function lastsLong(tx: Tx, orgId: string, ledger: Ledger): Promise<boolean> {
  const { postedUcents } = await ledger.balance(tx, wallet(orgId));
  return postedUcents >= accruedUcents(await store.openRateOf(tx, orgId), WALLET_MS);
}

async function shortenHolds(orgId: string, deps: MeteringDeps): Promise<boolean> {
  const { db, clock, ledger } = deps;
  const instanceIds = (await store.openSegmentsOf(db.read, orgId)).map((segment) => segment.subject_id);
  if (instanceIds.length === 0) return false;
  return db.tx('metering.shorten', async (tx) => {
    await tx.lock('org', orgId);
    await tx.lock('instance', ...instanceIds);
    const segments = (await store.openSegmentsOf(tx, orgId)).filter(({ subject_id: id }) => instanceIds.includes(id));
    const held = await amountsHeld(
      tx,
      segments.map((segment) => holdId(segment.subject_id)),
    );
    let isShorter = false;
    for (const segment of segments) {
      const id = holdId(segment.subject_id);
      const needed = coverUcents(segment, clock.now(), aheadMs(deps));
      if ((held.get(id) ?? 0n) <= needed) continue;
      await ledger.setHold(tx, id, wallet(orgId), needed);
      isShorter = true;
    }
    return isShorter;
  });
}

function aheadMs({ launchHoldMinutes }: MeteringDeps): number {
  return launchHoldMinutes * 60_000;
}
