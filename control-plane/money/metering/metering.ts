// Segments at work: opened and closed by state moves, posted at hour ends, kept covered by a hold.
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import { accruedUcents } from '../../../shared/money.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import { wallet } from '../ledger/accounts.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { Credits } from '../credits/credits.ts';
import type { FreeTime } from '../credits/store.ts';
import { type Absence, excuse } from './outage-credit.ts';
import { costUcents, holdId, transfersOf, unpostedUcents } from './posting.ts';
import * as store from './store.ts';

export const TICK_MS = 30_000;
const HOUR_MS = 3_600_000;
/** A rental is stopped while its hold still covers this many ticks, so the overrun stays ours and small. */
const TICKS_COVERED_MIN = 2;
/** Segments that one transaction of the tick handles. */
const TICK_PIECE = 50;

export interface Metering {
  /** Sets aside what the launch must be able to pay at first. @throws ServiceError `insufficient_balance` */
  holdForLaunch(tx: Tx, subjectId: string, orgId: string, rateUcentsPerHour: bigint): Promise<void>;
  /** Gives back what was set aside for a rental that does not come about, or is over. */
  releaseHold(tx: Tx, subjectId: string, orgId: string): Promise<void>;
  openSegment(tx: Tx, segment: store.NewSegment): Promise<void>;
  /**
   * Nothing of the rental is charged past `endedMs`: posts (or, for what was posted past it, reverses) the difference and releases the
   * hold. That may reach back over several segments: an outage that began before an absence of ours ends the one before it too.
   * Nothing happens if all ended before. With `evidence`, which is kept on the transfers, the rental was out of reach from then on: until
   * the next segment, or until its hold is released, its time is uncharged within the bounds of money/credits.
   */
  closeSegment(tx: Tx, subjectId: string, endedMs: number, evidence?: string): Promise<void>;
  /** The same for a rental whose host has found its GPU broken. */
  pauseForGpuFault(tx: Tx, subjectId: string, endedMs: number, evidence: string): Promise<void>;
  /**
   * Takes the time since `sinceMs` back from all sides, and returns what the customer gets back. A rental that runs is charged again
   * from now on. `evidence` is kept on the transfers.
   */
  refund(tx: Tx, subjectId: string, back: { sinceMs: number; evidence: string }): Promise<bigint>;
  /** Takes an absence of the whole control plane out of every open segment, in pieces; returns how many that were. */
  creditOwnOutage(absence: Absence): Promise<number>;
  /** Takes time that never was, because the wall clock was set forward, out of every segment. Nobody is paid for it, nothing is free. */
  skipAll(step: { fromMs: number; untilMs: number; evidence: string }): Promise<void>;
  /** One pass over all open segments. Resolves with the rentals whose balance no longer covers the next ticks. */
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
    creditOwnOutage: (absence) => creditOwnOutage(absence, { ...deps, metering }),
    skipAll: (step) => skipAll(step, deps),
    tick: (signal) => tick(signal, deps),
  };
  return metering;
}

/** Ends each of the segments at `toMs`, or at its start if that is later. What customers get back of what was posted. */
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

async function creditOwnOutage(absence: Absence, deps: MeteringDeps & { metering: Metering }): Promise<number> {
  const { credits, metering } = deps;
  let count = 0;
  let afterId: string | undefined = '';
  while (afterId !== undefined) {
    const from: string = afterId;
    afterId = await deps.db.tx('metering.excuse', async (tx) => {
      const segments = await store.openSegments(tx, from, TICK_PIECE);
      // The new segments come later in the order of ids, and begin where the absence ended.
      const old = segments.filter((segment) => segment.started_ms < absence.untilMs);
      const closeForOwnOutage = (subjectId: string, toMs: number): Promise<void> =>
        close(tx, subjectId, { toMs, evidence: absence.evidence, cause: 'own_outage' }, deps);
      for (const segment of old)
        await excuse(tx, segment, absence, { credits, openSegment: metering.openSegment, closeForOwnOutage });
      count += old.length;
      return segments.at(-1)?.id;
    });
  }
  return count;
}

async function skipAll(
  { fromMs, untilMs, evidence }: { fromMs: number; untilMs: number; evidence: string },
  { db, ids, credits, ledger }: MeteringDeps,
): Promise<void> {
  let afterId: string | undefined = '';
  await db.tx('metering.skip_free', (tx) => credits.skip(tx, untilMs - fromMs));
  while (afterId !== undefined) {
    const from: string = afterId;
    afterId = await db.tx('metering.skip', async (tx) => {
      const segments = await store.segmentsAcross(tx, fromMs, { afterId: from, limit: TICK_PIECE });
      for (const segment of segments) {
        const toMs = segment.ended_ms === null ? fromMs : segment.ended_ms - (untilMs - fromMs);
        await cutBack(tx, [segment], { toMs, evidence }, ledger);
        if (segment.ended_ms !== null) continue;
        // Above the ids that are still to come, and begun after the step: it is not met again.
        const again = { ...segment, id: ids.prefixed('seg'), started_ms: untilMs, posted_through_ms: untilMs };
        await store.insertSegment(tx, again);
      }
      return segments.at(-1)?.id;
    });
  }
}

interface Until {
  toMs: number;
  evidence?: string | undefined;
}

/** Brings the ledger to `toMs`, forwards or backwards. The hold is released for it: the caller sets it anew. */
async function postThrough(tx: Tx, segment: store.Segment, until: Until, ledger: Ledger): Promise<void> {
  const { toMs, evidence } = until;
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
  await store.setPostedThrough(tx, segment.id, toMs);
}

async function tick(signal: AbortSignal, deps: MeteringDeps): Promise<string[]> {
  const exhausted: string[] = [];
  let afterId: string | undefined = '';
  while (afterId !== undefined && !signal.aborted) {
    const from: string = afterId;
    const piece = await deps.db.tx('metering.tick', async (tx) => {
      const nowMs = deps.clock.now();
      const segments = await store.openSegments(tx, from, TICK_PIECE);
      const uncovered: string[] = [];
      for (const segment of segments) {
        if (!(await tickOne(tx, segment, nowMs, deps))) uncovered.push(segment.subject_id);
      }
      return { lastId: segments.at(-1)?.id, uncovered };
    });
    exhausted.push(...piece.uncovered);
    afterId = piece.lastId;
  }
  return exhausted;
}

/** Posts at hour ends and moves the hold; false where the balance no longer covers the next ticks. */
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
