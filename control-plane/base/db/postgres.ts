// PostgreSQL driver: one writer connection with the same group commit as SQLite, and a pool for committed reads.
//
// Exactly one control plane writes (the lease `primary`, asked for at the begin of each batch), so running bodies one after another costs no
// concurrency between processes.
// It saves the retries that a transaction per body would need on the rows that every rental touches (clearing, revenue), and shares
// one commit among the bodies that wait. A collision with a foreign writer is still noticed (serializable) and the batch runs again.
import { DatabaseError, escapeLiteral, Pool, type PoolClient, type QueryResult, types } from 'pg';
import type { Sql } from 'sql-template-tag';
import type { z } from 'zod';
import { fullJitterMs } from '../../../shared/backoff.ts';
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import type { Rng } from '../../../shared/rng.ts';
import { type Db, DbError, engineError, isAway, type Query, type Tx, storedValue } from './db.ts';
import type { Held } from './lease.ts';
import { type Body, type OnCommit, openGroupCommit, type Outcome } from './group-commit.ts';

const INT8_TYPE = 20;
/** For reads; writes have one connection of their own. */
const CONNECTIONS_MAX = 8;
/** Bodies that share one commit at most; bounds how long the first of them waits. */
const BODIES_PER_COMMIT_MAX = 128;
/** Serialization failure and deadlock: the batch had no effect and may run again. */
const RETRY_CODES = new Set(['40001', '40P01']);
const TRIES_MAX = 10;

/** A server that does not answer is given up after these. Nothing that serves a caller takes as long. */
const CONNECT_MS_MAX = 5_000;
const STATEMENT_MS_MAX = 60_000;
const LOCK_MS_MAX = 10_000;
const IDLE_IN_TRANSACTION_MS_MAX = 30_000;
const KEEP_ALIVE_MS = 10_000;

export interface PostgresDb extends Db {
  /** From now on each transaction is refused with `lease_lost` if another process holds the lease. */
  fence(held: Held): void;
}

interface PostgresDeps {
  clock: Clock;
  log: Log;
  rng: Rng;
  onCommit?: OnCommit;
}

/** Opens a pool on `url` (`postgres://...`). Connections are made when first needed. */
export function openPostgres(url: string, deps: PostgresDeps): PostgresDb {
  const writers = openPool(url, 1, deps.log);
  let readers = openPool(url, CONNECTIONS_MAX, deps.log);
  let held: Held | undefined;
  /** A server that was demoted answers reads for ever: after it has refused a write, all connections are made anew. */
  const onAway = (): void => {
    const before = readers;
    readers = openPool(url, CONNECTIONS_MAX, deps.log);
    void before.end();
  };
  const group = openGroupCommit((batch) => commitBatch(batch, { writers, held, onAway }, deps), {
    clock: deps.clock,
    batchMax: BODIES_PER_COMMIT_MAX,
    onCommit: deps.onCommit,
  });
  const reads = statements(async (statement) => {
    try {
      return await readers.query(statement.text, statement.values.map(storedValue));
    } catch (error) {
      throw engineError(error);
    }
  });

  return {
    dialect: 'postgres',
    read: group.outside(reads),
    tx: group.tx,
    fence: (lease) => void (held = lease),
    close: async () => {
      await group.idle();
      await writers.end();
      await readers.end();
    },
  };
}

function openPool(url: string, max: number, log: Log): Pool {
  const pool = new Pool({
    connectionString: url,
    max,
    connectionTimeoutMillis: CONNECT_MS_MAX,
    statement_timeout: STATEMENT_MS_MAX,
    // The server ends a statement by itself; this is for one that does not answer any more.
    query_timeout: STATEMENT_MS_MAX + CONNECT_MS_MAX,
    lock_timeout: LOCK_MS_MAX,
    idle_in_transaction_session_timeout: IDLE_IN_TRANSACTION_MS_MAX,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
    types: {
      // int8 as BigInt: the default is text, and a number would lose microcents.
      getTypeParser: (id, format) =>
        id === INT8_TYPE && format !== 'binary' ? BigInt : types.getTypeParser(id, format),
    },
  });
  // An idle connection that the server drops must not end the process; the next query gets a new one.
  pool.on('error', (error) => log.warn({ err: error }, 'an idle database connection was lost'));
  return pool;
}

interface Writing {
  writers: Pool;
  held: Held | undefined;
  onAway(): void;
}

async function commitBatch(batch: readonly Body[], to: Writing, { clock, rng }: PostgresDeps): Promise<Outcome[]> {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await runBatch(batch, to);
    } catch (error) {
      if (!isCollision(error) || attempt === TRIES_MAX) throw error;
    }
    await clock.sleep(fullJitterMs(attempt, 1, 200, rng));
  }
}

/** All bodies in one transaction, a savepoint each. Throws where the transaction as a whole came to nothing. */
async function runBatch(batch: readonly Body[], { writers, held, onAway }: Writing): Promise<Outcome[]> {
  const client = await writers.connect();
  // The pool does not listen while we have it. Its statements fail where the connection is lost; the same error, unheard, ends the process.
  const onLost = (): void => undefined;
  client.on('error', onLost);
  let broken = true;
  try {
    await begin(client, held);
    const outcomes: Outcome[] = [];
    for (const body of batch) outcomes.push(await runBody(client, body));
    await client.query('COMMIT');
    broken = false;
    return outcomes;
  } catch (error) {
    await client.query('ROLLBACK').then(
      // A server that takes no writes rolls back well, and would be asked for ever.
      () => (broken = isAway(error)),
      () => undefined,
    );
    if (broken) onAway();
    throw error;
  } finally {
    // A connection that cannot even roll back is not given to the next batch.
    client.release(broken);
    client.off('error', onLost);
  }
}

/** In one packet with the question whether the lease is still ours: nobody takes it over before this transaction is over. */
async function begin(client: PoolClient, held: Held | undefined): Promise<void> {
  const start = 'BEGIN ISOLATION LEVEL SERIALIZABLE';
  if (held === undefined) return void (await client.query(`${start}; SAVEPOINT body`));
  const { name, holder, epoch } = held;
  const ours = `name = ${escapeLiteral(name)} and holder = ${escapeLiteral(holder)} and epoch = ${epoch}`;
  const answer: unknown = await client.query(
    `${start}; SELECT epoch FROM leases WHERE ${ours} FOR SHARE; SAVEPOINT body`,
  );
  const isOurs = Array.isArray(answer) && (answer as QueryResult[])[1]?.rowCount === 1;
  if (!isOurs) throw new DbError('lease_lost', 'another control plane has taken this database over');
}

async function runBody(client: PoolClient, body: Body): Promise<Outcome> {
  let open = true;
  const execute = async (statement: Sql): Promise<QueryAnswer> => {
    if (!open) throw new DbError('tx_over', 'this transaction is over');
    return client.query(statement.text, statement.values.map(storedValue));
  };
  const tx: Tx = { ...statements(execute), run: async (statement) => (await execute(statement)).rowCount ?? 0 };
  try {
    const value = await body.run(tx);
    open = false;
    await client.query('RELEASE body; SAVEPOINT body');
    return { value };
  } catch (error) {
    open = false;
    if (isCollision(error) || isAway(error)) throw error;
    await client.query('ROLLBACK TO body');
    return { error };
  }
}

function isCollision(error: unknown): boolean {
  return error instanceof DatabaseError && RETRY_CODES.has(error.code ?? '');
}

interface QueryAnswer {
  rows: unknown[];
  rowCount: number | null;
}

function statements(execute: (statement: Sql) => Promise<QueryAnswer>): Query {
  const all = async <T>(row: z.ZodType<T>, statement: Sql): Promise<T[]> =>
    (await execute(statement)).rows.map((value) => row.parse(value));
  return { all, one: async (row, statement) => (await all(row, statement))[0] };
}
