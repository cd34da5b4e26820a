// The quiet time after a start of the control plane. Agents reconnect in it, and report what happened while nobody listened.
//
// A time limit that began before the start does not end within it. Example: a host must acknowledge a launch within a minute. The launch was placed
// at 10:00:00, and the control plane was away from 10:00:30 to 10:05:00. The limit ends at 10:07:00, so the host has had time to answer.

/** How long agents have after a start. */
export const QUIET_AFTER_START_MS = 120_000;

export interface Quiet {
  /** The start. */
  fromMs: number;
  untilMs: number;
}

export function quietFrom(startedMs: number): Quiet {
  return { fromMs: startedMs, untilMs: startedMs + QUIET_AFTER_START_MS };
}

/** The end of a time limit that began at `fromMs` and would end at `untilMs`. Pure. */
export function notInQuiet(fromMs: number, untilMs: number, quiet: Quiet): number {
  return fromMs < quiet.fromMs ? Math.max(untilMs, quiet.untilMs) : untilMs;
}

/** True while something that began at `fromMs`, before the start, must not be judged yet. Pure. */
export function isQuiet(fromMs: number, quiet: Quiet, nowMs: number): boolean {
  return notInQuiet(fromMs, nowMs, quiet) > nowMs;
}
