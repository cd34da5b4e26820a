// Counts what a database is asked to do: round trips to a server, statements, and rows that are written.
import type { Db, Query, Tx } from '../../control-plane/base/db/db.ts';
import { textOf } from './sql-text.ts';

export interface DbCounts {
  /** Statements that are sent together are one. BEGIN and locks travel with the first statement; the end of a transaction is one more. */
  roundTrips: number;
  /** BEGIN, COMMIT and locks of known rows are not counted. Writes that are joined (`Tx.together`) are one. */
  statements: number;
  rowWrites: number;
}

export interface CountingDb {
  db: Db;
  counts: DbCounts;
}

const WRITE = /^\s*(insert|update|delete)/i;

export function countingDb(db: Db): CountingDb {
  const counts: DbCounts = { roundTrips: 0, statements: 0, rowWrites: 0 };
  const counted = <Q extends Query>(query: Q, joinsWrites = false): Q => {
    let unanswered = 0;
    const sent = async <T>(answer: () => Promise<T>, isJoined = false): Promise<T> => {
      if (unanswered === 0) counts.roundTrips += 1;
      if (!isJoined) counts.statements += 1;
      unanswered += 1;
      return answer().finally(() => (unanswered -= 1));
    };
    let writes = 0;
    const noteRows = (text: string, rows: number): void => void (WRITE.test(text) && (counts.rowWrites += rows));
    return {
      ...query,
      all: async (row, statement) => {
        const rows = await sent(() => query.all(row, statement));
        noteRows(textOf(statement), rows.length);
        return rows;
      },
      one: async (row, statement) => {
        const found = await sent(() => query.one(row, statement));
        noteRows(textOf(statement), found === undefined ? 0 : 1);
        return found;
      },
      ...('run' in query
        ? {
            run: async (statement: Parameters<Tx['run']>[0]) => {
              writes += 1;
              const isJoined = joinsWrites && writes > 1;
              const rows = await sent(() => (query as unknown as Tx).run(statement), isJoined).finally(
                () => (writes -= 1),
              );
              counts.rowWrites += rows;
              return rows;
            },
            together: (work: (joined: Tx) => Promise<unknown>) =>
              (query as unknown as Tx).together((joined) => work(counted(joined, true))),
          }
        : {}),
    };
  };
  return {
    counts,
    db: {
      ...db,
      read: {
        all: (row, statement) => counted(db.read).all(row, statement),
        one: (row, statement) => counted(db.read).one(row, statement),
      },
      tx: async (name, body) => {
        counts.roundTrips += 1;
        return db.tx(name, (tx) => body(counted(tx)));
      },
      snapshot: async (name, body) => {
        counts.roundTrips += 2;
        return db.snapshot(name, (query) => body(counted(query)));
      },
    },
  };
}
