// Group commit: many transaction bodies share one commit, so that one flush to disk serves all callers that wait.
//
// A flush to disk takes some milliseconds, however little was written. A body takes a fraction of a millisecond. Example: 40
// requests arrive together, each body takes 0.2 ms and each flush 5 ms.
// - One transaction per request: 40 x (0.2 + 5) = 208 ms until the last caller has its answer.
// - Group commit: 40 x 0.2 + 5 = 13 ms for all of them.
//
// The way of a body:
//
//   db.tx(name, body) --> queue --> next turn of the event loop: the first `batchMax` bodies are the batch
//                                     |
//                                     |  BEGIN
//                                     |  body 1, body 2, ...
//                                     |  COMMIT, flushed to disk
//                                     v
//                                   each caller gets the result or the error of its own body
//
// This file owns the queue. `commit`, which a driver passes in, runs one batch in one transaction. While a batch commits, new
// bodies wait in the queue for the next batch, so a busier service gets larger batches by itself. SQLite runs all bodies this way. PostgreSQL
// sends only the bodies that are one statement (`HotBody`) this way, a batch in one packet.
//
// States of a body: queued, running (in its batch), settled. There are three ways to be settled:
// - Its batch is committed, and the body returned a value: the caller gets the value. A body that a crash may take back (`mayBeLost`) is
//   settled before the flush. A batch of such bodies alone is settled even before its COMMIT (see sqlite-batches.ts).
// - Its batch is committed, and the body threw: only this body was rolled back, and only its caller gets the error.
// - The batch failed (full disk, lost lease, server away): nothing of the batch is stored, and every caller gets the error.
//   The drivers try a batch again before they give up, if that can help, so a body may run more than once.
//
// What must never happen:
// - A caller gets its result before the COMMIT is durable, unless its body may be lost. It could act on a write that a crash takes back.
import type { Clock } from '../../../shared/clock.ts';
import { engineError } from './db.ts';

export type BodyResult = { value: unknown } | { error: unknown };

/** Called after every commit with the number of bodies that shared it and its whole duration. */
export type OnCommit = (bodies: number, seconds: number) => void;

export interface GroupCommit<Body> {
  /** Resolves with the value of the body once its batch is durable. */
  add(body: Body): Promise<unknown>;
  /** Resolves when everything queued so far has ended. */
  idle(): Promise<void>;
}

interface Job<Body> {
  body: Body;
  settle(result: BodyResult): void;
}

/** Settles a body of the batch before the batch is durable. */
export type SettleEarly = (index: number, result: BodyResult) => void;

/**
 * `commit` runs a batch in one transaction. Once that is durable, it resolves with one result per body, in order. It throws if the whole
 * batch was rolled back. `batchMax` bounds how long the first body of a batch waits.
 */
export function openGroupCommit<Body>(
  commit: (batch: readonly Body[], settleEarly: SettleEarly) => Promise<BodyResult[]>,
  options: { clock: Clock; batchMax: number; onCommit?: OnCommit | undefined },
): GroupCommit<Body> {
  const queue: Job<Body>[] = [];
  let flushing: Promise<void> | undefined;

  const flush = async (): Promise<void> => {
    while (queue.length > 0) {
      await options.clock.nextTurn();
      const batch = queue.splice(0, options.batchMax);
      const startedMs = options.clock.monotonicMs();
      try {
        const results = await commit(
          batch.map(({ body }) => body),
          (index, result) => batch[index]?.settle(result),
        );
        options.onCommit?.(batch.length, (options.clock.monotonicMs() - startedMs) / 1000);
        for (const [i, job] of batch.entries()) job.settle(results[i] ?? { error: new Error('the body was not run') });
      } catch (error) {
        for (const job of batch) job.settle({ error });
      }
    }
    flushing = undefined;
  };

  return {
    idle: async () => flushing,
    add: (body) =>
      new Promise((resolve, reject) => {
        queue.push({
          body,
          settle: (result) => {
            if ('error' in result) reject(engineError(result.error));
            else resolve(result.value);
          },
        });
        flushing ??= flush();
      }),
  };
}
