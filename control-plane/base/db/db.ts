// The only way to talk to SQL: the interface that both drivers implement, and the rules for a transaction body.
import type { z } from 'zod';
import { codeOf, messageOf } from '../../../shared/errors.ts';
import type { Root } from './locks.ts';
import type { Sql } from './sql.ts';

export { join, raw, sql, type Sql } from './sql.ts';

/** Read-only statements. A zod schema decodes each row, so an unexpected column fails with an error. */
export interface Query {
  all<T>(row: z.ZodType<T>, statement: Sql): Promise<T[]>;
  /** The first row, or undefined. */
  one<T>(row: z.ZodType<T>, statement: Sql): Promise<T | undefined>;
}

export interface Tx extends Query {
  /** Returns the number of changed rows: 0 means that a compare-and-set was stale. */
  run(statement: Sql): Promise<number>;
  /**
   * Waits until no other transaction holds these rows, and holds them until the end of this one. See locks.ts for the rules.
   * Ids without a row and rows that are held already are skipped.
   */
  lock(root: Root, ...ids: readonly string[]): Promise<void>;
  /**
   * A part of a statement of this body: it selects the `id` of the first of these rows that no other transaction holds now and that is `still`
   * as the body has read it. The statement holds that row; if there is none, it holds nothing. For work that any of the rows can do, so that
   * transactions at the same time do not queue for one of them. Use it once, as a materialized part, because each use may hold another row.
   */
  firstUnlocked(root: Root, ids: readonly string[], still: Sql): Sql;
  /**
   * Gives `work` a transaction whose `run`s of the same moment are one statement on PostgreSQL (together.ts). They must not depend on each other:
   * none reads or changes a row that another one changes.
   */
  together<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
}

export interface Db {
  readonly dialect: 'sqlite' | 'postgres';
  /** Single statements on committed data, outside any transaction. */
  readonly read: Query;
  /**
   * Runs `body` in a transaction and resolves when it is durable. On SQLite, bodies run one after another. On PostgreSQL they run side by
   * side (READ COMMITTED), and each statement sees what others have committed before it. So a body that reads and then writes first locks its
   * root row (`tx.lock`): bodies with the same root run one after another.
   * - A body awaits only `tx`. It keeps other writers waiting. SQLite rolls a body that waits for something else back (`tx_awaited_outside`).
   * - A body may run more than once, so it must have no effect outside `tx`.
   * - `db.tx` or `db.read` inside a body throws `tx_nested`.
   */
  tx<T>(name: string, body: (tx: Tx) => Promise<T>): Promise<T>;
  /** Runs a body that only reads. All its statements see the same moment. */
  snapshot<T>(name: string, body: (query: Query) => Promise<T>): Promise<T>;
  /** Runs a body that also exists as one statement. On PostgreSQL it costs one round trip, which it shares with others. */
  hot<T>(body: HotBody<T>): Promise<T>;
  close(): Promise<void>;
}

/** Statements of a `HotBody` on SQLite, where none of them waits: promises would cost more than the statements. */
export interface NowTx {
  /** Returns the number of changed rows. */
  run(statement: Sql): number;
  /** The first row, or undefined. */
  one<T>(row: z.ZodType<T>, statement: Sql): T | undefined;
}

/** A body that runs for each request to a model. Both forms have the same effects and the same result. */
export interface HotBody<T> {
  name: string;
  /** The row that the statement changes first, e.g. the id of a wallet. Bodies that are sent together run in this order. */
  locks: string;
  /**
   * PostgreSQL runs this: one statement that answers with one row. A refusal must be a result, not an error: an error costs all bodies that
   * were sent together another try. It is made only where it is used, because it has many parts.
   */
  statement(): Sql;
  row: z.ZodType<T>;
  /** SQLite runs this. */
  runNow(tx: NowTx): T;
  /**
   * True if a crash of the machine may take the body with this result back, because nobody relies on it before a later body is durable. Then
   * its caller does not wait for the disk on SQLite. PostgreSQL stores it like every other body, because its answer takes a round trip anyway.
   */
  mayBeLost?(result: T): boolean;
}

/** Misuse of the database by our own code, or a database that cannot be used. Tests rely on `code`. */
export class DbError extends Error {
  readonly code:
    | 'tx_nested'
    | 'tx_awaited_outside'
    | 'tx_over'
    | 'bad_value'
    | 'database_in_use'
    | 'not_a_database'
    | 'unsupported'
    | 'migration'
    | 'bad_backup'
    | 'half_restored'
    | 'disk_full'
    | 'unavailable'
    | 'lease_lost'
    | 'lock_order';

  constructor(code: DbError['code'], message: string, cause?: unknown) {
    super(`${code}: ${message}`, { cause });
    this.name = 'DbError';
    this.code = code;
  }
}

/** Error codes of SQLite and PostgreSQL for a full disk. */
const FULL_CODES = new Set(['SQLITE_FULL', 'SQLITE_IOERR_SHMSIZE', '53100']);

/**
 * Error codes of PostgreSQL and of the network if the server is away, shutting down or read-only, or has ended the connection. The connection is
 * useless after such an error.
 */
const AWAY_CODES =
  /^(08...|57P0[123]|25006|25P03|53300|ECONN(REFUSED|RESET)|ETIMEDOUT|EPIPE|ENOTFOUND|EAI_AGAIN|E(HOST|NET)UNREACH)$/;
/** Messages of driver errors that have no code. The last two are for a connection that was lost or closed before the statement. */
const AWAY_WORDS =
  /^(Connection terminated|timeout exceeded when trying to connect|Query read timeout|Client has encountered a connection error|Client was closed)/;

/** One statement took too long or waited too long for a lock. The connection is still good. */
const LATE_CODES = new Set(['57014', '55P03']);

/** Error codes of SQLite for a file that it may not open or write, and what it tried. */
const FAILED_ACCESS = [
  ['SQLITE_CANTOPEN', 'opened'],
  ['SQLITE_READONLY', 'written'],
] as const;

export function isAway(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const code = codeOf(error);
  return code !== undefined ? AWAY_CODES.test(code) : AWAY_WORDS.test(error.message);
}

/**
 * Whether the only reason of the error is that the PostgreSQL server cannot be reached. That is logged once for the whole process (reach.ts), so what
 * repeats its work logs nothing about it.
 */
export function isDatabaseAway(error: unknown): boolean {
  if (error instanceof AggregateError) return error.errors.length > 0 && error.errors.every(isDatabaseAway);
  if (error instanceof DbError) return error.code === 'unavailable' && isAway(error.cause);
  return error instanceof Error && error.cause !== undefined && isDatabaseAway(error.cause);
}

export function isFull(error: unknown): boolean {
  return FULL_CODES.has(codeOf(error) ?? '');
}

/** Ignores a full disk. Only for writes that are less important than the request that causes them. @throws every other error */
export function ignoreFullDisk(error: unknown): void {
  if (!(error instanceof DbError) || error.code !== 'disk_full') throw error;
}

/** Turns a full disk and an unreachable server into our own errors, for both engines. Other errors pass unchanged. */
export function engineError(error: unknown): unknown {
  if (error instanceof DbError) return error;
  const code = codeOf(error) ?? '';
  if (isAway(error) || LATE_CODES.has(code))
    return new DbError('unavailable', `the database cannot be used now: ${messageOf(error)}`, error);
  if (!isFull(error)) return error;
  return new DbError('disk_full', 'the disk of the database is full', error);
}

/** The same for the SQLite file at `path`. SQLite does not say which file it cannot open, read or write. */
export function fileError(path: string, error: unknown): unknown {
  const code = codeOf(error) ?? '';
  const failed = FAILED_ACCESS.find(([prefix]) => code.startsWith(prefix));
  if (failed !== undefined)
    return new Error(
      `${path} cannot be ${failed[1]}. It, its folder and the files beside it must belong to the user that runs the control plane, on a disk that is not read-only`,
      { cause: error },
    );
  if (code !== 'SQLITE_NOTADB') return engineError(error);
  return new DbError('not_a_database', `${path} is not a SQLite database; move it away, and restore a backup`, error);
}

/** The values that both engines can store. Money is always BigInt. */
export type SqlValue = string | bigint | Uint8Array | null;

/**
 * Turns a parameter into a stored value. Booleans become 0 and 1. Numbers must be whole: better-sqlite3 binds a number as REAL, which
 * silently loses precision above 2^53.
 */
export function storedValue(value: unknown): SqlValue {
  if (value === null || typeof value === 'string' || typeof value === 'bigint' || value instanceof Uint8Array)
    return value;
  if (typeof value === 'boolean') return value ? 1n : 0n;
  if (typeof value === 'number' && Number.isSafeInteger(value)) return BigInt(value);
  throw new DbError('bad_value', `a parameter of type ${typeof value} cannot be stored; numbers must be whole`);
}
