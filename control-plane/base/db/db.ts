// The one way to talk to SQL: the interface that both drivers keep, and what a transaction body may do.
import type { Sql } from 'sql-template-tag';
import type { z } from 'zod';
import { messageOf } from '../../../shared/errors.ts';

export { default as sql, join, raw, type Sql } from 'sql-template-tag';

/** Statements that only look. Rows are decoded by a zod schema, so a column that is not what the code expects fails loudly. */
export interface Query {
  all<T>(row: z.ZodType<T>, statement: Sql): Promise<T[]>;
  /** The first row, or undefined. */
  one<T>(row: z.ZodType<T>, statement: Sql): Promise<T | undefined>;
}

export interface Tx extends Query {
  /** Number of rows that changed: 0 means that a compare-and-set was stale. */
  run(statement: Sql): Promise<number>;
}

export interface Db {
  readonly dialect: 'sqlite' | 'postgres';
  /** Single committed statements, outside any transaction. */
  readonly read: Query;
  /**
   * Runs `body` in a transaction; resolves once it is durable. All transactions behave as if they ran one after another.
   * - A body awaits only `tx`: bodies run one after another and share commits, so one that waits for anything else holds up every
   *   other writer. SQLite, where it can be seen, rolls such a body back with `tx_awaited_outside`.
   * - A body may run more than once (PostgreSQL, after a collision with a foreign writer): no effects outside `tx`.
   * - `db.tx` or `db.read` inside a body throws `tx_nested`.
   */
  tx<T>(name: string, body: (tx: Tx) => Promise<T>): Promise<T>;
  close(): Promise<void>;
}

/** Misuse of the database by our own code, or a database that cannot be used. `code` is stable for tests. */
export class DbError extends Error {
  readonly code:
    | 'tx_nested'
    | 'tx_awaited_outside'
    | 'tx_over'
    | 'bad_value'
    | 'database_in_use'
    | 'unsupported'
    | 'migration'
    | 'bad_backup'
    | 'disk_full'
    | 'unavailable'
    | 'lease_lost';

  constructor(code: DbError['code'], message: string, cause?: unknown) {
    super(`${code}: ${message}`, { cause });
    this.name = 'DbError';
    this.code = code;
  }
}

/** What SQLite and PostgreSQL say if they cannot write because their disk is full. */
const FULL_CODES = new Set(['SQLITE_FULL', 'SQLITE_IOERR_SHMSIZE', '53100']);

/**
 * What PostgreSQL, or the network before it, says if the server is away, is shutting down or takes no writes any more. The connection is
 * of no use after it.
 */
const AWAY_CODES =
  /^(08...|57P0[123]|25006|53300|ECONN(REFUSED|RESET)|ETIMEDOUT|EPIPE|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH)$/;
/** The driver gives these no code. */
const AWAY_WORDS = /^(Connection terminated|timeout exceeded when trying to connect|Query read timeout)/;

/** One statement took too long, or waited too long for a lock; the connection is good. */
const LATE_CODES = new Set(['57014', '55P03']);

export function isAway(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const code = 'code' in error ? error.code : undefined;
  return typeof code === 'string' ? AWAY_CODES.test(code) : AWAY_WORDS.test(error.message);
}

export function isFull(error: unknown): boolean {
  return error instanceof Error && 'code' in error && FULL_CODES.has(String(error.code));
}

/** A full disk and a server that is away as our own errors, whichever engine met them; everything else as it is. */
export function engineError(error: unknown): unknown {
  if (error instanceof DbError) return error;
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  if (isAway(error) || LATE_CODES.has(code))
    return new DbError('unavailable', `the database cannot be used now: ${messageOf(error)}`, error);
  if (!isFull(error)) return error;
  return new DbError('disk_full', 'the disk of the database is full', error);
}

/** What both engines store. Money is always BigInt. */
export type SqlValue = string | bigint | Uint8Array | null;

/**
 * Turns a parameter into a stored value. Numbers must be whole (better-sqlite3 would bind them as REAL and lose a unit
 * above 2^53 without a word), booleans become 0 and 1.
 */
export function storedValue(value: unknown): SqlValue {
  if (value === null || typeof value === 'string' || typeof value === 'bigint' || value instanceof Uint8Array)
    return value;
  if (typeof value === 'boolean') return value ? 1n : 0n;
  if (typeof value === 'number' && Number.isSafeInteger(value)) return BigInt(value);
  throw new DbError('bad_value', `a parameter of type ${typeof value} cannot be stored; numbers must be whole`);
}
