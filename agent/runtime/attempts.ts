// Counts tries and delays the next one: something that fails, or does not stay up, is tried at growing intervals.
import type { Clock } from '../../shared/clock.ts';

export interface Attempts {
  /** Tries so far since `forget`. */
  count(key: string): number;
  /** Counts one more try; the next one waits longer. */
  delay(key: string): void;
  forget(key: string): void;
  /** Epoch ms before which a key is not due. */
  retryAtMs: ReadonlyMap<string, number>;
}

const RETRY_MS_MIN = 1_000;
const RETRY_MS_MAX = 60_000;

/** `onDue` is called when a delayed key becomes due. */
export function createAttempts(clock: Clock, onDue: () => void): Attempts {
  const counts = new Map<string, number>();
  const retryAtMs = new Map<string, number>();
  const count = (key: string): number => counts.get(key) ?? 0;
  return {
    count,
    retryAtMs,
    delay: (key) => {
      const delayMs = Math.min(RETRY_MS_MAX, RETRY_MS_MIN * 2 ** count(key));
      counts.set(key, count(key) + 1);
      const atMs = clock.now() + delayMs;
      retryAtMs.set(key, atMs);
      clock.after(delayMs, () => {
        // A timer may fire a moment before the wall clock shows that time, or the clock was set back. So the timer decides, not the clock.
        if (retryAtMs.get(key) === atMs) retryAtMs.delete(key);
        onDue();
      });
    },
    forget: (key) => {
      counts.delete(key);
      retryAtMs.delete(key);
    },
  };
}
