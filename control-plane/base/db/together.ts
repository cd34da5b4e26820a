// Writes that do not depend on each other, as one statement of PostgreSQL. Each statement costs time of both processes and a message each way,
// so a launch with nine small writes spends most of their time on that. Example, for two inserts that are asked for in the same turn:
//
//   with w0 as (insert into instances ... returning 1), w1 as (insert into events ... returning 1)
//   select (select count(*) from w0), (select count(*) from w1)     -> the rows that each has changed
//
// The server runs them in the order of the list of counts. All of them see the data as it was before the first. If one fails, all do, and with
// the same error.
import { Sql } from 'sql-template-tag';
import { DbError, type Tx } from './db.ts';

/** Sends the statement, and returns the number of rows that each part of it has changed. */
type SendJoined = (joined: Sql) => Promise<number[]>;

const WRITE = /^\s*(insert|update|delete)\b/i;

interface Asked {
  statement: Sql;
  resolve(changed: number): void;
  reject(error: unknown): void;
}

/** A transaction that collects its `run`s until the current code has ended, and then sends them as one statement. */
export function joining(tx: Tx, send: SendJoined): Tx {
  let asked: Asked[] = [];
  const flush = async (): Promise<void> => {
    const parts = asked;
    asked = [];
    try {
      const statements = parts.map(({ statement }) => statement);
      const [only] = statements;
      const changed =
        statements.length === 1 && only !== undefined ? [await tx.run(only)] : await send(join(statements));
      for (const [i, part] of parts.entries()) part.resolve(changed[i] ?? 0);
    } catch (error) {
      for (const part of parts) part.reject(error);
    }
  };
  return {
    ...tx,
    run: async (statement) => {
      assertPlainWrite(statement);
      if (asked.length === 0) process.nextTick(() => void flush());
      return new Promise((resolve, reject) => asked.push({ statement, resolve, reject }));
    },
  };
}

/** Both drivers refuse the same. @throws DbError `bad_value` */
export function assertPlainWrite(statement: Sql): void {
  if (WRITE.test(statement.strings[0] ?? '')) return;
  throw new DbError('bad_value', 'only a plain insert, update or delete can run together with others');
}

function join(statements: readonly Sql[]): Sql {
  const strings = [''];
  const add = (text: string): void => void (strings[strings.length - 1] += text);
  for (const [i, { strings: own }] of statements.entries()) {
    add(`${i === 0 ? 'with' : ','} w${i} as (`);
    add(own[0] ?? '');
    strings.push(...own.slice(1));
    add(' returning 1)');
  }
  add(` select ${statements.map((_, i) => `(select count(*) from w${i}) as n${i}`).join(', ')}`);
  return new Sql(
    strings,
    statements.flatMap(({ values }) => values),
  );
}
