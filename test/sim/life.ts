// The life of one process: it has a clock and gets answers. After its end, which is like kill -9, nothing of it happens any more.
import type { Db } from '../../control-plane/base/db/db.ts';
import type { Clock } from '../../shared/clock.ts';

export interface Life {
  clock: Clock;
  isOver(): boolean;
  end(): void;
  /** The same functions. A process that is over never gets their answers. What they do outside of it goes on. */
  within<T extends object>(outside: T): T;
  /** A transaction that has not begun when the process ends never begins. */
  withinDb(db: Db): Db;
}

export interface HostTime {
  /** The error of the wall clock. */
  aheadMs(): number;
  /** When the host has booted, by the monotonic time of the world. */
  bootedMs: number;
}

const RIGHT: HostTime = { aheadMs: () => 0, bootedMs: 0 };

export function openLife(ground: Clock, { aheadMs, bootedMs }: HostTime = RIGHT): Life {
  const timers = new Set<() => void>();
  let isOver = false;
  const never = new Promise<never>(() => undefined);
  const heard = <T>(answer: Promise<T>): Promise<T> =>
    new Promise((resolve, reject) => {
      answer.then(
        (value) => isOver || resolve(value),
        (error: unknown) => isOver || reject(error instanceof Error ? error : new Error(String(error))),
      );
    });
  const after: Clock['after'] = (ms, fn) => {
    if (isOver) return () => undefined;
    const cancel = ground.after(ms, () => {
      timers.delete(cancel);
      fn();
    });
    timers.add(cancel);
    return () => {
      timers.delete(cancel);
      cancel();
    };
  };
  const within = <T extends object>(outside: T): T => {
    const entries = Object.entries(outside).map(([name, value]: [string, unknown]) => {
      if (typeof value !== 'function') return [name, value];
      const call = (...args: unknown[]): unknown => {
        if (isOver) return never;
        const answer: unknown = value(...args);
        return answer instanceof Promise ? heard(answer) : answer;
      };
      return [name, call];
    });
    // Sound because each function is replaced by one that takes and gives the same.
    return Object.fromEntries(entries) as T;
  };

  return {
    clock: {
      now: () => ground.now() + aheadMs(),
      monotonicMs: () => ground.monotonicMs() - bootedMs,
      nextTurn: () => heard(ground.nextTurn()),
      after,
      sleep: (ms, signal) =>
        new Promise((resolve) => {
          if (signal?.aborted) return resolve();
          const cancel = after(ms, resolve);
          signal?.addEventListener('abort', () => (cancel(), resolve()), { once: true });
        }),
    },
    isOver: () => isOver,
    end: () => {
      isOver = true;
      for (const cancel of timers) cancel();
    },
    within,
    withinDb: (db) => ({
      ...within(db),
      read: within(db.read),
      tx: (name, body) =>
        heard(
          db.tx(name, async (tx) => {
            if (isOver) throw new Error('the process is over');
            return body(tx);
          }),
        ),
    }),
  };
}
