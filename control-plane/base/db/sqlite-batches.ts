// Runs the batches of SQLite's writer connection (see group-commit.ts), each in one transaction.
//
// A batch that a crash may take back as a whole (`mayBeLost`) leaves its transaction open, and the next batch commits it. Example, a paid
// request that is alone:
//
//   it begins ──► BEGIN, hold, receipt           its caller goes on, the transaction stays open
//   it ends   ──► receipt, charge, COMMIT        one commit and one flush; it would be two commits otherwise
//
// An open transaction does not block other batches. Bodies of one statement continue in it. It is committed before a body runs that may wait.
// Reads have a connection of their own and would not see it, so they commit it first (`settle`). A timer commits it too.
//
// What must never happen:
// - An error of a later batch undoes what was left open. So a batch that continues an open transaction has a savepoint of its own.
// - A transaction is left open with a write that its caller relies on.
import type Database from 'better-sqlite3';
import type { Clock } from '../../../shared/clock.ts';
import { type Body, decoding, type NowBody, openLockOrder } from './bodies.ts';
import { DbError, isFull, type NowTx, type Sql, sql, storedValue, type Tx } from './db.ts';
import type { BodyResult } from './group-commit.ts';
import { assertPlainWrite } from './together.ts';

export interface Connection {
  database: Database.Database;
  prepare(statement: Sql): Database.Statement;
}

export type AnyBody = Body | NowBody;

export interface Ran {
  results: BodyResult[];
  /** `left_open`: the writes of the batch are in the transaction that the next batch commits. */
  state: 'unchanged' | 'left_open' | 'committed';
}

export interface Batches {
  /** Throws if the whole batch was rolled back. */
  run(batch: readonly AnyBody[]): Promise<Ran>;
  /** Commits what was left open. Does nothing if nothing was. */
  settle(): void;
}

export interface BatchDeps {
  clock: Clock;
  /** Called if the disk is full. Returns true if it freed space, so that another try may succeed. */
  makeRoom(): boolean;
  /** Called after `settle` has committed something. */
  settled(): void;
  /** A database in memory has one connection, so nothing is left open there. */
  inMemory: boolean;
}

/** How long a transaction stays open at most. */
const LEFT_OPEN_MS_MAX = 100;

const BEGIN = sql`BEGIN IMMEDIATE`;
const COMMIT = sql`COMMIT`;
const ROLLBACK = sql`ROLLBACK`;

/** Undoes a batch, or a body of it, in a transaction that goes on. */
interface Savepoint {
  begin: Sql;
  undo: Sql;
  release: Sql;
}

const BATCH: Savepoint = { begin: sql`SAVEPOINT batch`, undo: sql`ROLLBACK TO batch`, release: sql`RELEASE batch` };
const BODY: Savepoint = { begin: sql`SAVEPOINT body`, undo: sql`ROLLBACK TO body`, release: sql`RELEASE body` };

/**
 * What is undone if a body throws after it has written. Few bodies do, so a batch runs without savepoints first. If it was undone, it runs again with
 * a savepoint for each body.
 */
type Undone = 'batch' | 'body';

export function openBatches(writer: Connection, deps: BatchDeps): Batches {
  const { clock, inMemory, makeRoom } = deps;
  /** Cancels the timer of the open transaction. */
  let leftOpen: (() => void) | undefined;
  const close = (): void => {
    leftOpen?.();
    leftOpen = undefined;
  };
  const settle = (): void => {
    if (leftOpen === undefined) return;
    close();
    try {
      commit(writer, makeRoom);
    } catch {
      // Nobody relies on these writes yet. Their callers learn from a later body that the writes are gone.
      rollback(writer);
    }
    deps.settled();
  };
  /** Runs the bodies of a batch and ends its transaction. Nothing runs between bodies of one statement, so no read can commit half a batch. */
  const runOnce = async (batch: readonly AnyBody[], undone: Undone): Promise<Ran | undefined> => {
    const inSavepoints = undone === 'body';
    const isContinued = leftOpen !== undefined;
    const ran: RanBodies = { results: [], writers: [] };
    const turn = openTurn(clock);
    try {
      writer.prepare(isContinued ? BATCH.begin : BEGIN).run();
      for (const body of batch) {
        if (inSavepoints) writer.prepare(BODY.begin).run();
        const bodyRun = isNow(body) ? runNow(writer, body) : await runBody(writer, body, turn.over());
        if (!keep(writer, { body, bodyRun, inSavepoints }, ran)) {
          if (isContinued) undoTo(writer, BATCH);
          else rollback(writer);
          return undefined;
        }
        if ('error' in bodyRun.result && isCode(bodyRun.result.error, 'tx_awaited_outside')) turn.next();
      }
      const { results, writers } = ran;
      const isLosable = !inMemory && writers.length > 0 && writers.every(({ body, result }) => mayBeLost(body, result));
      if (isLosable || (isContinued && writers.length === 0)) {
        if (isContinued) writer.prepare(BATCH.release).run();
        leftOpen ??= clock.after(LEFT_OPEN_MS_MAX, settle);
        return { results, state: isLosable ? 'left_open' : 'unchanged' };
      }
      close();
      commit(writer, makeRoom);
      return { results, state: writers.length > 0 ? 'committed' : 'unchanged' };
    } catch (error) {
      close();
      rollback(writer);
      throw error;
    }
  };
  const run = async (batch: readonly AnyBody[]): Promise<Ran> => {
    const ran = (await runOnce(batch, 'batch')) ?? (await runOnce(batch, 'body'));
    if (ran === undefined) throw new Error('a savepoint did not undo its body');
    return ran;
  };
  return {
    run: async (batch) => {
      if (!batch.every(isNow)) settle();
      return run(batch).catch((error: unknown) => {
        if (!isFull(error) || !makeRoom()) throw error;
        return run(batch);
      });
    },
    settle,
  };
}

interface RanBodies {
  results: BodyResult[];
  /** The bodies that have written, with their results. */
  writers: { body: AnyBody; result: BodyResult }[];
}

/**
 * Notes the result of a body. False if the batch must be undone, because a body threw after it had written. With `inSavepoints`, only that body
 * is undone.
 */
function keep(
  writer: Connection,
  { body, bodyRun, inSavepoints }: { body: AnyBody; bodyRun: BodyRun; inSavepoints: boolean },
  { results, writers }: RanBodies,
): boolean {
  const { result, hasWritten } = bodyRun;
  const failed = 'error' in result;
  // On a full disk, SQLite may have rolled the whole transaction back. Then the whole batch fails with this error.
  if (failed && !writer.database.inTransaction) throw result.error;
  if (failed && hasWritten && !inSavepoints) return false;
  if (inSavepoints && failed) undoTo(writer, BODY);
  else if (inSavepoints) writer.prepare(BODY.release).run();
  results.push(result);
  if (hasWritten) writers.push({ body, result });
  return true;
}

/** The next turn of the event loop. A body that has not ended by then is rolled back. */
function openTurn(clock: Clock): { over(): Promise<'turn over'>; next(): void } {
  let turn: Promise<'turn over'> | undefined;
  return {
    over: () => (turn ??= clock.nextTurn().then(() => 'turn over' as const)),
    next: () => {
      turn = undefined;
    },
  };
}

function isNow(body: AnyBody): body is NowBody {
  return 'runNow' in body;
}

export function mayBeLost(body: AnyBody, result: BodyResult): boolean {
  return isNow(body) && 'value' in result && body.mayBeLost?.(result.value as never) === true;
}

function commit(writer: Connection, makeRoom: () => boolean): void {
  try {
    writer.prepare(COMMIT).run();
  } catch (error) {
    if (!writer.database.inTransaction || !isFull(error) || !makeRoom()) throw error;
    writer.prepare(COMMIT).run();
  }
}

function rollback(writer: Connection): void {
  if (writer.database.inTransaction) writer.prepare(ROLLBACK).run();
}

function undoTo(writer: Connection, { undo, release }: Savepoint): void {
  writer.prepare(undo).run();
  writer.prepare(release).run();
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
    firstUnlocked: (root, ids) => {
      order.advance(root);
      return sql`select ${ids[0] ?? null} as id`;
    },
    together: (work) => work({ ...tx, run: async (statement) => (assertPlainWrite(statement), tx.run(statement)) }),
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
