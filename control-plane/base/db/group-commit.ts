// Group commit: transaction bodies queue and run one after another, a savepoint each, inside one transaction per turn of the event loop.
// One flush to disk is shared by all of them; a caller is told only after it. A commit that fails rejects every body of its batch.
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Clock } from '../../../shared/clock.ts';
import { DbError, engineError, type Query, type Tx } from './db.ts';

export interface Body {
  name: string;
  run(tx: Tx): Promise<unknown>;
}

export type Outcome = { value: unknown } | { error: unknown };

/** Told of every commit: how many bodies shared it, and how long all of it took. */
export type OnCommit = (bodies: number, seconds: number) => void;

export interface GroupCommit {
  tx<T>(name: string, body: (tx: Tx) => Promise<T>): Promise<T>;
  /** `reads` that throw `tx_nested` inside a body: they would not see what it has written, or wait for it for ever. */
  outside(reads: Query): Query;
  /** Resolves when everything queued so far is over. */
  idle(): Promise<void>;
}

interface Job extends Body {
  settle(outcome: Outcome): void;
}

/**
 * `commit` runs a batch in one transaction and resolves, once it is durable, with one outcome per body in order; it throws where the
 * whole batch came to nothing. `batchMax` bounds how long the first body of a batch waits.
 */
export function openGroupCommit(
  commit: (batch: readonly Body[]) => Promise<Outcome[]>,
  options: { clock: Clock; batchMax: number; onCommit?: OnCommit | undefined },
): GroupCommit {
  const inside = new AsyncLocalStorage<string>();
  const queue: Job[] = [];
  let flushing: Promise<void> | undefined;

  const flush = async (): Promise<void> => {
    while (queue.length > 0) {
      await options.clock.nextTurn();
      const batch = queue.splice(0, options.batchMax);
      const startedMs = options.clock.monotonicMs();
      try {
        const outcomes = await commit(batch);
        options.onCommit?.(batch.length, (options.clock.monotonicMs() - startedMs) / 1000);
        for (const [i, job] of batch.entries()) job.settle(outcomes[i] ?? { error: new Error('the body was not run') });
      } catch (error) {
        for (const job of batch) job.settle({ error });
      }
    }
    flushing = undefined;
  };
  const refuseNested = (name: string): void => {
    const outer = inside.getStore();
    if (outer === undefined) return;
    throw new DbError('tx_nested', `${name} was called inside the transaction ${outer}; pass its tx instead`);
  };

  return {
    outside: (reads) => ({
      all: async (row, statement) => {
        refuseNested('read');
        return reads.all(row, statement);
      },
      one: async (row, statement) => {
        refuseNested('read');
        return reads.one(row, statement);
      },
    }),
    idle: async () => flushing,
    tx: async <T>(name: string, body: (tx: Tx) => Promise<T>): Promise<T> => {
      refuseNested(name);
      return new Promise<T>((resolve, reject) => {
        queue.push({
          name,
          run: (tx) => inside.run(name, () => Promise.resolve().then(() => body(tx))),
          settle: (outcome) => ('error' in outcome ? reject(engineError(outcome.error)) : resolve(outcome.value as T)),
        });
        flushing ??= flush();
      });
    },
  };
}
