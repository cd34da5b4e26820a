// What this process knows of the requests that it serves: how many wait for a replica, how many each replica answers, and which replicas fail
// them. It is written to the database for the primary, which adds up what all processes know.
import type { Clock } from '../../../shared/clock.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import * as store from './store.ts';

export interface Loads {
  /** Notes a request to a replica. */
  enter(poolId: string, replicaId: string): void;
  /** Notes its end. */
  leave(poolId: string, replicaId: string): void;
  /** Notes a request that begins to wait (1) or has waited (-1). Returns how many wait now. */
  noteWaiting(poolId: string, change: 1 | -1): number;
  /** The number of requests that wait, for each pool. */
  waiting(): { poolId: string; count: number }[];
  /** Writes one pool in the caller's transaction. */
  saveOne(tx: Tx, poolId: string): Promise<void>;
  /**
   * Writes what has changed. `readMs`: the replicas were read at this time. A pool that drains is always written, because its replica ends only
   * after each process has seen that.
   */
  save(readMs: number, drains: (poolId: string) => boolean): Promise<void>;
  /**
   * False for LOAD_MS_MAX after this process could not write for a while. Its own row, and the rows of processes that were away for the same reason,
   * look as if they had died. Until they are written again, nobody knows whether a replica is in use.
   */
  isSteady(): boolean;
}

/** While a row says that there are requests or suspects, it is written at least once in this time. */
const RENEW_MS = 4_000;
/** A row that was not renewed for longer belongs to a process that has died. */
export const LOAD_MS_MAX = 15_000;
/** The loop writes each second. If nothing could be written for longer, the process or the database was away. */
const AWAY_MS_MIN = 5_000;

interface Pool {
  waiting: number;
  open: Map<string, number>;
  lastRequestMs: number;
  savedMs: number;
  savedSuspects: string;
  isChanged: boolean;
}

interface LoadsDeps {
  db: Db;
  clock: Clock;
  processId: string;
  /** The replicas of the pool that this process suspects. */
  suspectsOf(poolId: string): string[];
}

export function openLoads({ db, clock, processId, suspectsOf }: LoadsDeps): Loads {
  const pools = new Map<string, Pool>();
  /** The replicas were read at this time. Before the first reading there are none that a request could be sent to. */
  let seenMs = clock.now();
  let savedMs = seenMs;
  let steadyFromMs = savedMs;
  /** A clock that was set back counts as an absence too. */
  const wasAway = (nowMs: number): boolean => nowMs - savedMs > AWAY_MS_MIN || nowMs < savedMs;
  const noteSaved = (): void => {
    const nowMs = clock.now();
    if (wasAway(nowMs)) steadyFromMs = nowMs;
    savedMs = nowMs;
  };
  const poolOf = (poolId: string): Pool => {
    const saved = { savedMs: 0, savedSuspects: '', isChanged: true };
    const pool = pools.get(poolId) ?? { waiting: 0, open: new Map(), lastRequestMs: 0, ...saved };
    pools.set(poolId, pool);
    return pool;
  };
  const changed = (poolId: string): Pool =>
    Object.assign(poolOf(poolId), { lastRequestMs: clock.now(), isChanged: true });
  const rowOf = (poolId: string): store.LoadRow => {
    const { waiting, open, lastRequestMs } = poolOf(poolId);
    return {
      pool_id: poolId,
      process_id: processId,
      waiting,
      open: Object.fromEntries(open),
      suspects: suspectsOf(poolId),
      last_request_ms: lastRequestMs,
      seen_ms: seenMs,
    };
  };
  return {
    enter: (poolId, replicaId) => {
      const { open } = changed(poolId);
      open.set(replicaId, (open.get(replicaId) ?? 0) + 1);
    },
    leave: (poolId, replicaId) => {
      const { open } = changed(poolId);
      const left = (open.get(replicaId) ?? 1) - 1;
      if (left === 0) open.delete(replicaId);
      else open.set(replicaId, left);
    },
    noteWaiting: (poolId, change) => {
      const pool = changed(poolId);
      pool.waiting += change;
      return pool.waiting;
    },
    waiting: () => [...pools].map(([poolId, { waiting: count }]) => ({ poolId, count })),
    saveOne: (tx, poolId) => store.saveLoad(tx, rowOf(poolId)),
    save: async (readMs, drains) => {
      seenMs = readMs;
      const isDue = (poolId: string, { isChanged, waiting, open, savedMs, savedSuspects }: Pool): boolean => {
        const suspects = suspectsOf(poolId);
        if (isChanged || drains(poolId) || suspects.join() !== savedSuspects) return true;
        return waiting + open.size + suspects.length > 0 && seenMs >= savedMs + RENEW_MS;
      };
      const due = [...pools].filter(([poolId, pool]) => isDue(poolId, pool));
      for (const [poolId, pool] of due)
        Object.assign(pool, { isChanged: false, savedMs: seenMs, savedSuspects: suspectsOf(poolId).join() });
      await Promise.all(due.map(([poolId]) => db.tx('replicas.loads', (tx) => store.saveLoad(tx, rowOf(poolId)))));
      noteSaved();
    },
    isSteady: () => !wasAway(clock.now()) && clock.now() >= steadyFromMs + LOAD_MS_MAX,
  };
}
