// PostgreSQL driver: one writer connection with the same group commit as SQLite, and a pool for committed reads.
//
// Exactly one control plane writes (the lease `primary`), so running bodies one after another costs no concurrency between processes.
// It saves the retries that a transaction per body would need on the rows that every rental touches (clearing, revenue), and shares
// one commit among the bodies that wait. A collision with a foreign writer is still noticed (serializable) and the batch runs again.
import { DatabaseError, Pool, type PoolClient, types } from 'pg';
import type { Sql } from 'sql-template-tag';
import type { z } from 'zod';
import { fullJitterMs } from '../../../shared/backoff.ts';
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import type { Rng } from '../../../shared/rng.ts';
import { type Db, DbError, type Query, type Tx, storedValue } from './db.ts';
import { type Body, type OnCommit, openGroupCommit, type Outcome } from './group-commit.ts';

const INT8_TYPE = 20;
/** For reads; writes have one connection of their own. */
const CONNECTIONS_MAX = 8;
/** Bodies that share one commit at most; bounds how long the first of them waits. */
const BODIES_PER_COMMIT_MAX = 128;
/** Serialization failure and deadlock: the batch had no effect and may run again. */
const RETRY_CODES = new Set(['40001', '40P01']);
const TRIES_MAX = 10;

interface PostgresDeps {
  clock: Clock;
  log: Log;
  rng: Rng;
  onCommit?: OnCommit;
}

/** Opens a pool on `url` (`postgres://...`). Connections are made when first needed. */
export function openPostgres(url: string, deps: PostgresDeps): Db {
  const writers = openPool(url, 1, deps.log);
  const readers = openPool(url, CONNECTIONS_MAX, deps.log);
  const group = openGroupCommit((batch) => commitBatch(batch, writers, deps), {
    clock: deps.clock,
    batchMax: BODIES_PER_COMMIT_MAX,
    onCommit: deps.onCommit,
  });
  const reads = statements((statement) => readers.query(statement.text, statement.values.map(storedValue)));

  return {
    dialect: 'postgres',
    read: group.outside(reads),
    tx: group.tx,
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

async function commitBatch(batch: readonly Body[], writers: Pool, { clock, rng }: PostgresDeps): Promise<Outcome[]> {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await runBatch(batch, writers);
    } catch (error) {
      if (!isCollision(error) || attempt === TRIES_MAX) throw error;
    }
    await clock.sleep(fullJitterMs(attempt, 1, 200, rng));
  }
}

/** All bodies in one transaction, a savepoint each. Throws where the transaction as a whole came to nothing. */
async function runBatch(batch: readonly Body[], writers: Pool): Promise<Outcome[]> {
  const client = await writers.connect();
  // The pool does not listen while we have it. Its statements fail where the connection is lost; the same error, unheard, ends the process.
  const onLost = (): void => undefined;
  client.on('error', onLost);
  let broken = true;
  try {
    await client.query('BEGIN ISOLATION LEVEL SERIALIZABLE; SAVEPOINT body');
    const outcomes: Outcome[] = [];
    for (const body of batch) outcomes.push(await runBody(client, body));
    await client.query('COMMIT');
    broken = false;
    return outcomes;
  } catch (error) {
    await client.query('ROLLBACK').then(
      () => (broken = false),
      () => undefined,
    );
    throw error;
  } finally {
    // A connection that cannot even roll back is not given to the next batch.
    client.release(broken);
    client.off('error', onLost);
  }
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
    if (isCollision(error)) throw error;
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
