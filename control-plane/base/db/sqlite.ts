// SQLite driver: one writer connection with group commit, one reader, and a lock that keeps a second process out.
import Database from 'better-sqlite3';
import { type Clock } from '../../../shared/clock.ts';
import { type CheckpointOptions, openCheckpoints } from './checkpoints.ts';
import { type Body, decoding, type NowBody, openBodies, openLockOrder } from './bodies.ts';
import {
  type Db,
  DbError,
  type HotBody,
  isFull,
  type NowTx,
  type Query,
  type Sql,
  sql,
  storedValue,
  templateOf,
  type Tx,
} from './db.ts';
import { type BodyResult, type OnCommit, openGroupCommit, type SettleEarly } from './group-commit.ts';
import { type Datasync, openWal, type Wal } from './wal.ts';

/** Limits how many bodies share one commit, and so how long the first of them waits. */
const BODIES_PER_COMMIT_MAX = 512;
/** Older versions can lose committed writes if a checkpoint coincides with a write (WAL-reset bug, fixed in 3.51.3). */
const SQLITE_VERSION_MIN = [3, 51, 3] as const;

const BEGIN = sql`BEGIN IMMEDIATE`;
const COMMIT = sql`COMMIT`;
const ROLLBACK = sql`ROLLBACK`;
const SAVEPOINT = sql`SAVEPOINT body`;
const ROLLBACK_TO = sql`ROLLBACK TO body`;
const RELEASE = sql`RELEASE body`;

interface Connection {
  database: Database.Database;
  prepare(statement: Sql): Database.Statement;
}

interface SqliteDeps {
  clock: Clock;
  onCommit?: OnCommit | undefined;
  /** Called if the disk is full. Returns true if it freed space, so that the batch is worth another try. */
  makeRoom?: (() => boolean) | undefined;
  /** Flushes the write-ahead log to the disk. Tests pass one that waits or fails. */
  datasync?: Datasync | undefined;
  checkpoints?: CheckpointOptions | undefined;
}

/**
 * Opens (and creates) the database at `path`, or a private one in memory for `:memory:`.
 * @throws DbError `database_in_use` if another process has it, `unsupported` for an unsafe SQLite version
 */
export function openSqlite(
  path: string,
  { clock, onCommit, makeRoom = () => false, datasync, ...more }: SqliteDeps,
): Db {
  const inMemory = path === ':memory:';
  const unlock = inMemory ? () => undefined : lockSqlite(path);
  const writer = connect(path, false);
  refuseUnsafeVersion(versionOf(writer.database));
  const reader = inMemory ? undefined : connect(path, true);
  const wal = inMemory ? undefined : openWal(`${path}-wal`, datasync);
  const checkpoints = inMemory ? undefined : openCheckpoints(path, writer.database, more.checkpoints);
  const commit = async (batch: readonly AnyBody[], settleEarly: SettleEarly): Promise<BodyResult[]> => {
    wal?.refuseBroken();
    const { results, hasWritten } = await commitBatch(writer, batch, clock).catch((error: unknown) => {
      if (!isFull(error) || !makeRoom()) throw error;
      return commitBatch(writer, batch, clock);
    });
    if (!hasWritten) return results;
    checkpoints?.afterCommit();
    const isLosable = batch.map((body) => 'runNow' in body && body.mayBeLost === true);
    for (const [i, result] of results.entries()) if (isLosable[i] === true) settleEarly(i, result);
    if (isLosable.includes(false)) await wal?.flush();
    else wal?.leave();
    return results;
  };
  const bodies = openBodies();
  const group = openGroupCommit(commit, { clock, batchMax: BODIES_PER_COMMIT_MAX, onCommit });
  const tx = async <T>(name: string, body: (tx: Tx) => Promise<T>): Promise<T> =>
    (await group.add(bodies.make(name, body))) as T;
  // A database in memory has one connection. Reads wait their turn like writes, so that they never see half a transaction.
  const reads = reader === undefined || wal === undefined ? queuedReads(tx) : durableReads(reader, wal);

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
      await checkpoints?.close();
      await wal?.close();
      reader?.database.close();
      writer.database.close();
      unlock();
    },
  };
}

type AnyBody = Body | NowBody;

interface Committed {
  results: BodyResult[];
  hasWritten: boolean;
}

/** Runs the bodies in one transaction. If one of them throws after it has written, all run again, each in a savepoint. */
async function commitBatch(writer: Connection, batch: readonly AnyBody[], clock: Clock): Promise<Committed> {
  const committed =
    (await runBatch(writer, batch, { clock, inSavepoints: false })) ??
    (await runBatch(writer, batch, { clock, inSavepoints: true }));
  if (committed === undefined) throw new Error('a savepoint did not undo its body');
  return committed;
}

/** Undefined if the batch was rolled back because a body threw after it had written. */
async function runBatch(
  writer: Connection,
  batch: readonly AnyBody[],
  { clock, inSavepoints }: { clock: Clock; inSavepoints: boolean },
): Promise<Committed | undefined> {
  const committed: Committed = { results: [], hasWritten: false };
  const nextTurn = (): Promise<'turn over'> => clock.nextTurn().then(() => 'turn over' as const);
  try {
    writer.prepare(BEGIN).run();
    let turn: Promise<'turn over'> | undefined;
    for (const body of batch) {
      if (inSavepoints) writer.prepare(SAVEPOINT).run();
      const { result, hasWritten } =
        'runNow' in body ? runNow(writer, body) : await runBody(writer, body, (turn ??= nextTurn()));
      const failed = 'error' in result;
      // On a full disk, SQLite may have rolled the whole transaction back. Then the whole batch fails with this error.
      if (failed && !writer.database.inTransaction) throw result.error;
      if (failed && hasWritten && !inSavepoints) {
        writer.prepare(ROLLBACK).run();
        return undefined;
      }
      if (failed && inSavepoints) writer.prepare(ROLLBACK_TO).run();
      if (inSavepoints) writer.prepare(RELEASE).run();
      if (failed && isCode(result.error, 'tx_awaited_outside')) turn = undefined;
      committed.results.push(result);
      committed.hasWritten ||= hasWritten;
    }
    writer.prepare(COMMIT).run();
    return committed;
  } catch (error) {
    if (writer.database.inTransaction) writer.prepare(ROLLBACK).run();
    throw error;
  }
}

interface BodyRun {
  result: BodyResult;
  hasWritten: boolean;
}

function runNow(writer: Connection, body: NowBody): BodyRun {
  let hasWritten = false;
  const statementOf = (statement: Sql): Database.Statement => {
    const prepared = writer.prepare(statement);
    hasWritten ||= !prepared.readonly;
    return prepared;
  };
  const tx: NowTx = {
    run: (statement) => statementOf(statement).run(...statement.values.map(storedValue)).changes,
    one: (row, statement) => {
      const found = statementOf(statement).get(...statement.values.map(storedValue));
      return found === undefined ? undefined : row.parse(found);
    },
  };
  try {
    return { result: { value: body.runNow(tx) }, hasWritten };
  } catch (error) {
    return { result: { error }, hasWritten };
  }
}

/**
 * A body that awaits only `tx` ends before the next turn of the event loop. If the turn comes first, the body waited for something else.
 */
async function runBody(writer: Connection, body: Body, turn: Promise<'turn over'>): Promise<BodyRun> {
  let open = true;
  let hasWritten = false;
  const order = openLockOrder();
  const statementOf = (statement: Sql): Database.Statement => {
    if (!open) throw new DbError('tx_over', 'this transaction is over');
    const prepared = writer.prepare(statement);
    hasWritten ||= !prepared.readonly;
    return prepared;
  };
  const tx: Tx = {
    ...decoding(async (statement) => statementOf(statement).all(...statement.values.map(storedValue))),
    run: async (statement) => statementOf(statement).run(...statement.values.map(storedValue)).changes,
    // Bodies run one after another, so only the order is checked.
    lock: async (root, ...ids) => void order.next(root, ids),
    lockFirst: async (root, ids) => {
      const first = order.held(root, ids) ?? ids[0];
      if (first !== undefined) order.next(root, [first]);
      return first;
    },
  };
  const settled = body.run(tx).then(
    (value): BodyResult => ({ value }),
    (error: unknown): BodyResult => ({ error }),
  );
  const first = await Promise.race([settled, turn]);
  open = false;
  if (first !== 'turn over') return { result: first, hasWritten };
  const message = `the transaction ${body.name} waited for something other than tx`;
  return { result: { error: new DbError('tx_awaited_outside', message) }, hasWritten };
}

function isCode(error: unknown, code: DbError['code']): boolean {
  return error instanceof DbError && error.code === code;
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

/** A read may see a commit that is not flushed yet. Its result waits for the flush, so that no caller acts on what a crash takes back. */
function durableReads(reader: Connection, wal: Wal): Query {
  return decoding(async (statement) => {
    const rows = reader.prepare(statement).all(...statement.values.map(storedValue));
    await wal.flushed();
    return rows;
  });
}

/**
 * With `synchronous = NORMAL`, a commit writes to the write-ahead log and does not flush it: `Wal` does, outside the event loop. A checkpoint
 * (checkpoints.ts) still flushes the log before it copies pages, and the database after that.
 */
function connect(path: string, readonly: boolean): Connection {
  const connection = new Database(path, { readonly });
  connection.defaultSafeIntegers(true);
  if (!readonly) connection.pragma('journal_mode = WAL');
  connection.pragma('synchronous = NORMAL');
  connection.pragma('foreign_keys = ON');
  connection.pragma('recursive_triggers = ON');
  connection.pragma('busy_timeout = 5000');
  // The caches cannot grow without bound: templates and texts come from the source code only.
  const ofTemplate = new Map<TemplateStringsArray, Database.Statement>();
  const ofText = new Map<string, Database.Statement>();
  const byText = (text: string): Database.Statement => {
    let prepared = ofText.get(text);
    if (prepared === undefined) ofText.set(text, (prepared = connection.prepare(text)));
    return prepared;
  };
  const prepare = (statement: Sql): Database.Statement => {
    const template = templateOf(statement);
    if (template === undefined) return byText(textOf(statement));
    let prepared = ofTemplate.get(template);
    if (prepared === undefined) ofTemplate.set(template, (prepared = byText(textOf(statement))));
    return prepared;
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
