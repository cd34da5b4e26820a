// Interleaves transactions statement by statement, in an order that a seed decides, so that a test finds races that time alone never shows.
//
// Each transaction of an operation is an actor. Before each of its statements, and before its commit, it waits for its turn. One actor moves
// at a time. A seed picks the next among those that wait. An actor that the server keeps waiting for a lock has no turn to wait for: the
// others move on, and it comes back once they have released the lock.
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
/** How long operations may take between two of their transactions before the others move on. */
const BETWEEN_MS = 2;
const Waiting = z.object({ count: int });

interface Actor {
  /** Lets it do its next statement; undefined while it does one, or waits in the server. */
  go: (() => void) | undefined;
}

export function interleave(db: Db): Interleaved {
  const isInRun = new AsyncLocalStorage<true>();
  const actors = new Set<Actor>();
  let collisions = 0;
  const inTurns = (tx: Tx, turn: () => Promise<void>): Tx => ({
    all: async (row, statement) => (await turn(), tx.all(row, statement)),
    one: async (row, statement) => (await turn(), tx.one(row, statement)),
    run: async (statement) => (await turn(), tx.run(statement)),
    // Its answer comes with that of the next statement, so a lock is no turn of its own.
    lock: (root, ...ids) => tx.lock(root, ...ids),
    firstUnlocked: (root, ids, still) => tx.firstUnlocked(root, ids, still),
    // What is joined into one statement has one turn.
    together: async (work) => (await turn(), tx.together(work)),
  });
  return {
    collisions: () => collisions,
    db: {
      ...db,
      tx: (name, body) => {
        if (isInRun.getStore() === undefined) return db.tx(name, body);
        const actor: Actor = { go: undefined };
        // Statements that the body sends together take their turns one after another.
        let last = Promise.resolve();
        const turn = (): Promise<void> => (last = last.then(() => new Promise((resolve) => (actor.go = resolve))));
        let runs = 0;
        actors.add(actor);
        const whole = async (tx: Tx): Promise<Awaited<ReturnType<typeof body>>> => {
          runs += 1;
          if (runs > 1) collisions += 1;
          const value = await body(inTurns(tx, turn));
          // The commit is a turn too.
          await turn();
          return value as Awaited<ReturnType<typeof body>>;
        };
        return db.tx(name, whole).finally(() => actors.delete(actor));
      },
    },
    run: async (seed, operations) => {
      const rng = seededRng(seed);
      let left = operations.length;
      const results = operations.map((operation) => isInRun.run(true, operation).finally(() => (left -= 1)));
      const all = Promise.allSettled(results);
      while (left > 0) {
        await untilIdle(db, actors);
        const ready = [...actors].filter(({ go }) => go !== undefined);
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
async function untilIdle(db: Db, actors: ReadonlySet<Actor>): Promise<void> {
  const busy = (): number => [...actors].filter(({ go }) => go === undefined).length;
  await wait(BETWEEN_MS);
  for (;;) {
    for (let ms = 0; busy() > 0 && ms < STATEMENT_MS; ms += 1) await wait(1);
    if (busy() === 0) return;
    const blocked = await db.read.one(
      Waiting,
      sql`select count(*) as count from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
    );
    if ((blocked?.count ?? 0) >= busy() && busy() < actors.size) return;
  }
}
