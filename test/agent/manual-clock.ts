// A clock that stands still until a test moves it.
import type { Clock } from '../../shared/clock.ts';

export interface ManualClock extends Clock {
  /** Moves time and runs what became due, in order. */
  advance(ms: number): void;
  /** Timers that have not fired. */
  waiting(): number;
}

export function manualClock(startMs = 1_000_000): ManualClock {
  let nowMs = startMs;
  let timers: { dueMs: number; fn: () => void }[] = [];
  const after = (ms: number, fn: () => void): (() => void) => {
    const timer = { dueMs: nowMs + ms, fn };
    timers.push(timer);
    return () => {
      timers = timers.filter((one) => one !== timer);
    };
  };
  return {
    now: () => nowMs,
    monotonicMs: () => nowMs,
    after,
    sleep: (ms, signal) =>
      new Promise((resolve) => {
        const cancel = after(ms, resolve);
        signal?.addEventListener('abort', () => {
          cancel();
          resolve();
        });
      }),
    nextTurn: () => new Promise((resolve) => setImmediate(resolve)),
    waiting: () => timers.length,
    advance: (ms) => {
      const endMs = nowMs + ms;
      for (;;) {
        const next = timers.filter((one) => one.dueMs <= endMs).toSorted((a, b) => a.dueMs - b.dueMs)[0];
        if (next === undefined) break;
        timers = timers.filter((one) => one !== next);
        nowMs = next.dueMs;
        next.fn();
      }
      nowMs = endMs;
    },
  };
}
