// Records what the rooms send to the database, and shows how SQLite executes it.
import { z } from 'zod';
import { text } from '../../control-plane/base/db/columns.ts';
import { type Db, type Query, type Sql, type Tx, sql } from '../../control-plane/base/db/db.ts';
import { textOf } from './sql-text.ts';

export interface RecordingDb {
  db: Db;
  sent: Sql[];
}

export function recordingDb(db: Db): RecordingDb {
  const sent: Sql[] = [];
  const noted = <Q extends Query>(query: Q): Q => ({
    ...query,
    all: (row, statement) => (sent.push(statement), query.all(row, statement)),
    one: (row, statement) => (sent.push(statement), query.one(row, statement)),
  });
  const notedTx = (tx: Tx): Tx => ({
    ...noted(tx),
    run: (statement) => (sent.push(statement), tx.run(statement)),
  });
  return {
    sent,
    db: {
      ...db,
      read: {
        all: (row, statement) => noted(db.read).all(row, statement),
        one: (row, statement) => noted(db.read).one(row, statement),
      },
      tx: (name, body) => db.tx(name, (tx) => body(notedTx(tx))),
      snapshot: (name, body) => db.snapshot(name, (query) => body(noted(query))),
    },
  };
}

/** The plan of a statement as the database of the lane shows it. */
export async function planOf(db: Db, statement: Sql): Promise<string> {
  if (db.dialect === 'sqlite') {
    const steps = await db.read.all(z.object({ detail: text }), sql`explain query plan ${statement}`);
    return steps.map(({ detail }) => detail).join('\n');
  }
  const lines = await db.read.all(z.object({ 'QUERY PLAN': text }), sql`explain ${statement}`);
  return lines.map((line) => line['QUERY PLAN']).join('\n');
}

/** The steps of SQLite's query plans, each with its statement. */
export async function planSteps(db: Db, statements: readonly Sql[]): Promise<string[]> {
  const steps = new Set<string>();
  for (const statement of statements) {
    const plan = await db.read.all(z.object({ detail: text }), sql`explain query plan ${statement}`);
    for (const { detail } of plan) steps.add(`${detail}: ${textOf(statement)}`);
  }
  return [...steps];
}
