// PostgreSQL driver: one writer connection with the same group commit as SQLite, and a pool for committed reads.
//
// Exactly one control plane writes: each batch first checks the lease `primary`. So running bodies one after another costs no concurrency
// between processes. It avoids the retries that one transaction per body would need on rows that every rental touches (clearing, revenue),
// and the waiting bodies share one commit. Transactions are serializable, so a conflict with another writer is still detected. The batch
// then runs again.
import { DatabaseError, escapeLiteral, Pool, type PoolClient, type QueryResult, types } from 'pg';
import type { Sql } from 'sql-template-tag';
import type { z } from 'zod';
import { fullJitterMs } from '../../../shared/backoff.ts';
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import type { Rng } from '../../../shared/rng.ts';
import { type Db, DbError, engineError, isAway, type Query, type Tx, storedValue } from './db.ts';
import type { Held } from './lease.ts';
import { type Body, type OnCommit, openGroupCommit, type BodyResult } from './group-commit.ts';

const INT8_TYPE = 20;
/** Connections for reads. Writes use one connection of their own. */
const CONNECTIONS_MAX = 8;
/** Limits how many bodies share one commit, and so how long the first of them waits. */
const BODIES_PER_COMMIT_MAX = 128;
/** Serialization failure and deadlock: the batch was rolled back and may run again. */
const RETRY_CODES = new Set(['40001', '40P01']);
const TRIES_MAX = 10;

/** Timeouts after which a server that does not answer is given up. No request of a caller takes this long. */
const CONNECT_MS_MAX = 5_000;
const STATEMENT_MS_MAX = 60_000;
const LOCK_MS_MAX = 10_000;
const IDLE_IN_TRANSACTION_MS_MAX = 30_000;
const KEEP_ALIVE_MS = 10_000;

export interface PostgresDb extends Db {
  /** From now on, each transaction is refused with `lease_lost` if another process holds the lease. */
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
  /** A demoted server still answers reads, without end. So after it has refused a write, all connections are opened anew. */
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
    // The server ends a slow statement by itself. This timeout is for a server that no longer answers.
    query_timeout: STATEMENT_MS_MAX + CONNECT_MS_MAX,
    lock_timeout: LOCK_MS_MAX,
    idle_in_transaction_session_timeout: IDLE_IN_TRANSACTION_MS_MAX,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
    types: {
      // Reads int8 as BigInt: the driver's default is text, and a number would lose microcents.
      getTypeParser: (id, format) =>
        id === INT8_TYPE && format !== 'binary' ? BigInt : types.getTypeParser(id, format),
    },
  });
  // Without a listener, an idle connection that the server drops would end the process. The next query opens a new one.
  pool.on('error', (error) => log.warn({ err: error }, 'an idle database connection was lost'));
  return pool;
}

interface Writing {
  writers: Pool;
  held: Held | undefined;
  onAway(): void;
}

async function commitBatch(batch: readonly Body[], to: Writing, { clock, rng }: PostgresDeps): Promise<BodyResult[]> {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await runBatch(batch, to);
    } catch (error) {
      if (!isCollision(error) || attempt === TRIES_MAX) throw error;
    }
    await clock.sleep(fullJitterMs(attempt, 1, 200, rng));
  }
}

/** Runs all bodies in one transaction, each in a savepoint. Throws if the whole transaction was rolled back. */
async function runBatch(batch: readonly Body[], { writers, held, onAway }: Writing): Promise<BodyResult[]> {
  const client = await writers.connect();
  // The pool does not listen for errors while we hold the connection. If it is lost, its statements fail, and without this listener the
  // same error would end the process.
  const onLost = (): void => undefined;
  client.on('error', onLost);
  let broken = true;
  try {
    await begin(client, held);
    const outcomes: BodyResult[] = [];
    for (const body of batch) outcomes.push(await runBody(client, body));
    await client.query('COMMIT');
    broken = false;
    return outcomes;
  } catch (error) {
    await client.query('ROLLBACK').then(
      // A read-only server accepts the rollback. Its connection must be dropped, or we would use it for ever.
      () => (broken = isAway(error)),
      () => undefined,
    );
    if (broken) onAway();
    throw error;
  } finally {
    // The next batch must not get a connection that cannot even roll back.
    client.release(broken);
    client.off('error', onLost);
  }
}

/**
 * Begins the transaction and checks the lease in one packet. The lock on the lease row keeps others from taking it over before this
 * transaction ends.
 */
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

async function runBody(client: PoolClient, body: Body): Promise<BodyResult> {
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
