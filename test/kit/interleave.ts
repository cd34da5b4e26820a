// Interleaves transactions statement by statement, in an order that a seed decides, so that a test finds races that time alone never shows.
//
// Each operation is an actor. Before each of its statements, and before the commit of each body, it waits for its turn. One actor moves at a
// time. A seed picks the next among those that wait. An actor that the server keeps waiting for a lock has no turn to wait for: the others
// move on, and it comes back once they have released the lock.
//
//   seed 1:  A lock, A count, B lock (waits), A insert, A commit, B count, B refuse
//   seed 2:  B lock, A lock (waits), B count, ...
import { z } from 'zod';
import { int } from '../../control-plane/base/db/columns.ts';
import { type Db, sql, type Tx } from '../../control-plane/base/db/db.ts';
import { seededRng } from '../../shared/rng.ts';
import { setTimeout as wait } from 'node:timers/promises';
import { AsyncLocalStorage } from 'node:async_hooks';

export interface Interleaved {
  /** Its transactions take turns while `run` runs, and are as usual otherwise. */
  db: Db;
  /** Runs the operations side by side in the order of the seed, and resolves with their results. */
  run(seed: number, operations: readonly (() => Promise<unknown>)[]): Promise<PromiseSettledResult<unknown>[]>;
  /** How many bodies ran again, because the server had rolled them back: they waited for each other. */
  collisions(): number;
}

/** How long an actor may take for one statement before the server is asked whether it waits for a lock. */
const STATEMENT_MS = 15;
const Waiting = z.object({ count: int });

interface Actor {
  /** Lets it do its next statement; undefined while it does one, or waits in the server. */
  go: (() => void) | undefined;
  isDone: boolean;
}

export function interleave(db: Db): Interleaved {
  const current = new AsyncLocalStorage<Actor>();
  let collisions = 0;
  const turn = (actor: Actor | undefined): Promise<void> =>
    actor === undefined ? Promise.resolve() : new Promise((resolve) => (actor.go = resolve));
  const inTurns = (tx: Tx, actor: Actor | undefined): Tx => ({
    all: async (row, statement) => (await turn(actor), tx.all(row, statement)),
    one: async (row, statement) => (await turn(actor), tx.one(row, statement)),
    run: async (statement) => (await turn(actor), tx.run(statement)),
    // Its answer comes with that of the next statement, so a lock is no turn of its own.
    lock: (root, ...ids) => tx.lock(root, ...ids),
  });
  return {
    collisions: () => collisions,
    db: {
      ...db,
      tx: (name, body) => {
        const actor = current.getStore();
        let runs = 0;
        return db.tx(name, async (tx) => {
          runs += 1;
          if (runs > 1) collisions += 1;
          const value = await body(inTurns(tx, actor));
          // The commit is a turn too.
          await turn(actor);
          return value;
        });
      },
    },
    run: async (seed, operations) => {
      const rng = seededRng(seed);
      const actors = operations.map((): Actor => ({ go: undefined, isDone: false }));
      const results = operations.map((operation, i) => {
        const actor = actors[i] ?? { go: undefined, isDone: false };
        return current.run(actor, operation).finally(() => (actor.isDone = true));
      });
      const all = Promise.allSettled(results);
      while (actors.some(({ isDone }) => !isDone)) {
        await untilIdle(db, actors);
        const ready = actors.filter(({ go }) => go !== undefined);
        const next = ready[Math.floor(rng.float() * ready.length)];
        const go = next?.go;
        if (next !== undefined) next.go = undefined;
        go?.();
      }
      return all;
    },
  };
}

/** Waits until each actor has ended, waits for its turn, or waits in the server for a lock of another one. */
async function untilIdle(db: Db, actors: readonly Actor[]): Promise<void> {
  for (;;) {
    const busy = (): number => actors.filter(({ go, isDone }) => go === undefined && !isDone).length;
    for (let ms = 0; busy() > 0 && ms < STATEMENT_MS; ms += 1) await wait(1);
    if (busy() === 0) return;
    const blocked = await db.read.one(
      Waiting,
      sql`select count(*) as count from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
    );
    if ((blocked?.count ?? 0) >= busy() && actors.some(({ go }) => go !== undefined)) return;
  }
}
