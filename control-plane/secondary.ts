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
import { type Db, DbError } from './base/db/db.ts';
import { isFree, type Held, releaseLease, type SeenLease, takeLease } from './base/db/lease.ts';
import { openSight, POLL_MS } from './base/db/lease-keeping.ts';
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
  /** Whether the database has the schema of this version. */
  fits(): Promise<boolean>;
  /** This process has the lease. When this has ended, it serves everything. */
  onTaken(held: Held): Promise<void>;
  /** Called once, if this process may not write any more. */
  onLost(why: string): void;
}

export function followPrimary(db: Db, deps: FollowDeps): Following {
  const { clock, log } = deps;
  const look = openSight(db, deps.lease, clock);
  let primary: Primary = 'unknown';
  let holder: string | undefined;
  const stopping = new AbortController();
  let isStopped = false;
  const lose = (why: string): void => {
    isStopped = true;
    deps.onLost(why);
  };

  const find = async (seen: SeenLease | undefined): Promise<void> => {
    if (isFree(seen)) return void ([holder, primary] = [undefined, 'unknown']);
    if (seen?.holder === holder && primary !== 'unknown') return;
    holder = seen?.holder;
    const url = holder === undefined ? undefined : await addressOf(db, holder);
    if (url === undefined) return void (primary = 'unknown');
    // A newer version may have changed the schema just when this process joined.
    if (!(await deps.fits())) return lose('a newer version has changed this database');
    primary = { url };
    log.info({ primary: url }, 'requests that only the primary serves go there');
  };

  const step = async (): Promise<void> => {
    const { seen, mayTake } = await look();
    if (isStopped) return;
    const held = mayTake ? await takeLease(db, { name: deps.lease, holder: deps.id }, seen) : undefined;
    if (held === undefined) return find(seen);
    if (isStopped) return releaseLease(db, held);
    isStopped = true;
    primary = 'unknown';
    await deps.onTaken(held).then(
      () => void (primary = 'self'),
      (error: unknown) => lose(`it could not become the primary: ${messageOf(error)}`),
    );
  };

  const run = async (): Promise<void> => {
    while (!isStopped) {
      try {
        await step();
      } catch (error) {
        if (isStopped) return;
        if (error instanceof DbError && error.code === 'lease_lost') return lose(messageOf(error));
        log.error({ err: error }, 'the primary could not be looked for; it is tried again');
      }
      await clock.sleep(POLL_MS, stopping.signal);
    }
  };
  const running = run();
  return {
    primary: () => primary,
    stop: () => {
      isStopped = true;
      stopping.abort();
      return running;
    },
  };
}
