// Decides the next step of an instance from its facts. Pure: no I/O, no clock.
import { GUEST_SILENT_MS_MAX, STARTING_MS_MAX, STOPPING_MS_MAX } from '../../../shared/limits.ts';
import type { ErrorCode } from '../../../shared/errors.ts';
import { FAILURE_WORDS, type ObservedWorkload } from '../../../shared/protocol/workload.ts';
import type { InstanceState } from '../../../shared/states.ts';
import { notInQuiet, type Quiet } from './quiet.ts';

/** A host must acknowledge a new workload within this time. Otherwise another host is tried. */
export const ACKNOWLEDGE_MS_MAX = 60_000;
/** The host reports a container that stays silent. If the host has not reported it a little later, the host is given up. */
const CONTAINER_STARTS_MS_MAX = GUEST_SILENT_MS_MAX + 30_000;
export const HOUR_MS = 3_600_000;
/** Time between two probes of the SSH path while an instance starts. */
const PROBE_AGAIN_MS = 1_000;
/**
 * An instance that ends with its program goes on for this time after the report of that end. The last lines are on their way to the log then, and
 * nobody can read them any more once the container is removed. The time is not charged.
 */
export const LOG_ARRIVES_MS = 1_000;
/** A good probe that is at most this old counts when the container begins to run. */
const REACHED_MS_MAX = 10_000;

export interface Facts {
  status: InstanceState;
  /** When the status began. */
  enteredMs: number;
  /** When the workload was placed on the present host; null before the first placement. */
  placedMs: number | null;
  /** When the present host first reported that the container starts; null before that. */
  startingMs: number | null;
  /** When the SSH path last worked; null before the first time. */
  reachedMs: number | null;
  /** True if the instance has a runtime limit. */
  endsByItself: boolean;
  /** True if the customer named the image. Error texts may then name it. */
  ownImage: boolean;
  triedMachines: number;
  /** When its runtime limit ends; null without a limit, and before it runs. */
  autoTerminateMs: number | null;
  /** When the host reported that the program has ended with which the instance ends; null while it runs, and for all other instances. */
  exitedMs: number | null;
  /** The last report of the host; null before the first one. */
  observed: ObservedWorkload | null;
  /** Set while GPUs are broken. */
  gpuGrace?: GpuGrace | undefined;
  quiet: Quiet;
}

export interface GpuGrace {
  fault: string;
  /** When the instance is given up. */
  untilMs: number;
  /** When the fault ends, because the host has reported the GPUs whole; null if it has not. */
  endsMs: number | null;
}

export type Step =
  /** Place the instance on a host, for the first time or after a host has failed. */
  | { do: 'place'; because: string | null }
  | { do: 'fail'; code: ErrorCode; detail: string }
  | { do: 'start' }
  | { do: 'probe'; againMs: number }
  /** Probe the SSH path while the container is still starting. */
  | { do: 'probe-early'; progress: string; untilMs: number }
  | { do: 'run' }
  /** The broken GPUs of a running rental are whole again. */
  | { do: 'mend' }
  /** The container of a running rental has failed. */
  | { do: 'lose'; reason: string }
  /** The host has ended a rental that should run: a stop from the supplier's side (specification 6.1). */
  | { do: 'stop'; reason: string }
  /** The runtime limit of the instance is over. */
  | { do: 'expire' }
  /** The program of the instance has ended, and the instance with it. */
  | { do: 'exit' }
  | { do: 'finish' }
  | { do: 'note'; progress: string; untilMs: number }
  | { do: 'wait'; untilMs: number | null };

/** Failures that would be the same on another host. */
const CUSTOMERS_FAULT: Partial<Record<NonNullable<ObservedWorkload['failure_code']>, ErrorCode>> = {
  image_pull_failed: 'image_unavailable',
  image_unusable: 'image_unavailable',
  no_command: 'image_unavailable',
  guest_silent: 'image_unavailable',
};
/** What customers read if the container of a batch job has died: its program had begun, so no host starts it again. */
const DEATHS: Partial<Record<NonNullable<ObservedWorkload['failure_code']>, string>> = {
  out_of_memory:
    'The container was killed, because it needed more memory than the host gives it. The program was not started again.',
  container_died: 'The container died on its host, and the program with it. The program was not started again.',
};
/** Number of hosts that a launch is tried on before it fails. */
const MACHINES_TRIED_MAX = 3;

export function plan(facts: Facts, nowMs: number): Step {
  switch (facts.status) {
    case 'allocating':
      return planAllocating(facts, nowMs);
    case 'starting':
      return planStarting(facts, nowMs);
    case 'running':
    case 'unreachable':
      return planRunning(facts, nowMs);
    case 'stopping':
      return planStopping(facts, nowMs);
    case 'stopped':
    case 'terminated':
    case 'error':
      return { do: 'wait', untilMs: null };
  }
}

function planAllocating(facts: Facts, nowMs: number): Step {
  const { placedMs, observed } = facts;
  if (placedMs === null) return { do: 'place', because: null };
  if (observed !== null) return { do: 'start' };
  const acknowledgeMs = notInQuiet(placedMs, placedMs + ACKNOWLEDGE_MS_MAX, facts.quiet);
  return nowMs >= acknowledgeMs ? elsewhere(facts, 'the host did not answer') : { do: 'wait', untilMs: acknowledgeMs };
}

function planStarting(facts: Facts, nowMs: number): Step {
  const { observed } = facts;
  if (observed?.phase === 'failed') {
    // Another host would run the program a second time.
    if (facts.exitedMs !== null) return { do: 'exit' };
    const death = deathOf(observed);
    if (death !== undefined) return { do: 'fail', code: 'operation_failed', detail: death };
    if (!facts.ownImage) return elsewhere(facts, FAILURE_WORDS[observed.failure_code ?? 'start_failed']);
    const code = observed.failure_code === null ? undefined : CUSTOMERS_FAULT[observed.failure_code];
    const detail = observed.detail ?? 'the container could not be started';
    return code === undefined ? elsewhere(facts, detail) : { do: 'fail', code, detail };
  }
  const gone = goneReason(observed);
  if (gone !== undefined) return elsewhere(facts, gone);
  if (facts.gpuGrace !== undefined) return elsewhere(facts, `the host found a GPU broken: ${facts.gpuGrace.fault}`);
  const deadlineMs = startDeadline(facts);
  if (nowMs >= deadlineMs) {
    // Another host would run the program a second time.
    if (facts.exitedMs !== null) return { do: 'exit' };
    return elsewhere(facts, 'the instance did not start in time');
  }
  const isReached = wasReached(facts, nowMs);
  if (observed?.phase === 'running') return isReached ? { do: 'run' } : { do: 'probe', againMs: PROBE_AGAIN_MS };
  if (observed === null) return { do: 'wait', untilMs: deadlineMs };
  const note = { progress: progressOf(observed), untilMs: deadlineMs };
  return hasEndpoint(observed) && !isReached ? { do: 'probe-early', ...note } : { do: 'note', ...note };
}

/**
 * The latest time at which a launch with this runtime limit has released its GPUs, if it is placed at `placedMs` and not placed again. It is the
 * sum of the longest times for acknowledgement, start, run and stop.
 */
export function latestEnd(placedMs: number, hours: number): number {
  return placedMs + ACKNOWLEDGE_MS_MAX + STARTING_MS_MAX + hours * HOUR_MS + STOPPING_MS_MAX;
}

/**
 * The deadline of the start. A pull may take long, but a container that starts takes seconds. A launch with a runtime limit may have borrowed
 * GPUs, so its deadline must not exceed what `latestEnd` promises.
 */
function startDeadline(facts: Facts): number {
  const { enteredMs, placedMs, endsByItself, startingMs, observed } = facts;
  const acknowledgedMs = endsByItself ? Math.min(enteredMs, (placedMs ?? enteredMs) + ACKNOWLEDGE_MS_MAX) : enteredMs;
  const startedMs = acknowledgedMs + STARTING_MS_MAX;
  const isStarting = observed?.phase === 'starting' && startingMs !== null;
  const deadlineMs = isStarting ? Math.min(startedMs, startingMs + CONTAINER_STARTS_MS_MAX) : startedMs;
  const heldMs = notInQuiet(placedMs ?? enteredMs, deadlineMs, facts.quiet);
  return endsByItself ? Math.min(heldMs, startedMs) : heldMs;
}

/** True if the SSH path worked a short time ago, on the present host. */
function wasReached({ reachedMs, placedMs }: Facts, nowMs: number): boolean {
  return reachedMs !== null && reachedMs > (placedMs ?? 0) && nowMs - reachedMs <= REACHED_MS_MAX;
}

/** True if an early probe makes sense. The holder answers before the container runs, but a probe during a pull would be too old at its end. */
function hasEndpoint({ phase, host_key }: ObservedWorkload): boolean {
  return host_key !== null && (phase === 'creating' || phase === 'starting');
}

function planRunning(facts: Facts, nowMs: number): Step {
  const { observed, autoTerminateMs, exitedMs, gpuGrace, quiet } = facts;
  // The runtime limit is checked first: a host without a link stops the container at that limit by itself.
  if (autoTerminateMs !== null && nowMs >= autoTerminateMs) return { do: 'expire' };
  const gone = goneReason(observed);
  if (gone !== undefined) return { do: 'stop', reason: gone };
  if (exitedMs !== null) {
    const untilMs = exitedMs + LOG_ARRIVES_MS;
    return nowMs >= untilMs ? { do: 'exit' } : { do: 'wait', untilMs: Math.min(untilMs, autoTerminateMs ?? untilMs) };
  }
  if (observed?.phase === 'failed') {
    const detail = facts.ownImage ? observed.detail : null;
    return { do: 'lose', reason: deathOf(observed) ?? detail ?? 'the container failed' };
  }
  if (gpuGrace === undefined) return { do: 'wait', untilMs: autoTerminateMs };
  const { endsMs } = gpuGrace;
  if (endsMs !== null)
    return nowMs >= endsMs ? { do: 'mend' } : { do: 'wait', untilMs: Math.min(endsMs, autoTerminateMs ?? endsMs) };
  // A host that has mended the GPU while the control plane was away can report that now.
  const graceMs = Math.max(gpuGrace.untilMs, quiet.untilMs);
  if (nowMs >= graceMs) {
    const reason = `A GPU of this instance broke and was not mended in time: ${gpuGrace.fault}. That time was not charged.`;
    return { do: 'lose', reason };
  }
  return { do: 'wait', untilMs: Math.min(graceMs, autoTerminateMs ?? graceMs) };
}

function planStopping(facts: Facts, nowMs: number): Step {
  const deadlineMs = facts.enteredMs + STOPPING_MS_MAX;
  const gone = goneReason(facts.observed) !== undefined;
  return gone || nowMs >= deadlineMs ? { do: 'finish' } : { do: 'wait', untilMs: deadlineMs };
}

/** Why the program of a batch job cannot come to its end; undefined if its container has not died. */
function deathOf({ failure_code: code }: ObservedWorkload): string | undefined {
  return code === null ? undefined : DEATHS[code];
}

/** Why the container is gone; undefined if it may still be there. */
function goneReason(observed: ObservedWorkload | null): string | undefined {
  switch (observed?.phase) {
    case 'stopped':
      return 'the container was stopped on the host';
    case 'removed':
    case 'missing':
      return 'the container vanished from the host';
    default:
      return undefined;
  }
}

function elsewhere(facts: Facts, because: string): Step {
  if (facts.triedMachines < MACHINES_TRIED_MAX) return { do: 'place', because };
  return {
    do: 'fail',
    code: 'operation_failed',
    detail: `Tried ${facts.triedMachines} hosts; on the last one, ${because}.`,
  };
}

function progressOf(observed: ObservedWorkload): string {
  const { pull, phase } = observed;
  if (phase !== 'pulling') return `${phase} the container`;
  if (pull === null || pull.total_bytes === 0) return 'pulling the image';
  const mib = (bytes: number): string => (bytes / 1024 ** 2).toFixed(1);
  return `pulling the image: ${mib(pull.done_bytes)} of ${mib(pull.total_bytes)} MiB`;
}
