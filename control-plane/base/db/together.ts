// Writes that do not depend on each other, as one statement of PostgreSQL. Each statement costs time of both processes and a message each way,
// so a launch with nine small writes spends most of their time on that. Example, for an update and an insert that are asked for in the same turn:
//
//   with w0 as (update ledger_accounts ... returning 1), w1 as (insert into events ... values (...))
//   select (select count(*) from w0) as n0     -> the rows that w0 has changed
//
// A count costs the server time, and an insert of one row changes one row or fails, so it has none. The server runs the counted writes first, in
// their order, and then the others. All of them see the data as it was before the first. If one fails, all do, and with the same error.
import { DbError, type Tx } from './db.ts';
import { Sql } from './sql.ts';

/** Sends the statement, and returns the counts that it answers with. */
type SendJoined = (joined: Sql) => Promise<number[]>;

const WRITE = /^\s*(insert|update|delete)\b/i;
/** Parameters stand as `?`. */
const ONE_NEW_ROW = /^\s*insert\s+into\s+\w+\s*\([^()]*\)\s*values\s*\([^()]*\)\s*$/i;

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
      const [first, second] = parts;
      if (first !== undefined && second === undefined) return first.resolve(await tx.run(first.statement));
      const counted = parts.map(({ statement }) => !ONE_NEW_ROW.test(statement.strings.join('?')));
      const counts = await send(joined(parts, counted));
      for (const [i, part] of parts.entries()) part.resolve(counted[i] === true ? (counts.shift() ?? 0) : 1);
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

/** The writes as one statement. It answers with the number of changed rows of each write that is `counted`. */
function joined(parts: readonly Asked[], counted: readonly boolean[]): Sql {
  const begin = (i: number): string => `${i === 0 ? 'with' : ','} w${i} as (`;
  const end = (i: number): string => (counted[i] === true ? ' returning 1)' : ')');
  const counts = parts.flatMap((_, i) => (counted[i] === true ? [`(select count(*) from w${i}) as n${i}`] : []));
  const pieces = [
    begin(0),
    ...parts.slice(1).map((_, i) => `${end(i)}${begin(i + 1)}`),
    `${end(parts.length - 1)} select ${counts.join(', ')}`,
  ];
  const statements = parts.map(({ statement }) => statement);
  return new Sql(`together ${counted.map(Number).join('')}`, pieces, statements);
}
