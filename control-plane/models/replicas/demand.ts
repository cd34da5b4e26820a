// Requests that find no server of their model wait here until it is worth looking again.
//
// The first one wakes its pool (one row, so the pool starts once, however many callers there are). All of them are woken whenever something may
// have changed: a replica became ready, a request ended, a second passed. Each one then looks for a server again. A wait ends with 503 if no
// replica can be ready in time.
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { WAITING_REQUESTS_MAX, WAITING_REQUESTS_PER_ORG_MAX } from '../../../shared/limits.ts';
import type { Db } from '../../base/db/db.ts';
import type { Deployment } from '../catalog/deployments.ts';
import type { Loads } from './loads.ts';
import * as store from './store.ts';

export interface Wait {
  deployment: Deployment;
  /** The organisation that waits. One organisation cannot fill the queue of a pool. */
  orgId: string;
  /** The time on the monotonic clock when the caller began to wait. */
  sinceMs: number;
  signal: AbortSignal;
  /** True if a server was found and did not take the request. */
  wasRefused: boolean;
  /** True if the tier has servers of the operator's own, which may come free. */
  hasUpstreams: boolean;
}

export interface Demand {
  /**
   * Waits until it is worth looking for a server again. Returns at once if the signal aborts.
   * @throws ServiceError `upstream_unavailable` if no replica can be ready in time
   */
  wait(poolId: string, wait: Wait): Promise<void>;
  /** Wakes all requests that wait, because something may have changed. Each of them looks for a server again. */
  notify(): void;
}

export interface DemandDeps {
  db: Db;
  clock: Clock;
  loads: Pick<Loads, 'noteWaiting' | 'saveOne'>;
  /** The state of the pool, as it was read last. */
  outlook(poolId: string): Outlook;
  /** Called after a commit that made the pool due. */
  nudge(): void;
}

export interface Outlook {
  /** True if replicas are ready or being started. */
  isComing: boolean;
  /** False if the limits of the pool allow no replica. */
  mayStart: boolean;
  /** No replica is started before this time. */
  retryMs: number;
  /** The usual time from a start until a replica is ready. */
  wakeMs: number | undefined;
}

/** Official clients wait at most a minute because of a Retry-After. */
const RETRY_SECONDS_MAX = 60;
/**
 * How soon a request looks again after a server has refused it. Such a server has room in our eyes, and each refusal ends a request, which wakes all
 * others. Without this pause they would ask it again and again.
 */
const REFUSED_MS = 1_000;

export function openDemand({ db, clock, loads, outlook, nudge }: DemandDeps): Demand {
  let changed = Promise.withResolvers<void>();
  /** Requests that wait, by pool and organisation. */
  const ofOrgs = new Map<string, number>();
  const noteOfOrg = (key: string, change: 1 | -1): number => {
    const count = (ofOrgs.get(key) ?? 0) + change;
    if (count === 0) ofOrgs.delete(key);
    else ofOrgs.set(key, count);
    return count;
  };
  const wake = async (poolId: string): Promise<void> => {
    await db.tx('replicas.know', (tx) => store.wakePool(tx, poolId, clock.now()));
    // A plan between the two transactions has not seen this request, so the pool is made due once more.
    await db.tx('replicas.wake', async (tx) => {
      await tx.lock('model_pool', poolId);
      await loads.saveOne(tx, poolId);
      await store.wakePool(tx, poolId, clock.now());
    });
    nudge();
  };
  return {
    wait: async (poolId, { deployment, orgId, sinceMs, signal, wasRefused, hasUpstreams }) => {
      const nowMs = clock.monotonicMs();
      const leftMs = sinceMs + deployment.start_deadline_seconds * 1000 - nowMs;
      refuseHopeless(outlook(poolId), { leftMs, nowMs: clock.now(), hasUpstreams });
      const seen = changed.promise;
      const ofOrg = `${poolId} ${orgId}`;
      const own = noteOfOrg(ofOrg, 1);
      const waiting = loads.noteWaiting(poolId, 1);
      try {
        if (own > WAITING_REQUESTS_PER_ORG_MAX)
          failWaiting(`${WAITING_REQUESTS_PER_ORG_MAX} requests of this organisation wait for this model.`, 1);
        if (waiting > WAITING_REQUESTS_MAX) failWaiting(`${WAITING_REQUESTS_MAX} requests wait for this model.`, 1);
        if (waiting === 1) await wake(poolId);
        await untilAny(clock, { promise: seen, signal, ms: leftMs });
        const restMs = nowMs + Math.min(REFUSED_MS, leftMs) - clock.monotonicMs();
        if (wasRefused && restMs > 0) await clock.sleep(restMs, signal);
      } finally {
        loads.noteWaiting(poolId, -1);
        noteOfOrg(ofOrg, -1);
      }
    },
    notify: () => {
      const before = changed;
      changed = Promise.withResolvers();
      before.resolve();
    },
  };
}

/** Refuses a request that no server can answer in time. @throws ServiceError `upstream_unavailable` */
function refuseHopeless(
  { isComing, mayStart, retryMs, wakeMs }: Outlook,
  { leftMs, nowMs, hasUpstreams }: { leftMs: number; nowMs: number; hasUpstreams: boolean },
): void {
  if (leftMs <= 0) failWaiting('No server for this model was ready in time.', (wakeMs ?? 30_000) / 1000);
  if (!isComing && !mayStart && !hasUpstreams) failWaiting('This model is switched off.', RETRY_SECONDS_MAX);
  const againMs = retryMs - nowMs;
  if (!isComing && againMs > leftMs) failWaiting('No server for this model can be started now.', againMs / 1000);
}

function failWaiting(why: string, seconds: number): never {
  const retryAfterSeconds = Math.min(Math.max(1, Math.ceil(seconds)), RETRY_SECONDS_MAX);
  return fail('upstream_unavailable', {
    detail: `${why} Nothing was charged. Send the request again in ${retryAfterSeconds} s.`,
    retryAfterSeconds,
  });
}

/** Resolves when the promise does, when the signal aborts, or after `ms`. */
async function untilAny(
  clock: Clock,
  { promise, signal, ms }: { promise: Promise<void>; signal: AbortSignal; ms: number },
): Promise<void> {
  const over = Promise.withResolvers<void>();
  const end = (): void => over.resolve();
  signal.addEventListener('abort', end);
  const cancel = clock.after(ms, end);
  if (signal.aborted) end();
  await Promise.race([promise, over.promise]);
  cancel();
  signal.removeEventListener('abort', end);
}
