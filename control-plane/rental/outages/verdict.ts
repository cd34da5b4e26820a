// Decides from a series of probes whether an instance is unreachable, has recovered, or must be given up. Pure: no I/O, no clock.
//
// A probe is a real SSH login at the holder of the instance (probe.ts). watch.ts makes the probes, passes each result to `afterProbe`, and
// asks `verdict` what to do:
//
//   as it is   Do nothing. The next probe follows.
//   repair     The host answers, but its holder failed two probes. Ask the host to replace the holder.
//   confirm    The outage is certain: running -> unreachable. Billing ends at the last proof of life.
//   recover    Two good probes in a row: unreachable -> running. Billing begins again at the first of them.
//   hold       The outage is certain, and its verdict is held back (below). The series remembers it.
//   make good  Two good probes in a row after an outage that was only held: confirm and recover at once.
//   give up    The outage has lasted 30 minutes (GRACE_MS) and probes still fail: unreachable -> error. The disk of the instance is lost then.
//
// There are two kinds of outage. A tenant or a stranger can cause neither of them.
// - Silent host: its link is gone or it missed a ping, two probes in a row have failed, and the last proof of life is 20 s old.
// - Broken holder: the link answers, but probes fail. After the second failure the host replaces the holder. If three probes have failed, the
//   first of them 20 s ago, and the replacement is 10 s old, it is an outage. A link that came up less than 10 s ago delays the replacement,
//   but not for more than 20 s: otherwise a host that opens a new link every few seconds would never have an outage.
//
// Example of a silent host (it freezes at 12:00:00):
//   11:59:52  The host answers a ping. This is the last proof of life.
//   12:00:06  It misses a ping, so its instances are probed at once.
//   12:00:11  First failed probe (it waited 5 s for an answer). The next one is due 2 s later.
//   12:00:18  Second failed probe, 26 s after the last proof of life: confirm. The customer pays until 11:59:52.
//   12:01:02  The host wakes up. First good probe.
//   12:01:04  Second good probe: recover. The customer pays from 12:01:02. The free gap is 70 s long.
//
// Two situations hold a verdict back, because the fault is then probably ours:
// - The control plane came back less than 2 minutes ago (quiet.ts): agents are still reconnecting.
// - At least 5 machines, and more than 30 % of all machines, fail at the same time. This holds `confirm` for at most 10 minutes, and `give up`
//   for at most a day and until 2 minutes after its end: a confirmed outage can end again, but an instance that was given up is gone.
// An outage that was held because many machines failed is not forgotten: when it ends, it is made good. If the customer ends a held instance,
// `isDown` still says that it was out of reach, and that time is not charged (store.ts).
//
// What must never happen: one failed probe ends billing, or ends the SSH sessions of a customer by a new holder (a busy host may answer one login
// late); an outage begins after its first failed probe; time in which we did not probe is
// credited (the last proof of life counts as at most one minute old); all hosts are marked unreachable because our own network is down.
import { GRACE_MS } from '../../../shared/limits.ts';
import { type ClockStep, passedMs } from '../instances/clock-steps.ts';
import { QUIET_AFTER_START_MS, type Quiet } from '../instances/quiet.ts';

/** Time between two good probes. It is spread by +-20 % so that probes do not come in waves. */
export const PROBE_PERIOD_MS = 30_000;
/** Time between two probes while an instance fails, or has not yet recovered. */
const REPROBE_MS = 2_000;
/** The same for an instance that has failed for longer than FAILING_MS_SOON, so that thousands of them do not take the time of all others. */
const REPROBE_LATER_MS = 10_000;
const FAILING_MS_SOON = 120_000;
/**
 * How many instances on other machines are probed at once after the first failure of a machine. We must know whether many machines fail
 * together before we confirm one outage, and their regular probes would come too late. Each of these that fails alarms others in turn.
 */
export const ALARMED_MAX = 20;
/** Failures in a row that confirm the outage of a silent host. Its silence is the second sign. */
const FAILURES_SILENT_MIN = 2;
/** Failures in a row after which a host that answers replaces the holder. */
const FAILURES_REPAIR_MIN = 2;
/** Failures in a row that confirm the outage of a holder whose host answers. */
const FAILURES_MIN = 3;
/** An outage lasts at least this long. An agent that restarts is back sooner. */
const SPAN_MS_MIN = 20_000;
/** The last proof of life counts as at most this old when a series of failures begins. */
const LIFE_MS_MAX = 2 * PROBE_PERIOD_MS;
/** An agent needs this long after its start to find its holders. */
export const SETTLED_MS = 10_000;
/** A host whose link never gets older than SETTLED_MS is asked to replace a holder this long after the first failure. */
const UNSETTLED_MS_MAX = 2 * SETTLED_MS;
/** A host replaces a holder within this time. */
const REPAIR_MS_MAX = 10_000;
/** Good probes in a row that end an outage. */
const SUCCESSES_MIN = 2;
/** No instance is given up for this long after many machines have failed together, because their agents are still reconnecting. */
const QUIET_AFTER_TOGETHER_MS = QUIET_AFTER_START_MS;
/** If at least this number and this share of all machines fail together, the fault is probably ours. The verdict is held, but not for ever. */
const TOGETHER_MACHINES_MIN = 5;
const TOGETHER_PART_MIN = 0.3;
const TOGETHER_HOLD_MS_MAX = 10 * 60_000;
const TOGETHER_KEEP_MS_MAX = 24 * 3_600_000;

export interface Series {
  /** When the first failed probe of this series began, or when the host itself reported that the holder does not answer. */
  firstFailureMs: number | null;
  failures: number;
  /** The last proof of life before the failures; null while probes are good. */
  lifeMs: number | null;
  /** When the host was asked to replace the holder. */
  repairMs: number | null;
  /** When the first good probe of this series ended. */
  firstSuccessMs: number | null;
  successes: number;
  /** The outage is certain, but its verdict is held because many machines fail together. */
  isHeld: boolean;
}

export interface ProbeOutcome {
  ok: boolean;
  startMs: number;
  endMs: number;
  /** The last proof of life that is known when the probe ends. */
  lifeMs: number | null;
  /** When the host itself reported that the holder does not answer; null if there was no such report since the last good probe. */
  hostFailedMs: number | null;
}

/** Adds one probe to a series. */
export function afterProbe(series: Series, outcome: ProbeOutcome): Series {
  if (outcome.ok) {
    const good = { firstSuccessMs: series.firstSuccessMs ?? outcome.endMs, successes: series.successes + 1 };
    return { ...(series.isHeld ? series : WELL), ...good };
  }
  // The report of the host counts as a failure of its own, before the first failed probe.
  const hostSaid = series.failures === 0 && outcome.hostFailedMs !== null;
  const firstFailureMs = series.firstFailureMs ?? outcome.hostFailedMs ?? outcome.startMs;
  return {
    firstFailureMs,
    failures: series.failures + (hostSaid ? 2 : 1),
    // A proof of life that comes between two failures does not move the beginning of the outage.
    lifeMs: series.lifeMs ?? lifeBefore(firstFailureMs, outcome),
    repairMs: series.repairMs,
    firstSuccessMs: null,
    successes: 0,
    isHeld: series.isHeld,
  };
}

/** The last proof of life, but at most LIFE_MS_MAX before the failure: an older one only shows that we did not probe in between. */
function lifeBefore(firstFailureMs: number, { lifeMs }: ProbeOutcome): number {
  return Math.max(Math.min(lifeMs ?? firstFailureMs, firstFailureMs), firstFailureMs - LIFE_MS_MAX);
}

/** The series of an instance without failures. */
export const WELL: Series = {
  firstFailureMs: null,
  failures: 0,
  lifeMs: null,
  repairMs: null,
  firstSuccessMs: null,
  successes: 0,
  isHeld: false,
};

export interface FleetView {
  /** Since when many machines fail together; null if they do not. */
  togetherSinceMs: number | null;
  /** When many machines last failed together; null if they have not since the start. */
  togetherUntilMs: number | null;
  quiet: Quiet;
  /** The times that never passed, because the wall clock was set forward over them. */
  steps: readonly ClockStep[];
}

export interface Standing {
  /** The link of the machine is up and answers pings. */
  isAnswering: boolean;
  /** The link was up for SETTLED_MS when the probe began. */
  isSettled: boolean;
  /** Null while the instance counts as running. */
  unreachableSinceMs: number | null;
  nowMs: number;
}

export type Verdict = 'as it is' | 'repair' | 'confirm' | 'recover' | 'give up' | 'hold' | 'make good';

/** What to do about an instance after a probe. */
export function verdict(series: Series, standing: Standing, fleet: FleetView): Verdict {
  const { unreachableSinceMs, nowMs } = standing;
  const repair = mayRepair(series, standing) ? 'repair' : 'as it is';
  if (unreachableSinceMs !== null) {
    if (series.successes >= SUCCESSES_MIN) return 'recover';
    const isOver = series.failures > 0 && passedMs(unreachableSinceMs, nowMs, fleet.steps) >= GRACE_MS;
    return isOver && mayGiveUp(fleet, nowMs) ? 'give up' : repair;
  }
  if (series.isHeld && series.successes > 0) return series.successes >= SUCCESSES_MIN ? 'make good' : 'as it is';
  if (!isDown(series, standing)) return repair;
  if (nowMs < fleet.quiet.untilMs) return repair;
  const mayHold = fleet.togetherSinceMs !== null && nowMs - fleet.togetherSinceMs < TOGETHER_HOLD_MS_MAX;
  if (!mayHold) return 'confirm';
  return series.isHeld ? repair : 'hold';
}

function mayRepair(
  { failures, firstFailureMs, repairMs }: Series,
  { isAnswering, isSettled, nowMs }: Standing,
): boolean {
  if (failures < FAILURES_REPAIR_MIN || !isAnswering || repairMs !== null) return false;
  return isSettled || (firstFailureMs !== null && nowMs - firstFailureMs >= UNSETTLED_MS_MAX);
}

function mayGiveUp({ quiet, togetherSinceMs, togetherUntilMs }: FleetView, nowMs: number): boolean {
  if (nowMs < quiet.untilMs) return false;
  if (togetherSinceMs !== null) return nowMs - togetherSinceMs >= TOGETHER_KEEP_MS_MAX;
  return togetherUntilMs === null || nowMs - togetherUntilMs >= QUIET_AFTER_TOGETHER_MS;
}

/** True if probes have failed for long enough, or the outage is held. It may be held because the fault is probably ours. */
export function isDown(series: Series, { isAnswering, nowMs }: Pick<Standing, 'isAnswering' | 'nowMs'>): boolean {
  const { firstFailureMs, failures, lifeMs, repairMs, isHeld } = series;
  if (isHeld) return true;
  if (firstFailureMs === null || lifeMs === null) return false;
  if (!isAnswering) return failures >= FAILURES_SILENT_MIN && nowMs - lifeMs >= SPAN_MS_MIN;
  const isRepaired = repairMs !== null && nowMs - repairMs >= REPAIR_MS_MAX;
  return isRepaired && failures >= FAILURES_MIN && nowMs - firstFailureMs >= SPAN_MS_MIN;
}

/** When the next probe is due of an instance that fails, or has not yet recovered. */
export function reprobeMs({ firstFailureMs, successes }: Series, nowMs: number): number {
  const isOld = firstFailureMs !== null && nowMs - firstFailureMs > FAILING_MS_SOON;
  return nowMs + (isOld && successes === 0 ? REPROBE_LATER_MS : REPROBE_MS);
}

/** True if our own network is the more likely cause, because many machines fail at once. */
export function failsTogether(machines: number, failingMachines: number): boolean {
  return failingMachines >= TOGETHER_MACHINES_MIN && failingMachines > machines * TOGETHER_PART_MIN;
}
