// The costs of many instances, and what they were charged for in the last 24 hours. A page of instances needs as many queries as one
// instance.
//
// The cost of an instance is computed from its segments and from the few transfers that do not follow from segments. An instance of one
// month has two thousand other transfers, which are not read. The bill sums up all transfers, and `ledger verify` proves that both sums are
// equal.
import { type InstanceCost, SPANS_MAX } from '../../../shared/api/instance-bill.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { dollarText } from '../../../shared/money.ts';
import type { Db, Query } from '../../base/db/db.ts';
import type { PageStart } from '../../base/http/cursors.ts';
import { type FreeTime, freeTimesSince } from '../credits/store.ts';
import { refundsByEvidence } from '../ledger/store.ts';
import { besideSegments } from '../ledger/wallets.ts';
import { DISPUTED } from '../metering/metering.ts';
import { costUcents, unpostedUcents } from '../metering/posting.ts';
import { type Segment, segmentsOf } from '../metering/store.ts';
import { disputedTime, endOf, freeUntilMs } from './instance-bill.ts';

export interface Rental {
  id: string;
  createdMs: number;
  /** The time at which the instance first ran, or at which its launch was given up; null while it starts. */
  startedMs: number | null;
}

/** Returns a page of the instances of an organisation, newest first. If `ids` is set, it returns only these instances. */
export type RentalsOf = (
  query: Query,
  orgId: string,
  page: PageStart & { ids: readonly string[] | undefined },
) => Promise<Rental[]>;

export interface CostEntry {
  rental: Rental;
  cost: InstanceCost;
}

const DAY_MS = 24 * 3_600_000;

export function instanceCosts(
  orgId: string,
  page: PageStart & { ids: readonly string[] | undefined },
  { db, clock, rentalsOf }: { db: Db; clock: Clock; rentalsOf: RentalsOf },
): Promise<CostEntry[]> {
  return db.snapshot('instance_costs', async (query) => {
    const rentals = await rentalsOf(query, orgId, page);
    const ids = rentals.map(({ id }) => id);
    const nowMs = clock.now();
    const sinceMs = nowMs - DAY_MS;
    const beside = await besideSegments(query, ids);
    const segments = Map.groupBy(await segmentsOf(query, ids), (each) => each.subject_id);
    const free = Map.groupBy(await freeTimesSince(query, ids, sinceMs), (each) => each.subject_id);
    const disputed = Map.groupBy(await refundsByEvidence(query, ids, DISPUTED), (each) => each.subject_id);
    return rentals.map((rental) => {
      const { id } = rental;
      const ofRental = segments.get(id) ?? [];
      const sum = (of: (segment: Segment) => bigint): bigint => ofRental.reduce((total, each) => total + of(each), 0n);
      const { wallet_ucents: walletUcents = 0n, shortfall_ucents: shortfallUcents = 0n } = beside.get(id) ?? {};
      const usageUcents = sum((segment) => costUcents(segment, endOf(segment, nowMs)));
      const unpostedNow = sum((segment) => (segment.ended_ms === null ? unpostedUcents(segment, nowMs) : 0n));
      const cost = usageUcents - shortfallUcents - walletUcents;
      const spans = [
        { kind: 'starting', fromMs: rental.createdMs, untilMs: rental.startedMs } as const,
        ...ofRental.map(chargedSpan),
        ...(free.get(id) ?? []).map((time) => freeSpan(time, ofRental)),
        ...(disputed.get(id) ?? []).map((refund) => ({ kind: 'not_charged', ...disputedTime(refund) }) as const),
      ];
      return {
        rental,
        cost: {
          instance_id: id,
          as_of: isoTime(nowMs),
          cost: dollarText(cost),
          posted: dollarText(cost - unpostedNow),
          last_24_hours: shownSpans(spans, sinceMs),
        },
      };
    });
  });
}

interface Span {
  kind: InstanceCost['last_24_hours'][number]['kind'];
  fromMs: number;
  untilMs: number | null;
}

function chargedSpan({ started_ms: fromMs, ended_ms: untilMs }: Segment): Span {
  return { kind: 'charged', fromMs, untilMs };
}

function freeSpan(time: FreeTime, segments: readonly Segment[]): Span {
  const { from_ms: fromMs, free_ms: freeMs } = time;
  return { kind: 'not_charged', fromMs, untilMs: freeMs === null ? null : freeUntilMs(time, freeMs, segments) };
}

/** A segment that was credited completely has no length. */
function shownSpans(spans: readonly Span[], sinceMs: number): InstanceCost['last_24_hours'] {
  return spans
    .filter(({ fromMs, untilMs }) => untilMs === null || (untilMs > sinceMs && untilMs > fromMs))
    .toSorted((a, b) => a.fromMs - b.fromMs)
    .slice(-SPANS_MAX)
    .map(({ kind, fromMs, untilMs }) => ({
      kind,
      from: isoTime(fromMs),
      until: untilMs === null ? null : isoTime(untilMs),
    }));
}
