// Connections to PostgreSQL: pools with time limits, prepared statements, and the check of the lease.
import { DatabaseError, escapeLiteral, Pool, type PoolClient, types } from 'pg';
import { DbError, isAway, type SqlValue, storedValue } from './db.ts';
import { openTexts, type Sql, templateOf } from './sql.ts';
import type { Held } from './lease.ts';
import type { Ask, Asked } from './postgres-pipeline.ts';
import type { Reach } from './reach.ts';

const INT8_TYPE = 20;

/** Timeouts after which a server that does not answer is given up. No request of a caller takes this long. */
const CONNECT_MS_MAX = 5_000;
const STATEMENT_MS_MAX = 60_000;
const LOCK_MS_MAX = 10_000;
const IDLE_IN_TRANSACTION_MS_MAX = 30_000;
const KEEP_ALIVE_MS = 10_000;

/** Statements whose plans a connection keeps. Their texts come from the source, but lists of ids make new texts without end. */
const PREPARED_MAX = 1_000;
const PREPARED_VALUES_MAX = 40;
/** The texts of all statements of the sources, and of some hundred lists. */
const TEXTS_CHARS_MAX = 1024 * 1024;

/** The first statement of a transaction, that of a snapshot, and the last statement of both. */
export const BEGIN: Asked = { text: 'BEGIN ISOLATION LEVEL READ COMMITTED', name: 'begin' };
export const BEGIN_SNAPSHOT: Asked = {
  text: 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY',
  name: 'begin snapshot',
};
export const COMMIT: Asked = { text: 'COMMIT', name: 'commit' };

/** What transactions need from the driver. */
export interface Writing {
  writers: Pool;
  statements: Statements;
  ask: Ask;
  /** The statement that fails if this process does not hold the lease; undefined before the process has taken the lease. */
  fence(): Asked | undefined;
  /** Called after a server has refused a write. A demoted server would still answer reads for ever, so all connections are opened anew. */
  onAway(): void;
  reach: Reach;
}

/** The server ends a slow statement by itself. `query_timeout` is for a server that no longer answers. */
const STATEMENT_LIMITS = { statement_timeout: STATEMENT_MS_MAX, query_timeout: STATEMENT_MS_MAX + CONNECT_MS_MAX };

interface PoolOptions {
  max: number;
  /** If it is true, a statement may take any time. */
  unlimited?: boolean;
}

export function openPool(url: string, { unlimited = false, ...size }: PoolOptions, reach: Reach): Pool {
  const pool = new Pool({
    ...size,
    // A connection sends a packet without waiting for the answers to earlier ones.
    pipeline: true,
    ...(unlimited ? { statement_timeout: 0 } : STATEMENT_LIMITS),
    connectionString: url,
    connectionTimeoutMillis: CONNECT_MS_MAX,
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
  // If there were no listener, an idle connection that the server drops would end the process. The next query opens a new one.
  pool.on('error', reach.lostIdle);
  // The pool does not listen to a connection that it has lent. If that is lost, its statements fail, and without a listener the same error would end
  // the process. The borrower would listen too late: the server may end a connection in the packet in which it opens it.
  pool.on('connect', (client) => void client.on('error', () => undefined));
  return pool;
}

/** `joined`: several writes in one statement (together.ts). It may have many values, but they are no list whose length changes. */
export type StatementKind = 'single' | 'joined';

export interface Statements {
  /** The statement as the driver sends it, with a name if the server should keep its plan. */
  prepared(statement: Sql, kind?: StatementKind): { text: string; values: SqlValue[]; name?: string };
}

interface NamedText {
  text: string;
  name?: string;
}

export function openStatements(): Statements {
  const textOf = openTexts(withParameters, TEXTS_CHARS_MAX);
  const ofText = new Map<string, NamedText>();
  /** Saves the walk through the parts. The cache cannot grow without bound, because templates come from the source code only. */
  const ofTemplate = new Map<TemplateStringsArray, NamedText>();
  let names = 0;
  const named = (text: string, mayBeKept: boolean): NamedText => {
    const found = ofText.get(text);
    if (found !== undefined) return found;
    if (names >= PREPARED_MAX || !mayBeKept) return { text };
    const made = { text, name: `s${names}` };
    names += 1;
    ofText.set(text, made);
    return made;
  };
  const namedTextOf = (statement: Sql, mayBeKept: boolean): NamedText => {
    const template = templateOf(statement);
    if (template === undefined) return named(textOf(statement), mayBeKept);
    const found = ofTemplate.get(template);
    if (found !== undefined) return found;
    const made = named(textOf(statement), mayBeKept);
    ofTemplate.set(template, made);
    return made;
  };
  return {
    prepared: (statement, kind = 'single') => {
      const values = statement.values.map(storedValue);
      const mayBeKept = kind === 'joined' || values.length <= PREPARED_VALUES_MAX;
      return { ...namedTextOf(statement, mayBeKept), values };
    },
  };
}

function withParameters(strings: readonly string[]): string {
  return strings.reduce((text, next, i) => `${text}$${i}${next}`);
}

/** Runs `work` on a connection of its own. Afterwards the connection is in no transaction, or it is dropped. */
export function onConnection<T>(
  { writers, onAway, reach }: Writing,
  work: (client: PoolClient) => Promise<T>,
): Promise<T> {
  return borrow({ pool: writers, reach }, async (client, drop) => {
    try {
      return await work(client);
    } catch (error) {
      const isUndone = await client.query('ROLLBACK').then(
        () => true,
        () => false,
      );
      // A read-only server accepts the rollback. Its connection must be dropped, or we would use it for ever.
      if (!isUndone || isAway(error)) {
        drop();
        onAway();
      }
      throw fenceError(error);
    }
  });
}

/** Lends a connection of the pool to `work`. It goes back to the pool afterwards, unless `drop` was called. */
export async function borrow<T>(
  { pool, reach }: { pool: Pool; reach: Reach },
  work: (client: PoolClient, drop: () => void) => Promise<T>,
): Promise<T> {
  try {
    const value = await lend(pool, work);
    reach.worked();
    return value;
  } catch (error) {
    reach.failed(error);
    throw error;
  }
}

async function lend<T>(pool: Pool, work: (client: PoolClient, drop: () => void) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  let isDropped = false;
  try {
    return await work(client, () => (isDropped = true));
  } finally {
    client.release(isDropped);
  }
}

/**
 * The statement that begins a transaction after `BEGIN`. It locks the row of the lease against a takeover until the transaction ends, but not
 * against our own renewal (see LEASES_TABLE). If the lease is not ours, the division fails, and nothing that follows in the packet is stored.
 */
export function fenceOf({ name, holder, epoch }: Held): Asked {
  const isOurs = `name = ${escapeLiteral(name)} and holder = ${escapeLiteral(holder)} and epoch = ${epoch}`;
  const text = `SELECT 1 / coalesce((SELECT 1 FROM leases WHERE ${isOurs} FOR KEY SHARE), 0)`;
  // The server plans a statement with a name once for each connection. A process has one holder, so lease and epoch are name enough.
  return { name: `fence ${name} ${epoch}`, text };
}

/** Division by zero. No other statement of ours divides by a column. */
const FENCED_CODE = '22012';

function fenceError(error: unknown): unknown {
  if (!(error instanceof DatabaseError) || error.code !== FENCED_CODE) return error;
  return new DbError('lease_lost', 'another control plane has taken this database over', error);
}

/** A serialization failure or a deadlock: the transaction was rolled back and may run again. */
export function isCollision(error: unknown): boolean {
  return error instanceof DatabaseError && (error.code === '40001' || error.code === '40P01');
}
