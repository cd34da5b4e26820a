// A virtual clock that only the test moves. Timers fire in order, and their effects settle before the next one.
import type { Clock } from '../../shared/clock.ts';

export interface VirtualClock extends Clock {
  /** Moves time on by `ms`, firing what comes due on the way, and lets the effects of each settle. */
  advance(ms: number): Promise<void>;
  /** The same at once: effects that need a turn of the event loop come later. */
  jump(ms: number): void;
  /** Timers that have not fired. */
  waiting(): number;
  /** Somebody sets the wall clock: it steps by `ms`, and no time passes. */
  step(ms: number): void;
}

interface Timer {
  atMs: number;
  fire(): void;
}

/** Turns of the event loop that an effect may take to settle: a transaction needs two. */
const TURNS_TO_SETTLE = 6;

export function virtualClock(startMs: number = Date.UTC(2026, 0, 1)): VirtualClock {
  let nowMs = startMs;
  let steppedMs = 0;
  let timers: Timer[] = [];
  const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  const settle = async (): Promise<void> => {
    for (let i = 0; i < TURNS_TO_SETTLE; i += 1) await nextTurn();
  };
  const after = (ms: number, fn: () => void): (() => void) => {
    const timer: Timer = { atMs: nowMs + ms, fire: fn };
    timers.push(timer);
    return () => (timers = timers.filter((other) => other !== timer));
  };

  /** Removes the first timer that is due by `untilMs` and sets the time to it. */
  const nextDue = (untilMs: number): Timer | undefined => {
    const next = timers.reduce<Timer | undefined>(earlier, undefined);
    if (next === undefined || next.atMs > untilMs) return undefined;
    timers = timers.filter((timer) => timer !== next);
    nowMs = Math.max(nowMs, next.atMs);
    return next;
  };

  return {
    now: () => nowMs + steppedMs,
    step: (ms) => (steppedMs += ms),
    monotonicMs: () => nowMs - startMs,
    nextTurn,
    after,
    sleep: (ms, signal) =>
      new Promise((resolve) => {
        if (signal?.aborted) return resolve();
        const cancel = after(ms, resolve);
        signal?.addEventListener('abort', () => (cancel(), resolve()), { once: true });
      }),
    waiting: () => timers.length,
    jump: (ms) => {
      const untilMs = nowMs + ms;
      for (let next = nextDue(untilMs); next !== undefined; next = nextDue(untilMs)) next.fire();
      nowMs = untilMs;
    },
    advance: async (ms) => {
      const untilMs = nowMs + ms;
      await settle();
      for (let next = nextDue(untilMs); next !== undefined; next = nextDue(untilMs)) {
        next.fire();
        await settle();
      }
      nowMs = untilMs;
    },
  };
}

/** Moves the clock on by `stepMs` again and again until `work` is over. While no timer waits, the work waits for something real. */
export async function whileTimePasses<T>(clock: VirtualClock, work: Promise<T>, stepMs: number): Promise<T> {
  let isOver = false;
  const over = work.finally(() => (isOver = true));
  over.catch(() => undefined);
  while (!isOver) {
    if (clock.waiting() > 0) await clock.advance(stepMs);
    else await clock.nextTurn();
  }
  return over;
}

/** The next timer. If two have the same time, the one that was set first. */
function earlier(first: Timer | undefined, other: Timer): Timer {
  return first === undefined || other.atMs < first.atMs ? other : first;
}
