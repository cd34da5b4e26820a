// What both drivers require of a transaction body: it awaits nothing but its `tx`, and it does not use the database in another way.
//
// A body that calls `db.tx` or `db.read` would wait for a batch that waits for it, or read data without its own writes. Both throw
// `tx_nested`. An AsyncLocalStorage knows which body the current code belongs to.
import { AsyncLocalStorage } from 'node:async_hooks';
import type { z } from 'zod';
import { DbError, type NowTx, type Query, type Sql, type Tx } from './db.ts';
import { type Root, ROOTS } from './locks.ts';

export interface Body {
  name: string;
  run(tx: Tx): Promise<unknown>;
}

/** A `HotBody` in the queue of SQLite. */
export interface NowBody {
  name: string;
  runNow(tx: NowTx): unknown;
  mayBeLost?(result: never): boolean;
}

export interface Bodies {
  /** @throws DbError `tx_nested` inside a body */
  refuseNested(name: string): void;
  /** @throws DbError `tx_nested` inside a body */
  make(name: string, run: (tx: Tx) => Promise<unknown>): Body;
  /** Wraps `reads` so that they throw `tx_nested` inside a body. */
  outside(reads: Query): Query;
}

export function openBodies(): Bodies {
  const inside = new AsyncLocalStorage<string>();
  const refuseNested = (name: string): void => {
    const outer = inside.getStore();
    if (outer === undefined) return;
    throw new DbError('tx_nested', `${name} was called inside the transaction ${outer}; pass its tx instead`);
  };
  return {
    refuseNested,
    make: (name, run) => {
      refuseNested(name);
      return { name, run: (tx) => inside.run(name, () => Promise.resolve().then(() => run(tx))) };
    },
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
  };
}

/** Reads that decode each row. */
export function decoding(read: (statement: Sql) => Promise<unknown[]>): Query {
  const all = async <T>(row: z.ZodType<T>, statement: Sql): Promise<T[]> =>
    (await read(statement)).map((value) => row.parse(value));
  return { all, one: async (row, statement) => (await all(row, statement))[0] };
}

const ORDER: readonly string[] = Object.keys(ROOTS);

/** The locks of one transaction. */
export interface LockOrder {
  /**
   * The ids that are not held yet, sorted.
   * @throws DbError `lock_order` if a root was locked that comes later
   */
  next(root: Root, ids: readonly string[]): string[];
  /** A row of this root is about to be locked, and its id is not known yet. @throws DbError `lock_order` as `next` does */
  advance(root: Root): void;
}

export function openLockOrder(): LockOrder {
  const held = new Set<string>();
  let last: Root | undefined;
  const keyOf = (root: Root, id: string): string => `${root} ${id}`;
  const advance = (root: Root): void => {
    if (last !== undefined && ORDER.indexOf(root) < ORDER.indexOf(last)) {
      throw new DbError('lock_order', `${root} was locked after ${last}; ROOTS has the order`);
    }
    last = root;
  };
  return {
    next: (root, ids) => {
      const fresh = [...new Set(ids)].filter((id) => !held.has(keyOf(root, id))).toSorted();
      if (fresh.length === 0) return fresh;
      advance(root);
      for (const id of fresh) held.add(keyOf(root, id));
      return fresh;
    },
    advance,
  };
}
