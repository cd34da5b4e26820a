// Waiting for a lease and keeping it, on PostgreSQL. See lease.ts for the rules.
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import { messageOf } from '../../../shared/errors.ts';
import { type Db, DbError, isDatabaseAway } from './db.ts';
import {
  type Held,
  isFree,
  LEASE_MS,
  RENEW_MS,
  RENEWED_MS_MAX,
  renewLease,
  seeLease,
  type SeenLease,
} from './lease.ts';
import { nameOf } from './members.ts';

/** Time between two reads of a lease that another process holds. */
export const POLL_MS = 500;

/** Another process that held a lease, as a candidate has seen it. */
export interface Former {
  holder: string;
  /** False: its lease ran out. */
  hasGivenBack: boolean;
  /** When the candidate saw the lease change last, on its monotonic clock: the last renewal, or that the lease was given back. */
  sinceMs: number;
}

/** What a candidate sees of a lease. */
export interface Sight {
  seen: SeenLease | undefined;
  /** Whether it has changed since the read before. False at the first read. */
  hasChanged: boolean;
  /** Whether the candidate may take it now: nobody holds it, or its holder has not renewed it for LEASE_MS. */
  mayTake: boolean;
  /** The last holder that was seen; undefined if nobody has held the lease since the first read. */
  former: Former | undefined;
}

/** Reads a lease again and again. The time without a change is measured on our own clock, from the first answer of the server. */
export function openSight(db: Db, name: string, clock: Clock): () => Promise<Sight> {
  let before: { seen: SeenLease | undefined; sinceMs: number } | undefined;
  let holder: string | undefined;
  return async () => {
    const seen = await seeLease(db, name);
    const nowMs = clock.monotonicMs();
    const hasChanged = before !== undefined && !isSameLease(seen, before.seen);
    const sinceMs = before === undefined || hasChanged ? nowMs : before.sinceMs;
    before = { seen, sinceMs };
    const hasGivenBack = isFree(seen);
    if (!hasGivenBack) holder = seen?.holder;
    const former = holder === undefined ? undefined : { holder, hasGivenBack, sinceMs };
    return { seen, hasChanged, mayTake: hasGivenBack || nowMs - sinceMs >= LEASE_MS, former };
  };
}

function isSameLease(a: SeenLease | undefined, b: SeenLease | undefined): boolean {
  return a?.holder === b?.holder && a?.epoch === b?.epoch && a?.beat === b?.beat;
}

/** Calls `onLost` once, if another process has the lease or if ours was not renewed in time for any reason. */
export function keepRenewing(
  keeper: Pick<Db, 'tx' | 'read'>,
  held: Held,
  { clock, log }: { clock: Clock; log: Log },
  onLost: (why: string) => void,
): () => void {
  let cancelNext = (): void => undefined;
  let cancelDeadline = (): void => undefined;
  let isOver = false;
  /** Why the lease is not renewed, as far as it is known. */
  let obstacle = '';
  const stop = (): void => {
    isOver = true;
    cancelNext();
    cancelDeadline();
  };
  const lose = (why: string): void => {
    if (isOver) return;
    stop();
    onLost(why);
  };
  const watch = (fromMs: number): void => {
    cancelDeadline();
    const leftMs = RENEWED_MS_MAX - (clock.monotonicMs() - fromMs);
    cancelDeadline = clock.after(leftMs, () =>
      lose(`the lease was not renewed for ${RENEWED_MS_MAX / 1000} s${obstacle}`),
    );
  };
  const renew = async (): Promise<void> => {
    const startedMs = clock.monotonicMs();
    if (obstacle === '') obstacle = ', because the database did not answer';
    try {
      if (!(await renewLease(keeper, held))) return lose(await takenText(keeper, held));
      obstacle = '';
      if (!isOver) watch(startedMs);
    } catch (error) {
      if (error instanceof DbError && error.code === 'lease_lost') return lose(await takenText(keeper, held));
      obstacle = obstacleOf(error);
      if (!isDatabaseAway(error)) log.error({ err: error }, 'the lease could not be renewed; it will be retried');
    }
    if (!isOver) cancelNext = clock.after(RENEW_MS, () => void renew());
  };
  watch(clock.monotonicMs());
  cancelNext = clock.after(RENEW_MS, () => void renew());
  return stop;
}

/** Reads need no lease. A process that gets no answer here ends when it could have renewed no more. */
async function takenText(db: Pick<Db, 'read'>, { name }: Held): Promise<string> {
  const seen = await seeLease(db, name).catch(() => undefined);
  const who = seen === undefined || isFree(seen) ? '' : ` (${await nameOf(db, seen.holder)})`;
  return `another control plane${who} has taken this database over`;
}

function obstacleOf(error: unknown): string {
  if (!isDatabaseAway(error)) return `: ${messageOf(error)}`;
  return `, because the database could not be reached: ${messageOf(error instanceof DbError ? error.cause : error)}`;
}
