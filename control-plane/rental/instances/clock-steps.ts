// Time that a wall clock shows and that never passed, because the clock was set forward over it.

/** The times of a wall clock before and after it was set forward. */
export interface ClockStep {
  fromMs: number;
  untilMs: number;
}

/**
 * How much time has passed since `sinceMs`, an earlier time of the wall clock. A step of the clock is no part of it: an instance must not be gone
 * before its host had its half hour. If the clock was set back since, the time of the step passes after all. Such a step would keep an instance for
 * as long as the clock was ahead.
 */
export function passedMs(sinceMs: number, nowMs: number, steps: readonly ClockStep[]): number {
  const over = steps.filter(({ untilMs }) => untilMs <= nowMs);
  const skipped = over.map(({ fromMs, untilMs }) => Math.max(0, untilMs - Math.max(fromMs, sinceMs)));
  return skipped.reduce((leftMs, ms) => leftMs - ms, nowMs - sinceMs);
}
