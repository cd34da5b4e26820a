// The bill of one instance: its segments, the time that was not charged, and refunds, with sums that equal the ledger to the microcent.
//
// Example: $1 an hour, dead from 10:40 to 11:00, ended at 11:30, and 10 cents were refunded.
//
//   segments    10:00 - 10:40    0.66666666        credits    10:40 - 11:00    0.33333333 (in no sum)
//               11:00 - 11:30    0.50              refunds                     0.10
//
//   usage 1.16666666 - refunds 0.10 = cost 1.06666666 = what the wallet has paid, if everything is posted
//
// `posted` comes from the transfers, `usage` from the segments. `ledger verify` proves that segments and transfers agree.
import type { BillCredit, InstanceBill } from '../../../shared/api/instance-bill.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { accruedUcents, dollarsFromUcents, dollarText } from '../../../shared/money.ts';
import type { Db, Query } from '../../base/db/db.ts';
import { refundsOf } from '../corrections/store.ts';
import { type FreeTime, freeTimesOf, type HeldCredit, heldOf } from '../credits/store.ts';
import { badDebt, accountId, isWallet } from '../ledger/accounts.ts';
import { type EvidencedAmount, refundsByEvidence } from '../ledger/store.ts';
import { type SubjectEntry, subjectEntries } from '../ledger/wallets.ts';
import { DISPUTED } from '../metering/metering.ts';
import { costUcents, stretchOf, unpostedUcents } from '../metering/posting.ts';
import { type Segment, segmentsOf } from '../metering/store.ts';

export interface InstanceBillDeps {
  db: Db;
  clock: Clock;
  /** @throws ServiceError `not_found` if the organisation has no such instance */
  rentalOf(query: Query, orgId: string, instanceId: string): Promise<{ hasEnded: boolean }>;
}

/** @throws ServiceError `not_found` */
export function instanceBillOf(
  orgId: string,
  id: string,
  { db, clock, rentalOf }: InstanceBillDeps,
): Promise<InstanceBill> {
  return db.snapshot('instance_bill', async (query) => {
    const { hasEnded } = await rentalOf(query, orgId, id);
    const nowMs = clock.now();
    const segments = await segmentsOf(query, [id]);
    const free = await freeTimesOf(query, id);
    const held = await heldOf(query, id);
    const heldFor = new Map(held.map((each) => [each.free_time_id, each]));
    const disputed = await refundsByEvidence(query, [id], DISPUTED);
    const refunds = await refundsOf(query, id);
    const isOpen = segments.some(({ ended_ms: endedMs }) => endedMs === null);
    const waits = free.some(({ ended_ms: endedMs }) => endedMs === null) || held.some(({ state }) => state === 'held');
    return {
      instance_id: id,
      currency: 'USD',
      as_of: isoTime(nowMs),
      is_complete: hasEnded && !isOpen && !waits,
      segments: segments.filter(hasLength).map((segment) => segmentView(segment, nowMs)),
      credits: [
        ...free.map((time) => creditOf(time, { segments, heldFor, nowMs })),
        ...disputed.map(disputeOf),
      ].toSorted((a, b) => (a.from < b.from ? -1 : 1)),
      refunds: refunds.map((row) => ({
        amount: dollarText(row.amount_ucents),
        reason: row.reason,
        reference: row.reference,
        created_at: isoTime(row.created_ms),
      })),
      totals: totalsOf(segments, await subjectEntries(query, id), nowMs),
    };
  });
}

/** A segment whose whole time was given back has no length. */
function hasLength({ started_ms: startMs, ended_ms: endMs }: Segment): boolean {
  return endMs !== startMs;
}

function segmentView(segment: Segment, nowMs: number): InstanceBill['segments'][number] {
  const untilMs = endOf(segment, nowMs);
  return {
    from: isoTime(segment.started_ms),
    until: segment.ended_ms === null ? null : isoTime(segment.ended_ms),
    seconds: (untilMs - segment.started_ms) / 1000,
    price_per_hour: dollarsFromUcents(segment.rate_ucents_per_hour),
    amount: dollarText(costUcents(segment, untilMs)),
  };
}

/** If the clock was set back, an open segment counts until its last posting. */
export function endOf({ ended_ms: endedMs, posted_through_ms: postedMs }: Segment, nowMs: number): number {
  return endedMs ?? Math.max(nowMs, postedMs);
}

/**
 * The end of uncharged time as the customer sees it: the start of the next segment. If there is none, `freeMs` after the start of the uncharged
 * time. `segments` are all of the rental, in the order of their starts. One whose whole time was given back counts too: it shows when this uncharged
 * time ended, and why the time after it is not charged stands elsewhere.
 */
export function freeUntilMs(time: FreeTime, freeMs: number, segments: readonly Segment[]): number {
  const leastMs = time.from_ms + freeMs;
  // A search by halves: a rental on a host that came and went has thousands of segments, and as many uncharged times.
  let [low, high] = [0, segments.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((segments[middle]?.started_ms ?? leastMs) < leastMs) low = middle + 1;
    else high = middle;
  }
  return segments[low]?.started_ms ?? leastMs;
}

function creditOf(
  time: FreeTime,
  {
    segments,
    heldFor,
    nowMs,
  }: { segments: readonly Segment[]; heldFor: ReadonlyMap<string | null, HeldCredit>; nowMs: number },
): BillCredit {
  const isOpen = time.ended_ms === null;
  const freeMs = time.free_ms ?? Math.max(0, time.counted_ms + nowMs - time.counted_at_ms);
  const worthUcents = accruedUcents(time.rate_ucents_per_hour, freeMs);
  const row = heldFor.get(time.id);
  return {
    cause: time.cause,
    from: isoTime(time.from_ms),
    until: isOpen ? null : isoTime(freeUntilMs(time, freeMs, segments)),
    seconds: freeMs / 1000,
    amount: dollarText(worthUcents),
    status: isOpen ? 'open' : (row?.state ?? 'credited'),
    held_amount: dollarText(row?.amount_ucents ?? 0n),
    reason: time.evidence,
  };
}

/** The refund of a dispute reverses a stretch of time that was posted. The id of its transfer names the stretch. */
export function disputedTime({ id, effective_ms: fromMs }: EvidencedAmount): { fromMs: number; untilMs: number } {
  return { fromMs, untilMs: stretchOf(id)?.fromMs ?? fromMs };
}

function disputeOf(refund: EvidencedAmount): BillCredit {
  const { amount_ucents: ucents, evidence } = refund;
  const { fromMs, untilMs } = disputedTime(refund);
  return {
    cause: 'dispute',
    from: isoTime(fromMs),
    until: isoTime(untilMs),
    seconds: (untilMs - fromMs) / 1000,
    amount: dollarText(ucents),
    status: 'credited',
    held_amount: dollarText(0n),
    reason: evidence,
  };
}

function totalsOf(
  segments: readonly Segment[],
  entries: readonly SubjectEntry[],
  nowMs: number,
): InstanceBill['totals'] {
  const net = (isOf: (entry: SubjectEntry) => boolean): bigint =>
    entries.filter(isOf).reduce((sum, entry) => sum + entry.net_ucents, 0n);
  const ofWallet = (prefix: string): bigint =>
    net(({ account_id: account, kind }) => isWallet(account) && kind.startsWith(prefix));
  const sum = (of: (segment: Segment) => bigint): bigint => segments.reduce((total, each) => total + of(each), 0n);
  const usageUcents = sum((segment) => costUcents(segment, endOf(segment, nowMs)));
  const unpostedOf = (segment: Segment): bigint => (segment.ended_ms === null ? unpostedUcents(segment, nowMs) : 0n);
  const unpostedNow = sum(unpostedOf);
  const postedUcents = -ofWallet('');
  const isUncovered = ({ account_id: account, kind }: SubjectEntry): boolean =>
    account === accountId(badDebt) && kind.startsWith('rental.');
  return {
    usage: dollarText(usageUcents),
    held_credits: dollarText(-ofWallet('credit.')),
    uncovered: dollarText(-net(isUncovered)),
    refunds: dollarText(ofWallet('correction.')),
    cost: dollarText(postedUcents + unpostedNow),
    unposted: dollarText(unpostedNow),
    posted: dollarText(postedUcents),
  };
}
