// A semaphore for each key: limits how much runs at once. The others wait in order, for a limited time.
import type { Clock } from './clock.ts';

export interface Semaphore {
  /** Runs `work` when a slot is free. Undefined if no slot was free within `waitMs`. */
  run<T>(key: string, waitMs: number, work: () => Promise<T>): Promise<T | undefined>;
}

export function openSemaphore(clock: Clock, atOnceMax: number): Semaphore {
  const busy = new Map<string, number>();
  const waiting = new Map<string, Set<() => void>>();

  const enter = async (key: string, waitMs: number): Promise<boolean> => {
    const inside = busy.get(key) ?? 0;
    if (inside < atOnceMax) {
      busy.set(key, inside + 1);
      return true;
    }
    const turn = Promise.withResolvers<boolean>();
    const queue = waiting.get(key) ?? new Set();
    waiting.set(key, queue);
    const take = (): void => turn.resolve(true);
    queue.add(take);
    const cancel = clock.after(waitMs, () => {
      queue.delete(take);
      turn.resolve(false);
    });
    return turn.promise.finally(cancel);
  };

  /** Gives the slot to the work that has waited longest. */
  const leave = (key: string): void => {
    const queue = waiting.get(key);
    const [next] = queue ?? [];
    if (next === undefined) {
      waiting.delete(key);
      const left = (busy.get(key) ?? 1) - 1;
      if (left === 0) busy.delete(key);
      else busy.set(key, left);
      return;
    }
    queue?.delete(next);
    next();
  };

  return {
    run: async (key, waitMs, work) => {
      if (!(await enter(key, waitMs))) return undefined;
      try {
        return await work();
      } finally {
        leave(key);
      }
    },
  };
}
