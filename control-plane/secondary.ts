// A control plane that serves beside the primary on one PostgreSQL database: a secondary. It answers requests to models and reads itself, passes
// all others on to the primary, and takes its place when it ends.
//
//   the primary stops      it gives the lease back, and one of the secondaries has it within half a second
//   the primary dies       one of them takes the lease after 15 seconds
//   a newer one upgrades   the new primary ends the secondaries before it changes the schema; they start again, and stand by until they fit
//
// It looks at the lease twice a second. What it knows of the primary is as old as that, so a request may be passed on to one that has just ended.
import type { Clock } from '../shared/clock.ts';
import { messageOf } from '../shared/errors.ts';
import type { Log } from '../shared/log.ts';
import { type Db, DbError, isDatabaseAway } from './base/db/db.ts';
import { isFree, type Held, releaseLease, type SeenLease, takeLease } from './base/db/lease.ts';
import { type Former, openSight, POLL_MS } from './base/db/lease-keeping.ts';
import { addressOf } from './base/db/members.ts';
import type { Primary } from './base/http/pass-on.ts';

export interface Following {
  /** Who serves what only the primary serves; `self` once this process has its lease. */
  primary(): Primary;
  /** Resolves when nothing is looked for any more. A lease that is taken meanwhile is given back. */
  stop(): Promise<void>;
}

interface FollowDeps {
  clock: Clock;
  log: Log;
  /** The lease of the primary, which this process takes when it may. */
  lease: string;
  /** The id of this process. */
  id: string;
  /** The address at which others reach this process. */
  peerUrl?: string | undefined;
  /** This process has the lease, in the place of `former`. When this has ended, it serves everything. */
  onTaken(held: Held, former: Former | undefined): Promise<void>;
  /** Gives all leases of this process back. */
  giveBack(): Promise<void>;
  /** Called once, if this process may not write any more. */
  onLost(why: string): void;
}

/** A new primary says where it is reached after it has changed the schema. An operator's command holds the lease for a moment, and says nothing. */
const SILENT_MS_MAX = 30_000;
const NO_URL = 'the primary has no peer_url, so what only the primary serves is refused here';
const SAME_URL =
  'the primary has the same peer_url as this control plane, so what only the primary serves is refused here: give each its own';

export function followPrimary(db: Db, deps: FollowDeps): Following {
  const { clock, log } = deps;
  const look = openSight(db, deps.lease, clock);
  const finder = openFinder(db, deps);
  let isPrimary = false;
  const stopping = new AbortController();
  let isStopped = false;
  const lose = (why: string): void => {
    isStopped = true;
    deps.onLost(why);
  };

  const step = async (): Promise<void> => {
    const { seen, mayTake, former } = await look();
    if (isStopped) return;
    const held = mayTake ? await takeLease(db, { name: deps.lease, holder: deps.id }, seen) : undefined;
    if (held === undefined) return finder.find(seen);
    if (isStopped) return releaseLease(db, held);
    isStopped = true;
    finder.forget();
    try {
      await deps.onTaken(held, former);
      isPrimary = true;
    } catch (error) {
      log.error({ err: error }, 'this control plane could not become the primary, and ends');
      // Another one must not wait until the lease times out. If the database is away, this ends when the lease was not renewed for too long.
      await deps
        .giveBack()
        .catch((cause: unknown) =>
          log.warn(
            { err: cause },
            'a lease was not released: another control plane can take over only when it runs out',
          ),
        );
      lose(`it could not become the primary: ${messageOf(error)}`);
    }
  };

  const run = async (): Promise<void> => {
    let isBlind = false;
    while (!isStopped) {
      try {
        await step();
        isBlind = false;
      } catch (error) {
        if (isStopped) return;
        if (error instanceof DbError && error.code === 'lease_lost') return lose(messageOf(error));
        if (!isBlind && !isDatabaseAway(error))
          log.error({ err: error }, 'the primary could not be looked for; it is tried again and again');
        isBlind = true;
      }
      await clock.sleep(POLL_MS, stopping.signal);
    }
  };
  const running = run();
  return {
    primary: () => (isPrimary ? 'self' : finder.primary()),
    stop: () => {
      isStopped = true;
      stopping.abort();
      return running;
    },
  };
}

interface Finder {
  primary(): Primary;
  /** Finds out where the holder of the lease is reached. */
  find(seen: SeenLease | undefined): Promise<void>;
  forget(): void;
}

function openFinder(db: Db, { clock, log, peerUrl }: FollowDeps): Finder {
  let primary: Primary = 'unknown';
  let holder: string | undefined;
  /** When this holder was first seen. */
  let sinceMs = 0;
  let hasComplained = false;
  const forget = (): void => {
    holder = undefined;
    primary = 'unknown';
  };
  return {
    primary: () => primary,
    forget,
    find: async (seen) => {
      if (seen === undefined || isFree(seen)) return forget();
      if (seen.holder === holder && primary !== 'unknown') return;
      if (seen.holder !== holder) {
        sinceMs = clock.monotonicMs();
        hasComplained = false;
      }
      holder = seen.holder;
      const url = await addressOf(db, holder);
      if (url !== undefined && url !== peerUrl) {
        primary = { id: holder, url };
        return log.info({ primary: url }, 'requests that only the primary serves go there');
      }
      primary = 'unknown';
      const isEarly = url === undefined && clock.monotonicMs() - sinceMs < SILENT_MS_MAX;
      if (isEarly || hasComplained) return;
      hasComplained = true;
      log.error({ member: holder, peer_url: url }, url === undefined ? NO_URL : SAME_URL);
    },
  };
}
