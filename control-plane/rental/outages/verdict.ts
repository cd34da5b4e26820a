// Pure: what a series of looks means. When a rental counts as unreachable, when it has recovered, when its grace is over.
//
// Two ways lead to an outage, and no tenant or stranger can open either of them:
// - The host is silent: its link is gone or a ping was missed, and looks fail too.
// - The host answers, but its holder does not: the holder is replaced first, which takes the host some seconds. What still fails after
//   that is an outage.
// Example: a host freezes at 12:00:00; it answered a ping at 11:59:52. The next ping is missed at 12:00:06, looks at its rentals fail at
// 12:00:11 and 12:00:18, and with the second the outage is confirmed, since 11:59:52. It wakes at 12:01:02 and answers; the looks at
// 12:01:02 and 12:01:04 are good: the rental runs again, and is charged from 12:01:02.
import { GRACE_MS } from '../../../shared/limits.ts';

/** Between two looks while all is well; spread by +-20 % so that probes do not come in waves. */
export const PROBE_PERIOD_MS = 30_000;
/** Between two looks while a rental fails, or has not yet recovered. */
export const REPROBE_MS = 2_000;
/**
 * At the first failure of a machine so many others are looked at at once: whether many fail together must be known before the one
 * is confirmed, and waiting for their turn takes longer than that. Each of them that fails spreads the alarm further.
 */
export const ALARMED_MAX = 20;
/** Failures in a row that confirm an outage of a silent host: the silence is the other sign. */
const FAILURES_SILENT_MIN = 2;
/** The same for a host that answers. */
const FAILURES_MIN = 3;
/** An outage is no shorter than this: an agent that is restarted is back by then. */
const SPAN_MS_MIN = 20_000;
/** The last proof of life before a failure is no older than a ping that was missed, or two periods of looks. */
const LIFE_MS_MAX = 2 * PROBE_PERIOD_MS;
/** A link that is up for so long is that of an agent that knows its holders. */
export const SETTLED_MS = 10_000;
/** A host has replaced a holder by then. */
const REPAIR_MS_MAX = 10_000;
/** Good looks in a row that end an outage. */
const SUCCESSES_MIN = 2;
/** After a start of the control plane nobody is confirmed: the agents are still coming back. */
export const QUIET_AFTER_START_MS = 120_000;
/** When this many machines and this part of all fail together, the fault is probably ours: hold the verdict, but not for ever. */
const TOGETHER_MACHINES_MIN = 5;
const TOGETHER_PART_MIN = 0.3;
const TOGETHER_HOLD_MS_MAX = 10 * 60_000;

export interface Series {
  /** When the first look of this series of failures began, or the host itself said that its holder does not answer. */
  firstFailureMs: number | null;
  failures: number;
  /** The last proof of life before the failures; null while looks are good. */
  lifeMs: number | null;
  /** When the host was told to replace the holder. */
  repairMs: number | null;
  /** When the first look of this series of successes was good. */
  firstSuccessMs: number | null;
  successes: number;
}

export interface Look {
  ok: boolean;
  startMs: number;
  endMs: number;
  /** The last proof of life that is known when the look is over. */
  lifeMs: number | null;
  /** When the host itself said that its holder does not answer; null if it has not since the last good look. */
  hostFailedMs: number | null;
}

/** The series after one more look. */
export function afterLook(series: Series, look: Look): Series {
  if (look.ok) {
    const firstSuccessMs = series.firstSuccessMs ?? look.endMs;
    return { ...WELL, firstSuccessMs, successes: series.successes + 1 };
  }
  const hostSaid = series.failures === 0 && look.hostFailedMs !== null;
  const firstFailureMs = series.firstFailureMs ?? look.hostFailedMs ?? look.startMs;
  return {
    firstFailureMs,
    failures: series.failures + (hostSaid ? 2 : 1),
    // What was alive during the failures does not make them later.
    lifeMs: series.lifeMs ?? lifeBefore(firstFailureMs, look),
    repairMs: series.repairMs,
    firstSuccessMs: null,
    successes: 0,
  };
}

/** An older one only shows that we have not looked in between, and nobody is credited for that. */
function lifeBefore(firstFailureMs: number, { lifeMs }: Look): number {
  return Math.max(Math.min(lifeMs ?? firstFailureMs, firstFailureMs), firstFailureMs - LIFE_MS_MAX);
}

/** A rental that no look has doubted. */
export const WELL: Series = {
  firstFailureMs: null,
  failures: 0,
  lifeMs: null,
  repairMs: null,
  firstSuccessMs: null,
  successes: 0,
};

export interface FleetView {
  /** Since when so many fail together; null when they do not. */
  togetherSinceMs: number | null;
  startedMs: number;
}

export interface Standing {
  /** The link of the machine is up and answers. */
  isAnswering: boolean;
  /** It was up for SETTLED_MS when the look began: an agent that has just started finds its holders first. */
  isSettled: boolean;
  /** Null while the rental counts as running. */
  unreachableSinceMs: number | null;
  nowMs: number;
}

export type Verdict = 'as it is' | 'repair' | 'confirm' | 'recover' | 'give up';

export function verdict(series: Series, standing: Standing, fleet: FleetView): Verdict {
  const { unreachableSinceMs, isAnswering, isSettled, nowMs } = standing;
  const mayRepair = series.failures > 0 && isAnswering && isSettled && series.repairMs === null;
  const repair = mayRepair ? 'repair' : 'as it is';
  if (unreachableSinceMs !== null) {
    if (series.successes >= SUCCESSES_MIN) return 'recover';
    return series.failures > 0 && nowMs - unreachableSinceMs >= GRACE_MS ? 'give up' : repair;
  }
  if (!isDown(series, standing)) return repair;
  if (nowMs - fleet.startedMs < QUIET_AFTER_START_MS) return repair;
  const held = fleet.togetherSinceMs !== null && nowMs - fleet.togetherSinceMs < TOGETHER_HOLD_MS_MAX;
  return held ? repair : 'confirm';
}

/** Looks have failed for long enough. What may still keep that from being confirmed is whose fault it is. */
export function isDown(series: Series, { isAnswering, nowMs }: Pick<Standing, 'isAnswering' | 'nowMs'>): boolean {
  const { firstFailureMs, failures, lifeMs, repairMs } = series;
  if (firstFailureMs === null || lifeMs === null) return false;
  if (!isAnswering) return failures >= FAILURES_SILENT_MIN && nowMs - lifeMs >= SPAN_MS_MIN;
  const isRepaired = repairMs !== null && nowMs - repairMs >= REPAIR_MS_MAX;
  return isRepaired && failures >= FAILURES_MIN && nowMs - firstFailureMs >= SPAN_MS_MIN;
}

/** True where so many machines fail at once that our own network is the likelier cause. */
export function failsTogether(machines: number, failingMachines: number): boolean {
  return failingMachines >= TOGETHER_MACHINES_MIN && failingMachines > machines * TOGETHER_PART_MIN;
}
