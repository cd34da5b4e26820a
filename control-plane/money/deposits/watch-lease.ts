// The lease of a watcher: one process watches a chain at a time.
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Db } from '../../base/db/db.ts';
import {
  type Held,
  isFree,
  releaseLease,
  renewLease,
  seeLease,
  type SeenLease,
  takeLease,
} from '../../base/db/lease.ts';

/** A watcher renews its lease at each tick. If it has not renewed for this long, it counts as dead. A tick takes much less time. */
const WATCH_LEASE_MS = 120_000;

/** A process that was paused notices in its next transaction that another one has taken over (`isHeld`). */
export interface WatchLease {
  /** Renews the lease, or takes it if it is free or its holder is gone; undefined while another process has it. */
  hold(): Promise<Held | undefined>;
  release(): Promise<void>;
}

export function openWatchLease(name: string, { db, clock, ids }: { db: Db; clock: Clock; ids: Ids }): WatchLease {
  const holder = ids.uuid();
  let held: Held | undefined;
  let seen: SeenLease | undefined;
  /** Since when the lease of another process is as it was seen. */
  let sinceMs = clock.monotonicMs();
  return {
    hold: async () => {
      if (held !== undefined && (await renewLease(db, held))) return held;
      held = undefined;
      const now = await seeLease(db, name);
      if (now?.epoch !== seen?.epoch || now?.beat !== seen?.beat) sinceMs = clock.monotonicMs();
      seen = now;
      const mayTake = isFree(seen) || clock.monotonicMs() - sinceMs >= WATCH_LEASE_MS;
      if (mayTake) held = await takeLease(db, { name, holder }, seen);
      return held;
    },
    release: async () => {
      if (held !== undefined) await releaseLease(db, held);
      held = undefined;
    },
  };
}
