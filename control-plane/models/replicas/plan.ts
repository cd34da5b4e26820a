// Decides what a pool and each of its replicas need next. Pure: no I/O, no clock.
//
// A pool is one tier of a model. It has `min` to `max` replicas, each of which answers `perReplica` requests at once.
//
//   needed = (requests in progress + requests that wait) / perReplica, rounded up
//   start   until `needed` replicas, or `min`, are ready or starting; all at once, because a backlog must not wait for one start after another
//   drain   one replica after `idleMs` in which fewer were needed than there are; the next one after another `idleMs`
//
// Example: perReplica 4, min 0, max 3, idle 10 minutes.
//   10:00  9 requests come while nothing runs      needed 3: three replicas start
//   10:01  they are ready and answer
//   10:05  2 requests are in progress              needed 1, three are ready: the pool has too many since 10:05
//   10:15  still the same                          one replica drains: it gets no new request and ends after its last one
//   10:25  and the next
//   10:30  the last request ends; no other comes   the last replica drains at 10:40
//
// What must never happen: more than `max` replicas run; a replica that answers is ended; two processes start a replica for the same request (the
// pool's row is locked meanwhile).
import type { InstanceState, ReplicaState } from '../../../shared/states.ts';
import { isQuiet, notInQuiet, type Quiet } from '../../rental/instances/quiet.ts';

export interface PoolFacts {
  /** Undefined if the file of models has no deployment for this tier any more. */
  wanted: { min: number; max: number; perReplica: number; idleMs: number } | undefined;
  replicas: readonly PlannedReplica[];
  waiting: number;
  /** The newest request of any process. */
  lastRequestMs: number;
  /** False after an absence: then the numbers of requests above are too small (`isSteady` in loads.ts). */
  isLoadKnown: boolean;
  busyMs: number;
  retryMs: number;
}

export interface PlannedReplica {
  id: string;
  state: ReplicaState;
  /** Requests in progress. */
  open: number;
  /** True if the replica was started for another deployment than the one in the present file. */
  isOutdated: boolean;
  createdMs: number;
}

export interface PoolStep {
  /** How many replicas to start. */
  start: number;
  /** The replica to drain. */
  drain: string | undefined;
  /** The time at which all replicas were last needed. */
  busyMs: number;
}

export function planPool({ wanted, ...facts }: PoolFacts, nowMs: number): PoolStep {
  const { replicas } = facts;
  const ready = replicas.filter(({ state }) => state === 'ready');
  const isDraining = replicas.some(({ state }) => state === 'draining');
  const drainOne = (from: readonly PlannedReplica[]): string | undefined => (isDraining ? undefined : leastUsed(from));
  if (wanted === undefined) return { start: 0, drain: drainOne(ready), busyMs: nowMs };
  const open = ready.reduce((sum, replica) => sum + replica.open, 0);
  const needed = Math.ceil((open + facts.waiting) / wanted.perReplica);
  const live = replicas.filter(({ state }) => state === 'ready' || state === 'starting');
  const current = live.filter(({ isOutdated }) => !isOutdated);
  const target = Math.min(Math.max(needed, wanted.min), wanted.max);
  const room = wanted.max - replicas.filter(({ state }) => state !== 'ended').length;
  const missing = Math.max(0, Math.min(target - current.length, room));
  const start = nowMs < facts.retryMs ? 0 : missing;
  // Requests that come and go between two looks keep a single replica.
  const lastBusyMs = live.length === 1 ? Math.max(facts.busyMs, facts.lastRequestMs) : facts.busyMs;
  const busyMs = needed >= live.length ? nowMs : lastBusyMs;
  const step = { start, busyMs };
  if (ready.length > wanted.max) return { ...step, drain: drainOne(ready) };
  const outdated = ready.filter(({ isOutdated }) => isOutdated);
  const hasReadyCurrent = current.some(({ state }) => state === 'ready');
  const hasNoRoomForCurrent = room <= 0 && current.length === 0;
  const mayReplace = hasReadyCurrent || hasNoRoomForCurrent || target === 0;
  if (outdated.length > 0 && mayReplace) return { ...step, drain: drainOne(outdated) };
  // One that still starts replaces none that is ready.
  const isTooMany = facts.isLoadKnown && ready.length > Math.max(needed, wanted.min) && nowMs >= busyMs + wanted.idleMs;
  if (!isTooMany || isDraining) return { ...step, drain: undefined };
  // The next one is drained only after another idle time.
  return { start, drain: drainOne(ready), busyMs: nowMs };
}

export interface ReplicaFacts {
  state: ReplicaState;
  /** The instance of the replica; undefined before the replica has one. */
  instance: { status: InstanceState; reason: string | null } | undefined;
  createdMs: number;
  enteredMs: number;
  startDeadlineMs: number;
  /** Why the server was not ready when it was asked last. */
  unreadyBecause: string | null;
  healthFailures: number;
  /** True if no process has a request in progress there, and each process knows that the replica drains. */
  isUnused: boolean;
  quiet: Quiet;
}

export type ReplicaStep =
  | { do: 'launch' }
  /** Ask the server for a real answer. */
  | { do: 'ask' }
  /** Ask the server whether it is well. */
  | { do: 'check' }
  | { do: 'fail'; reason: string }
  /** The last request of the replica is answered: end the replica. */
  | { do: 'end' }
  /** Give back the machine. */
  | { do: 'release' }
  | { do: 'wait'; ms: number };

/** Health checks that fail in a row before a replica is given up. */
const HEALTH_FAILURES_MAX = 3;
/** After this time, each process has read that the replica drains, and has written the requests that it had sent there before. */
const DRAIN_MS_MIN = 3_000;
/** The longest stream lasts 30 minutes. */
const DRAIN_MS_MAX = 31 * 60_000;
const WAIT_MS = 1_000;

export function planReplica(facts: ReplicaFacts, nowMs: number): ReplicaStep {
  const { state, instance } = facts;
  if (state === 'ended') return { do: 'release' };
  if (state === 'starting') return planStart(facts, nowMs);
  if (instance?.status !== 'running') return { do: 'fail', reason: lostReason(instance) };
  if (state === 'draining') {
    const drainedMs = nowMs - facts.enteredMs;
    const isOver = (facts.isUnused && drainedMs >= DRAIN_MS_MIN) || drainedMs >= DRAIN_MS_MAX;
    return isOver ? { do: 'end' } : { do: 'wait', ms: WAIT_MS };
  }
  const isJudged = !isQuiet(facts.enteredMs, facts.quiet, nowMs);
  if (facts.healthFailures >= HEALTH_FAILURES_MAX && isJudged)
    return { do: 'fail', reason: 'its server does not answer any more' };
  return { do: 'check' };
}

/** What a pool knows of its failed starts: how many were in a row, and when the next start may be. */
export interface Failures {
  failures: number;
  retryMs: number;
}

/**
 * The failed starts of a pool after another replica has failed. The loss of a replica that was ready is no failed start. A host that dies takes
 * several starts with it: most of them fail before the next start may be, and do not count.
 */
export function failuresWith(
  state: ReplicaState,
  { failures, retryMs, nowMs }: Failures & { nowMs: number },
): Failures {
  if (state !== 'starting' || retryMs > nowMs) return { failures, retryMs };
  return { failures: failures + 1, retryMs: nowMs + retryAfterMs(failures + 1) };
}

/** The time before the next start, by the number of starts that failed in a row. The first retry is at once, on another machine. */
function retryAfterMs(failures: number): number {
  return [0, 0, 5_000, 15_000, 60_000][failures] ?? 300_000;
}

function planStart({ instance, ...facts }: ReplicaFacts, nowMs: number): ReplicaStep {
  if (instance === undefined) return { do: 'launch' };
  const { status } = instance;
  if (status !== 'allocating' && status !== 'starting' && status !== 'running')
    return { do: 'fail', reason: lostReason(instance) };
  if (nowMs >= notInQuiet(facts.createdMs, facts.createdMs + facts.startDeadlineMs, facts.quiet)) {
    const seconds = facts.startDeadlineMs / 1000;
    const why = facts.unreadyBecause ?? `its instance is still ${status}`;
    return { do: 'fail', reason: `it was not ready after ${seconds} s: ${why}` };
  }
  return status === 'running' ? { do: 'ask' } : { do: 'wait', ms: WAIT_MS };
}

function lostReason(instance: ReplicaFacts['instance']): string {
  if (instance === undefined) return 'its instance is gone';
  return instance.reason ?? `its instance is ${instance.status}`;
}

/** The replica with the fewest requests; among equals the newest. */
function leastUsed(replicas: readonly PlannedReplica[]): string | undefined {
  return replicas.toSorted((a, b) => a.open - b.open || b.createdMs - a.createdMs || (a.id < b.id ? 1 : -1))[0]?.id;
}
