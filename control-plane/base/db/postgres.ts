// PostgreSQL driver: each body is a serializable transaction, tried again when the server says that it collided with another.
import { AsyncLocalStorage } from 'node:async_hooks';
import { DatabaseError, Pool, type PoolClient, types } from 'pg';
import type { Sql } from 'sql-template-tag';
import type { z } from 'zod';
import { fullJitterMs } from '../../../shared/backoff.ts';
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import type { Rng } from '../../../shared/rng.ts';
import { type Db, DbError, type Query, type Tx, storedValue } from './db.ts';

const INT8_TYPE = 20;
const CONNECTIONS_MAX = 16;
/** Serialization failure and deadlock: the transaction had no effect and may run again. */
const RETRY_CODES = new Set(['40001', '40P01']);
const TRIES_MAX = 40;

/** Opens a pool on `url` (`postgres://...`). Connections are made when first needed. */
export function openPostgres(url: string, deps: { clock: Clock; log: Log; rng: Rng }): Db {
  const { clock, log, rng } = deps;
  const inside = new AsyncLocalStorage<string>();
  const pool = new Pool({
    connectionString: url,
    max: CONNECTIONS_MAX,
    types: {
      // int8 as BigInt: the default is text, and a number would lose microcents.
      getTypeParser: (id, format) =>
        id === INT8_TYPE && format !== 'binary' ? BigInt : types.getTypeParser(id, format),
    },
  });
  // An idle connection that the server drops must not end the process; the next query gets a new one.
  pool.on('error', (error) => log.warn({ err: error }, 'an idle database connection was lost'));

  const refuseNested = (name: string): void => {
    const outer = inside.getStore();
    if (outer !== undefined)
      throw new DbError('tx_nested', `${name} was called inside the transaction ${outer}; pass its tx instead`);
  };

  const tx = async <T>(name: string, body: (tx: Tx) => Promise<T>): Promise<T> => {
    refuseNested(name);
    for (let attempt = 0; ; attempt += 1) {
      const client = await pool.connect();
      try {
        return await inside.run(name, () => runOnce(client, body));
      } catch (error) {
        const again = error instanceof DatabaseError && RETRY_CODES.has(error.code ?? '') && attempt < TRIES_MAX;
        if (!again) throw error;
      } finally {
        client.release();
      }
      await clock.sleep(fullJitterMs(attempt, 1, 200, rng));
    }
  };

  const committed = statements((statement) => pool.query(statement.text, statement.values.map(storedValue)));
  return {
    dialect: 'postgres',
    read: {
      all: async (row, statement) => {
        refuseNested('read');
        return committed.all(row, statement);
      },
      one: async (row, statement) => {
        refuseNested('read');
        return committed.one(row, statement);
      },
    },
    tx,
    close: () => pool.end(),
  };
}

async function runOnce<T>(client: PoolClient, body: (tx: Tx) => Promise<T>): Promise<T> {
  let open = true;
  const execute = async (statement: Sql): Promise<QueryAnswer> => {
    if (!open) throw new DbError('tx_over', 'this transaction is over');
    return client.query(statement.text, statement.values.map(storedValue));
  };
  try {
    await client.query('BEGIN ISOLATION LEVEL SERIALIZABLE');
    const result = await body({
      ...statements(execute),
      run: async (statement) => (await execute(statement)).rowCount ?? 0,
    });
    await client.query('COMMIT');
    return result;
  } catch (error) {
    await client.query('ROLLBACK').catch(() => undefined);
    throw error;
  } finally {
    open = false;
  }
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
