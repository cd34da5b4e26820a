// The quiet time after an absence of the control plane. Agents reconnect in it, and report what happened while nobody listened.
//
// A time limit that began before the control plane came back does not end within it. Example: a host must acknowledge a launch within a minute. The
// launch was placed at 10:00:00, and the control plane was away from 10:00:30 to 10:05:00. The limit ends at 10:07:00, so the host has had time to
// answer.
//
// A process that starts has been away, and so has a secondary that becomes the primary. A process that could not write its beat for more than a
// minute (own-outages.ts) has been away too: its machine was paused, its clock was set forward, or its disk was full.
import type { Clock } from '../../../shared/clock.ts';

/** How long agents have after the control plane came back. */
export const QUIET_AFTER_START_MS = 120_000;
/** A restart takes less time. A longer gap is an own outage: nobody could reach an instance or end it. */
export const OWN_OUTAGE_MS_MIN = 60_000;

export interface Quiet {
  /** When the control plane came back. */
  readonly fromMs: number;
  readonly untilMs: number;
}

/** The quiet time of this process. */
export interface OwnQuiet extends Quiet {
  /** This process becomes the primary: the quiet time begins now. */
  begin(): void;
  /** Notes that the process is alive and can write. If the last call is longer ago than OWN_OUTAGE_MS_MIN, the quiet time begins anew now. */
  noteAlive(): void;
}

/**
 * Each read looks at the clock. So whoever runs first after an absence sees a new quiet time, also before the next `noteAlive`. Until that call, each
 * read begins it anew.
 */
export function openQuiet(clock: Pick<Clock, 'now'>): OwnQuiet {
  let fromMs = clock.now();
  let aliveMs: number | undefined;
  const current = (): number => {
    const nowMs = clock.now();
    const isAway = aliveMs !== undefined && nowMs - aliveMs > OWN_OUTAGE_MS_MIN;
    // If the clock was set back, the quiet time would otherwise be as much longer.
    if (isAway || nowMs < fromMs) fromMs = nowMs;
    return fromMs;
  };
  return {
    get fromMs() {
      return current();
    },
    get untilMs() {
      return current() + QUIET_AFTER_START_MS;
    },
    begin: () => {
      fromMs = clock.now();
      aliveMs = undefined;
    },
    noteAlive: () => {
      current();
      aliveMs = clock.now();
    },
  };
}

/** The end of a time limit that began at `fromMs` and would end at `untilMs`. */
export function notInQuiet(fromMs: number, untilMs: number, quiet: Quiet): number {
  return fromMs < quiet.fromMs ? Math.max(untilMs, quiet.untilMs) : untilMs;
}

/** True while something that began at `fromMs`, before the control plane came back, must not be judged yet. */
export function isQuiet(fromMs: number, quiet: Quiet, nowMs: number): boolean {
  return notInQuiet(fromMs, nowMs, quiet) > nowMs;
}
