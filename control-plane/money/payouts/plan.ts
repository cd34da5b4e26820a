// Pure: whether a payout to a supplier may leave now, and the periods of the loop.
import { isoTime } from '../../../shared/clock.ts';
import { bucketStart } from '../metering/buckets.ts';
import type { DestinationRow } from './store.ts';

/** How often the loop makes payouts: at the beginning of each UTC day, or of each week on Monday. */
export type Every = 'day' | 'week';

/** The beginning of the period. A supplier gets at most one payout of the loop in it. */
export function periodStart(nowMs: number, every: Every): number {
  return bucketStart(nowMs, every);
}

/**
 * The present destination of payouts, and the pending change of it. `destinationsAt` finds both in rows that are sorted from new to old and
 * have no cancelled ones.
 */
export interface Destinations {
  inForce: DestinationRow | undefined;
  pending: DestinationRow | undefined;
}

export function destinationsAt(rows: readonly DestinationRow[], nowMs: number): Destinations {
  return {
    inForce: rows.find((row) => row.in_force_ms <= nowMs),
    pending: rows.find((row) => row.in_force_ms > nowMs),
  };
}

/**
 * Why no money may leave to the supplier now, whoever sends it; undefined if it may. A thief who has a key of the supplier could change the
 * destination. So everything waits while a change is pending: the supplier sees the pending change and its delayed payouts, and cancels it.
 */
export function obstacleOf(
  supplier: 'active' | 'suspended' | undefined,
  { pending }: Destinations,
): string | undefined {
  if (supplier === 'suspended') {
    return 'The supplier is suspended. End the suspension first (admin supplier resume)';
  }
  if (pending === undefined) return undefined;
  const at = isoTime(pending.in_force_ms);
  return `A change of the payout destination is pending until ${at}. Payouts wait until it is in force or the supplier cancels it`;
}

/** Why the payout cannot go to a destination now; undefined if it can. */
export function sendObstacleOf(
  supplier: 'active' | 'suspended' | undefined,
  destinations: Destinations,
): string | undefined {
  const why = obstacleOf(supplier, destinations);
  if (why !== undefined || destinations.inForce !== undefined) return why;
  return 'The supplier has named no payout destination';
}
