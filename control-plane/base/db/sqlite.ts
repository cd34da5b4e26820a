// SQLite driver: one writer connection with group commit, one reader, and a lock that keeps a second process out.
import Database from 'better-sqlite3';
import { type Clock } from '../../../shared/clock.ts';
import { codeOf } from '../../../shared/errors.ts';
import { SQLITE_STATEMENTS_CHARS_MAX } from '../../../shared/limits.ts';
import { type CheckpointOptions, openCheckpoints } from './checkpoints.ts';
import { decoding, openBodies } from './bodies.ts';
import {
  type Db,
  DbError,
  engineError,
  fileError,
  type HotBody,
  isFull,
  type Query,
  storedValue,
  type Tx,
} from './db.ts';
import { type BodyResult, type OnCommit, openGroupCommit, type SettleEarly } from './group-commit.ts';
import { type AnyBody, type Connection, mayBeLost, openBatches } from './sqlite-batches.ts';
import { openTexts, type Sql, templateOf, type TextOf } from './sql.ts';
import { keepPrepared } from './statements.ts';
import { type Datasync, openWal, type Wal } from './wal.ts';

/** Limits how many bodies share one commit, and so how long the first of them waits. */
const BODIES_PER_COMMIT_MAX = 512;
/** Older versions can lose committed writes if a checkpoint coincides with a write (WAL-reset bug, fixed in 3.51.3). */
const SQLITE_VERSION_MIN = [3, 51, 3] as const;

interface SqliteDeps {
  clock: Clock;
  onCommit?: OnCommit | undefined;
  /** Called if the disk is full. Returns true if it freed space, so that what failed is worth another try. */
  makeRoom?: (() => boolean) | undefined;
  /** Flushes the write-ahead log to the disk. Tests pass one that waits or fails. */
  datasync?: Datasync | undefined;
  checkpoints?: CheckpointOptions | undefined;
}

/**
 * Opens (and creates) the database at a path. For `:memory:`, opens an empty one in memory; for the bytes of a database file, a copy in memory.
 * @throws DbError `database_in_use` if another process has it, `not_a_database` for another file, `unsupported` for an unsafe SQLite version
 */
export function openSqlite(at: string | Buffer, deps: SqliteDeps): Db {
  const path = typeof at === 'string' && at !== ':memory:' ? at : undefined;
  const unlock = path === undefined ? () => undefined : lockSqlite(path);
  const opened: (() => void)[] = [unlock];
  try {
    return openConnections(at, path, { ...deps, opened });
  } catch (error) {
    for (const close of opened.toReversed()) close();
    throw error;
  }
}

interface ConnectionsDeps extends SqliteDeps {
  /** Closes what is open, the last one first. */
  opened: (() => void)[];
}

function openConnections(
  at: string | Buffer,
  path: string | undefined,
  { clock, onCommit, makeRoom = () => false, datasync, opened, ...more }: ConnectionsDeps,
): Db {
  const textOf = openTexts(withParameters, SQLITE_STATEMENTS_CHARS_MAX);
  const writer = connectWriter(at, textOf, makeRoom);
  opened.push(() => void writer.database.close());
  refuseUnsafeVersion(versionOf(writer.database));
  const reader = path === undefined ? undefined : connect(path, textOf, 'reader');
  opened.push(() => void reader?.database.close());
  const wal = path === undefined ? undefined : openWal(`${path}-wal`, datasync);
  const batches = openBatches(writer, {
    clock,
    makeRoom,
    inMemory: path === undefined,
    settled: () => {
      wal?.leave();
      checkpoints?.afterCommit();
    },
  });
  const checkpoints =
    path === undefined
      ? undefined
      : openCheckpoints(path, { writer: writer.database, settle: batches.settle, makeRoom }, more.checkpoints);
  const commit = async (batch: readonly AnyBody[], settleEarly: SettleEarly): Promise<BodyResult[]> => {
    wal?.refuseBroken();
    const { results, state } = await batches.run(batch);
    if (state !== 'committed') return results;
    checkpoints?.afterCommit();
    for (const [i, body] of batch.entries()) {
      const result = results[i];
      if (result !== undefined && mayBeLost(body, result)) settleEarly(i, result);
    }
    await wal?.flush();
    return results;
  };
  const bodies = openBodies();
  const group = openGroupCommit(commit, { clock, batchMax: BODIES_PER_COMMIT_MAX, onCommit });
  const tx = async <T>(name: string, body: (tx: Tx) => Promise<T>): Promise<T> =>
    (await group.add(bodies.make(name, body))) as T;
  // A database in memory has one connection. Reads wait their turn like writes, so that they never see half a transaction.
  const reads = reader === undefined || wal === undefined ? queuedReads(tx) : durableReads(reader, wal, batches.settle);

  return {
    dialect: 'sqlite',
    read: bodies.outside(reads),
    tx,
    snapshot: tx,
    hot: async <T>(body: HotBody<T>) => {
      bodies.refuseNested(body.name);
      return (await group.add(body)) as T;
    },
    close: async () => {
      await group.idle();
      batches.settle();
      await checkpoints?.close();
      await wal?.close();
      for (const close of opened.toReversed()) close();
    },
  };
}

/**
 * SQLite plans a statement for the values of plain parameters and plans it again if they change. That takes several times as long as most
 * statements. It does not look into an expression, so `coalesce(?, null)` keeps the plan.
 */
function withParameters(strings: readonly string[]): string {
  return strings.join('coalesce(?, null)');
}

function queuedReads(tx: Db['tx']): Query {
  return {
    all: (row, statement) => tx('read', (t) => t.all(row, statement)),
    one: (row, statement) => tx('read', (t) => t.one(row, statement)),
  };
}

/** A read may see a commit that is not flushed yet. Its result waits for the flush, so that no caller acts on what a crash takes back. */
function durableReads(reader: Connection, wal: Wal, settle: () => void): Query {
  return decoding(async (statement) => {
    settle();
    const rows = rowsOf(reader, statement);
    await wal.flushed();
    return rows;
  });
}

/** A read needs the disk too: SQLite sorts many rows in a temporary file. @throws what `engineError` returns */
function rowsOf(reader: Connection, statement: Sql): unknown[] {
  try {
    return reader.prepare(statement).all(...statement.values.map(storedValue));
  } catch (error) {
    throw engineError(error);
  }
}

/** At a start on a full disk, the connection fails already, because it makes the files of the log. */
function connectWriter(at: string | Buffer, textOf: TextOf, makeRoom: () => boolean): Connection {
  try {
    return connect(at, textOf, 'writer');
  } catch (error) {
    if (!isFull(error) || !makeRoom()) throw typeof at === 'string' ? fileError(at, error) : engineError(error);
    return connect(at, textOf, 'writer');
  }
}

/**
 * With `synchronous = NORMAL`, a commit writes to the write-ahead log and does not flush it: `Wal` does, outside the event loop. A checkpoint
 * (checkpoints.ts) still flushes the log before it copies pages, and the database after that.
 */
function connect(at: string | Buffer, textOf: TextOf, role: 'reader' | 'writer'): Connection {
  const connection = new Database(at, { readonly: role === 'reader' });
  connection.defaultSafeIntegers(true);
  if (role === 'writer') keepLog(connection);
  connection.pragma('synchronous = NORMAL');
  connection.pragma('foreign_keys = ON');
  connection.pragma('recursive_triggers = ON');
  connection.pragma('busy_timeout = 5000');
  // Templates come from the source code, so there are not many. Statements with parts have another text for each length of a list.
  const ofTemplate = new Map<TemplateStringsArray, Database.Statement>();
  const ofText = keepPrepared((text) => connection.prepare(text), SQLITE_STATEMENTS_CHARS_MAX);
  const prepare = (statement: Sql): Database.Statement => {
    const template = templateOf(statement);
    if (template === undefined) return ofText(textOf(statement));
    const found = ofTemplate.get(template);
    if (found !== undefined) return found;
    const prepared = connection.prepare(textOf(statement));
    ofTemplate.set(template, prepared);
    return prepared;
  };
  return { database: connection, prepare };
}

/** A connection that cannot be used is closed. @throws SqliteError */
function keepLog(connection: Database.Database): void {
  try {
    connection.pragma('journal_mode = WAL');
  } catch (error) {
    connection.close();
    throw error;
  }
}

/**
 * Keeps other processes out of the database at `path` until the returned function is called. It holds an exclusive transaction on a
 * separate file, which the kernel releases when the process ends in any way. @throws DbError `database_in_use`; what `fileError` returns for
 * a lock that cannot be opened or written
 */
export function lockSqlite(path: string): () => void {
  const file = `${path}.lock`;
  let lock: Database.Database | undefined;
  try {
    lock = new Database(file, { timeout: 0 });
    // Nothing is written, so the transaction needs no journal on the disk, which may be full.
    lock.pragma('journal_mode = MEMORY');
    lock.exec('BEGIN EXCLUSIVE');
    // On a file that may not be written, SQLite begins a transaction that locks nobody out. It refuses this change, which is never committed.
    lock.pragma('user_version = 1');
  } catch (error) {
    lock?.close();
    if (codeOf(error) !== 'SQLITE_BUSY') throw fileError(file, error);
    throw new DbError('database_in_use', `another control plane is running on this database (${file})`, error);
  }
  return () => lock.close();
}

/** @throws DbError `unsupported` for a version below SQLITE_VERSION_MIN */
export function refuseUnsafeVersion(version: string): void {
  const parts = version.split('.').map(Number);
  const firstDifference = SQLITE_VERSION_MIN.findIndex((min, i) => parts[i] !== min);
  const isOlder = firstDifference >= 0 && (parts[firstDifference] ?? 0) < (SQLITE_VERSION_MIN[firstDifference] ?? 0);
  if (isOlder)
    throw new DbError('unsupported', `SQLite ${version} can lose committed writes; 3.51.3 or newer is needed`);
}

function versionOf(connection: Database.Database): string {
  return (connection.prepare('select sqlite_version() as version').get() as { version: string }).version;
}
