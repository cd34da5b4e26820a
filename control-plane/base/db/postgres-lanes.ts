// Lanes: bodies that run side by side on PostgreSQL, each in a READ COMMITTED transaction on a connection of its own.
//
// A body costs one round trip for each statement that it waits for, and one for the COMMIT. BEGIN, the check of the lease and the locks wait
// for nothing: they travel in one packet with the first statement.
//
//   packet 1   BEGIN; check of the lease; lock org; first statement     -> its rows
//   packet 2   second statement                                         -> its rows
//   packet 3   COMMIT
//
// If one statement fails, the server ignores the rest of the transaction. Then the body is rolled back, and it runs again if it only
// collided with another one (a deadlock). Bodies beyond the number of lanes wait in a queue.
import type { PoolClient } from 'pg';
import { fullJitterMs } from '../../../shared/backoff.ts';
import type { Clock } from '../../../shared/clock.ts';
import type { Rng } from '../../../shared/rng.ts';
import { type Body, decoding, openLockOrder } from './bodies.ts';
import { DbError, engineError, raw, type Sql, sql, type Tx } from './db.ts';
import type { OnCommit } from './group-commit.ts';
import { ROOTS } from './locks.ts';
import { joining } from './together.ts';
import { BEGIN, COMMIT, isCollision, onConnection, type StatementKind, type Writing } from './postgres-connections.ts';
import type { Answered, Asked } from './postgres-pipeline.ts';

const TRIES_MAX = 10;

export interface Lanes {
  /** Resolves with the value of the body once it is durable. */
  run(body: Body): Promise<unknown>;
  /** Resolves when everything queued so far has ended. */
  idle(): Promise<void>;
}

interface LanesDeps {
  clock: Clock;
  rng: Rng;
  onCommit?: OnCommit | undefined;
}

export function openLanes(count: number, writing: Writing, deps: LanesDeps): Lanes {
  const waiting: (() => void)[] = [];
  const running = new Set<Promise<unknown>>();
  let free = count;
  const run = async (body: Body): Promise<unknown> => {
    if (free > 0) free -= 1;
    else await new Promise<void>((resolve) => waiting.push(resolve));
    try {
      return await untilCommitted(body, writing, deps);
    } catch (error) {
      throw engineError(error);
    } finally {
      // The body that has waited longest gets the lane at once.
      const next = waiting.shift();
      if (next === undefined) free += 1;
      else next();
    }
  };
  return {
    run: (body) => {
      const done = run(body);
      const noted = done.catch(() => undefined).finally(() => running.delete(noted));
      running.add(noted);
      return done;
    },
    idle: async () => void (await Promise.all(running)),
  };
}

async function untilCommitted(body: Body, writing: Writing, { clock, rng, onCommit }: LanesDeps): Promise<unknown> {
  for (let attempt = 0; ; attempt += 1) {
    const startedMs = clock.monotonicMs();
    try {
      const value = await onConnection(writing, (client) => runBody(client, body, writing));
      onCommit?.(1, (clock.monotonicMs() - startedMs) / 1000);
      return value;
    } catch (error) {
      if (!isCollision(error) || attempt === TRIES_MAX) throw error;
    }
    await clock.sleep(fullJitterMs(attempt, 1, 200, rng));
  }
}

async function runBody(client: PoolClient, body: Body, writing: Writing): Promise<unknown> {
  const transaction = openTransaction(client, writing);
  try {
    const value = await body.run(transaction.tx);
    await transaction.commit();
    return value;
  } catch (error) {
    // The first failure explains the others, which only say that the transaction is aborted.
    throw (await transaction.firstFailure()) ?? error;
  }
}

interface Transaction {
  tx: Tx;
  commit(): Promise<void>;
  /** Prevents further use of `tx`. Resolves when all statements are answered. */
  firstFailure(): Promise<Error | undefined>;
}

/** Sends BEGIN at once. The answers to BEGIN and to the locks are read before the COMMIT is sent. */
function openTransaction(client: PoolClient, { statements, fence, ask }: Writing): Transaction {
  let open = true;
  let failure: Error | undefined;
  const unanswered = new Set<Promise<unknown>>();
  const order = openLockOrder();
  const send = (statement: Asked): Promise<Answered> => {
    const answer = ask(client, statement);
    const noted = answer.catch((error: Error) => void (failure ??= error)).finally(() => unanswered.delete(noted));
    unanswered.add(noted);
    return answer;
  };
  const execute = async (statement: Sql, kind: StatementKind = 'single'): Promise<Answered> => {
    if (!open) throw new DbError('tx_over', 'this transaction is over');
    return send(statements.prepared(statement, kind));
  };
  void send(BEGIN).catch(() => undefined);
  const check = fence();
  if (check !== undefined) void send(check).catch(() => undefined);

  const tx: Tx = {
    ...decoding(async (statement) => (await execute(statement)).rows),
    run: async (statement) => (await execute(statement)).rowCount,
    lock: async (root, ...ids) => {
      if (!open) throw new DbError('tx_over', 'this transaction is over');
      const fresh = order.next(root, ids);
      if (fresh.length > 0) void send(lockOf(ROOTS[root], fresh)).catch(() => undefined);
    },
    firstUnlocked: (root, ids, still) => {
      order.advance(root);
      return firstUnlocked(ROOTS[root], ids, still);
    },
    together: (work) => work(joining(tx, async (joined) => countsOf((await execute(joined, 'joined')).rows))),
  };
  return {
    tx,
    commit: async () => {
      open = false;
      await Promise.all(unanswered);
      if (failure !== undefined) throw failure;
      await send(COMMIT);
    },
    firstFailure: async () => {
      open = false;
      await Promise.all(unanswered);
      return failure;
    },
  };
}

/** The columns of the one row of joined writes. */
function countsOf(rows: readonly unknown[]): number[] {
  return Object.values(rows[0] as Record<string, bigint>).map(Number);
}

/** Several rows are locked in the order of their ids, so that two bodies with common rows never wait for each other. */
function lockOf(table: string, ids: readonly string[]): Asked {
  const [id = ''] = ids;
  // The server keeps the plan of this text. It would plan the text for several rows anew at each call.
  if (ids.length === 1)
    return { text: `select id from ${table} where id = $1 for no key update`, values: [id], name: `lock one ${table}` };
  const text = `select id from ${table} where id = any(cast($1 as text[])) order by id for no key update`;
  return { text, values: [arrayOf(ids)], name: `lock ${table}` };
}

/** An array of PostgreSQL as text. */
function arrayOf(ids: readonly string[]): string {
  return `{${ids.map((id) => `"${id.replaceAll(/["\\]/g, String.raw`\$&`)}"`).join(',')}}`;
}

/**
 * The server looks at one id after another, in the order of the array, until it has locked a row. It cannot do that from the other side, because
 * the inner select depends on the outer row. The array is a literal of JSON, because a parameter of ours is text or a number.
 */
function firstUnlocked(table: string, ids: readonly string[], still: Sql): Sql {
  return sql`select one.id from json_array_elements_text(cast(${JSON.stringify(ids)} as json)) as wanted(id), lateral (
      select id from ${raw(table)} where id = wanted.id and ${still} for no key update skip locked) as one limit 1`;
}
