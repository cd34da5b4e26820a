// The only place that reads real time. All other code receives a Clock, so tests can run on a virtual one.

/** Wall time in epoch ms, a monotonic counter for durations, and the two ways to wait. */
export interface Clock {
  /** Epoch milliseconds. May jump when the host's clock is set: never subtract two of these to measure a duration. */
  now(): number;
  /** Milliseconds since the boot of the host. It never goes back, and is the same for all processes of the host. */
  monotonicMs(): number;
  /** Resolves after `ms`, or at once (without error) when the signal aborts. A time that is over already, a negative `ms`, counts as 0. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Calls `fn` once after `ms`, counted as by `sleep`. The returned function cancels it. */
  after(ms: number, fn: () => void): () => void;
  /** Resolves in a later turn of the event loop, after all pending microtasks. */
  nextTurn(): Promise<void>;
}

/** Node turns a longer time into 1 ms. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** The real clock. Its timers never keep the process alive by themselves. */
export function systemClock(): Clock {
  const after = (ms: number, fn: () => void): (() => void) => {
    const timer = startTimer(ms, fn);
    timer.unref();
    return () => timer.clear();
  };
  return {
    now: () => Date.now(),
    monotonicMs: () => Number(process.hrtime.bigint()) / 1e6,
    after,
    sleep: (ms, signal) => sleep(ms, signal),
    nextTurn: () => new Promise((resolve) => setImmediate(resolve)),
  };
}

function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = (): void => {
      timer.clear();
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = startTimer(ms, done);
    signal?.addEventListener('abort', done, { once: true });
  });
}

interface Timer {
  clear(): void;
  unref(): void;
}

/** A timer of any length. One that is too long for Node is made of several. */
function startTimer(ms: number, fn: () => void): Timer {
  let leftMs = Math.max(0, ms);
  let isUnref = false;
  let timer: NodeJS.Timeout;
  const next = (): void => {
    const partMs = Math.min(leftMs, TIMER_MS_MAX);
    leftMs -= partMs;
    timer = setTimeout(() => (leftMs > 0 ? next() : fn()), partMs);
    if (isUnref) timer.unref();
  };
  next();
  return {
    clear: () => clearTimeout(timer),
    unref: () => {
      isUnref = true;
      timer.unref();
    },
  };
}

/** ISO 8601 UTC text for the API, from epoch ms (specification 2.1). */
export function isoTime(ms: number): string {
  return new Date(ms).toISOString();
}
