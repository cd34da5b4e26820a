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

/** The real clock. Its timers never keep the process alive by themselves. */
export function systemClock(): Clock {
  const after = (ms: number, fn: () => void): (() => void) => {
    const timer = setTimeout(fn, Math.max(0, ms));
    timer.unref();
    return () => clearTimeout(timer);
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
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, Math.max(0, ms));
    signal?.addEventListener('abort', done, { once: true });
  });
}

/** ISO 8601 UTC text for the API, from epoch ms (specification 2.1). */
export function isoTime(ms: number): string {
  return new Date(ms).toISOString();
}
