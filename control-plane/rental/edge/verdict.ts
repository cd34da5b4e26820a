// Pure: what a series of probes means. When a rental counts as unreachable, when it has recovered, when its grace is over.
import { GRACE_MS } from '../../../shared/limits.ts';

/** Between two looks while all is well; spread by +-20 % so that probes do not come in waves. */
export const PROBE_PERIOD_MS = 30_000;
/** After a failure the next look comes soon. */
export const REPROBE_MS = 5_000;
/**
 * At the first failure of a machine so many others are looked at at once: whether many fail together must be known before the one
 * is confirmed, and waiting for their turn takes longer than that. Each of them that fails spreads the alarm further.
 */
export const ALARMED_MAX = 20;
/** Failures in a row, and how long they must span, before an outage is confirmed. */
const FAILURES_MIN = 3;
const FAILURES_SPAN_MS_MIN = 20_000;
/** Good looks in a row that end an outage. */
const SUCCESSES_MIN = 2;
/** After a start of the control plane nobody is confirmed: the agents are still coming back. */
export const QUIET_AFTER_START_MS = 120_000;
/** When this many machines and this part of all fail together, the fault is probably ours: hold the verdict, but not for ever. */
const TOGETHER_MACHINES_MIN = 5;
const TOGETHER_PART_MIN = 0.3;
const TOGETHER_HOLD_MS_MAX = 10 * 60_000;

export interface Series {
  firstFailureMs: number | null;
  failures: number;
  successes: number;
}

/** The series after one more look. */
export function afterLook(series: Series, ok: boolean, nowMs: number): Series {
  if (ok) return { firstFailureMs: null, failures: 0, successes: series.successes + 1 };
  return { firstFailureMs: series.firstFailureMs ?? nowMs, failures: series.failures + 1, successes: 0 };
}

export interface FleetView {
  /** Since when so many fail together; null when they do not. */
  togetherSinceMs: number | null;
  startedMs: number;
}

export type Verdict = 'as it is' | 'confirm' | 'recover' | 'give up';

/** `unreachableSinceMs` is null while the rental counts as running. */
export function verdict(series: Series, unreachableSinceMs: number | null, fleet: FleetView, nowMs: number): Verdict {
  if (unreachableSinceMs !== null) {
    if (series.successes >= SUCCESSES_MIN) return 'recover';
    return series.failures > 0 && nowMs - unreachableSinceMs >= GRACE_MS ? 'give up' : 'as it is';
  }
  if (!isDown(series, nowMs)) return 'as it is';
  if (nowMs - fleet.startedMs < QUIET_AFTER_START_MS) return 'as it is';
  const held = fleet.togetherSinceMs !== null && nowMs - fleet.togetherSinceMs < TOGETHER_HOLD_MS_MAX;
  return held ? 'as it is' : 'confirm';
}

/** Looks have failed for long enough. What may still keep that from being confirmed is whose fault it is. */
export function isDown({ firstFailureMs, failures }: Series, nowMs: number): boolean {
  return firstFailureMs !== null && failures >= FAILURES_MIN && nowMs - firstFailureMs >= FAILURES_SPAN_MS_MIN;
}

/** True where so many machines fail at once that our own network is the likelier cause. */
export function failsTogether(machines: number, failingMachines: number): boolean {
  return failingMachines >= TOGETHER_MACHINES_MIN && failingMachines > machines * TOGETHER_PART_MIN;
}
