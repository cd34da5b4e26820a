// SQLite driver: one writer connection with group commit, one reader, and a lock that keeps a second process out.
import Database from 'better-sqlite3';
import type { Sql } from 'sql-template-tag';
import type { z } from 'zod';
import { type Clock } from '../../../shared/clock.ts';
import { type Db, DbError, isFull, type Query, type Tx, storedValue } from './db.ts';
import { type Body, type OnCommit, openGroupCommit, type BodyResult } from './group-commit.ts';

/** Limits how many bodies share one commit, and so how long the first of them waits. */
const BODIES_PER_COMMIT_MAX = 512;
/** Older versions can lose committed writes if a checkpoint coincides with a write (WAL-reset bug, fixed in 3.51.3). */
const SQLITE_VERSION_MIN = [3, 51, 3] as const;

interface Connection {
  database: Database.Database;
  prepare(text: string): Database.Statement;
}

interface SqliteDeps {
  clock: Clock;
  onCommit?: OnCommit | undefined;
  /** Called if the disk is full. Returns true if it freed space, so that the batch is worth another try. */
  makeRoom?: (() => boolean) | undefined;
}

/**
 * Opens (and creates) the database at `path`, or a private one in memory for `:memory:`.
 * @throws DbError `database_in_use` if another process has it, `unsupported` for an unsafe SQLite version
 */
export function openSqlite(path: string, { clock, onCommit, makeRoom = () => false }: SqliteDeps): Db {
  const unlock = path === ':memory:' ? () => undefined : lockSqlite(path);
  const writer = connect(path, false);
  refuseUnsafeVersion(versionOf(writer.database));
  const reader = path === ':memory:' ? undefined : connect(path, true);
  const commit = (batch: readonly Body[]): Promise<BodyResult[]> =>
    commitBatch(writer, batch, clock).catch((error: unknown) => {
      if (!isFull(error) || !makeRoom()) throw error;
      return commitBatch(writer, batch, clock);
    });
  const group = openGroupCommit(commit, { clock, batchMax: BODIES_PER_COMMIT_MAX, onCommit });
  // A database in memory has one connection. Reads wait their turn like writes, so that they never see half a transaction.
  const reads = reader === undefined ? queuedReads(group.tx) : statements(reader, () => true);

  return {
    dialect: 'sqlite',
    read: group.outside(reads),
    tx: group.tx,
    close: async () => {
      await group.idle();
      reader?.database.close();
      writer.database.close();
      unlock();
    },
  };
}

async function commitBatch(writer: Connection, batch: readonly Body[], clock: Clock): Promise<BodyResult[]> {
  const outcomes: BodyResult[] = [];
  try {
    writer.database.exec('BEGIN IMMEDIATE');
    let turn = clock.nextTurn().then(() => 'turn over' as const);
    for (const body of batch) {
      const outcome = await runBody(writer, body, turn);
      if ('error' in outcome && outcome.error instanceof DbError && outcome.error.code === 'tx_awaited_outside') {
        turn = clock.nextTurn().then(() => 'turn over' as const);
      }
      outcomes.push(outcome);
    }
    writer.database.exec('COMMIT');
    return outcomes;
  } catch (error) {
    if (writer.database.inTransaction) writer.database.exec('ROLLBACK');
    throw error;
  }
}

/**
 * A body that awaits only `tx` ends before the next turn of the event loop. If the turn comes first, the body waited for something else.
 */
async function runBody(writer: Connection, body: Body, turn: Promise<'turn over'>): Promise<BodyResult> {
  let open = true;
  const tx: Tx = {
    ...statements(writer, () => open),
    run: async (statement) => {
      assertOpen(open);
      return writer.prepare(textOf(statement)).run(...statement.values.map(storedValue)).changes;
    },
  };
  writer.database.exec('SAVEPOINT body');
  const settled = body.run(tx).then(
    (value): BodyResult => ({ value }),
    (error: unknown): BodyResult => ({ error }),
  );
  const first = await Promise.race([settled, turn]);
  open = false;
  const outcome: BodyResult =
    first === 'turn over'
      ? { error: new DbError('tx_awaited_outside', `the transaction ${body.name} waited for something other than tx`) }
      : first;
  // On a full disk, SQLite may have rolled the whole transaction back. Then the whole batch fails with this error.
  if ('error' in outcome && !writer.database.inTransaction) throw outcome.error;
  if ('error' in outcome) writer.database.exec('ROLLBACK TO body');
  writer.database.exec('RELEASE body');
  return outcome;
}

function statements(connection: Connection, isOpen: () => boolean): Query {
  const all = async <T>(row: z.ZodType<T>, statement: Sql): Promise<T[]> => {
    assertOpen(isOpen());
    const rows = connection.prepare(textOf(statement)).all(...statement.values.map(storedValue));
    return rows.map((value) => row.parse(value));
  };
  return { all, one: async (row, statement) => (await all(row, statement))[0] };
}

/**
 * SQLite plans a statement for the values of plain parameters and plans it again if they change. That takes several times as long as most
 * statements. It does not look into an expression, so `coalesce(?, null)` keeps the plan.
 */
function textOf({ strings }: Sql): string {
  return strings.join('coalesce(?, null)');
}

function queuedReads(tx: Db['tx']): Query {
  return {
    all: (row, statement) => tx('read', (t) => t.all(row, statement)),
    one: (row, statement) => tx('read', (t) => t.one(row, statement)),
  };
}

/** `synchronous` is a setting of the connection, and better-sqlite3 opens WAL files with NORMAL. So FULL is set here each time. */
function connect(path: string, readonly: boolean): Connection {
  const connection = new Database(path, { readonly });
  connection.defaultSafeIntegers(true);
  if (!readonly) connection.pragma('journal_mode = WAL');
  connection.pragma('synchronous = FULL');
  connection.pragma('foreign_keys = ON');
  connection.pragma('recursive_triggers = ON');
  connection.pragma('busy_timeout = 5000');
  // The cache cannot grow without bound: statement texts come from the source code only.
  const cache = new Map<string, Database.Statement>();
  const prepare = (text: string): Database.Statement => {
    let statement = cache.get(text);
    if (statement === undefined) cache.set(text, (statement = connection.prepare(text)));
    return statement;
  };
  return { database: connection, prepare };
}

/**
 * Keeps other processes out of the database at `path` until the returned function is called. It holds an exclusive transaction on a
 * separate file, which the kernel releases when the process ends in any way. @throws DbError `database_in_use`
 */
export function lockSqlite(path: string): () => void {
  const lock = new Database(`${path}.lock`, { timeout: 0 });
  try {
    lock.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    lock.close();
    throw new DbError('database_in_use', `another control plane is running on this database (${path}.lock)`, error);
  }
  return () => lock.close();
}

/** @throws DbError `unsupported` for a version below SQLITE_VERSION_MIN */
export function refuseUnsafeVersion(version: string): void {
  const parts = version.split('.').map(Number);
  const firstDifference = SQLITE_VERSION_MIN.findIndex((min, i) => parts[i] !== min);
  const older = firstDifference >= 0 && (parts[firstDifference] ?? 0) < (SQLITE_VERSION_MIN[firstDifference] ?? 0);
  if (older) throw new DbError('unsupported', `SQLite ${version} can lose committed writes; 3.51.3 or newer is needed`);
}

function versionOf(connection: Database.Database): string {
  return (connection.prepare('select sqlite_version() as version').get() as { version: string }).version;
}

function assertOpen(open: boolean): void {
  if (!open) throw new DbError('tx_over', 'this transaction is over');
}
