// Checks that each transaction body of the product locks its root first (base/db/locks.ts). SQLite locks nothing, but a test on it finds
// every body that forgot to.
import type { Db, Sql, Tx } from '../../control-plane/base/db/db.ts';
import { textOf } from './sql-text.ts';

/** Bodies of several statements that need no root, and why. */
const WITHOUT_ROOT: Readonly<Record<string, string>> = {
  'secret.check': 'it runs once at the start, before anything else does',
  'books.transfers': 'its first statement locks the row of the proof, or inserts it',
  'books.again': 'its first statement locks the row of the proof, or inserts it',
  'books.proven': 'its first statement locks the row of the proof, or inserts it',
  'months.add': 'its first statement locks the row of the position',
  'months.again': 'its first statement locks the row of the position',
  'supply.all_offline': 'it runs before the process serves anything',
  'endpoints.prepare': 'it inserts rows that are missing',
  'receipts.sum': 'its first statement locks the row of the position',
  'receipts.forget':
    'nobody changes a closed receipt, the position of the totals only grows, and the sum of the forgotten ones is added in one statement',
  'users.sign_up': 'it inserts rows that nobody else knows yet; the address is unique',
  'users.add': 'it inserts rows that nobody else knows yet; the address is unique',
  'webhooks.forget':
    'its first statement deletes only what is still over, and its second what belongs to no delivery any more',
};

/** The same database. A body fails if it writes after another statement and its first call was not `lock`. */
export function checkLocks(db: Db): Db {
  return { ...db, tx: (name, body) => db.tx(name, (tx) => body(watched(name, tx))) };
}

function watched(name: string, tx: Tx): Tx {
  // Names of the product are `room.verb`. Tests name their own bodies in one word, or `test.*`.
  const isOurs = name.includes('.') && !name.startsWith('test.') && !(name in WITHOUT_ROOT);
  let statements = 0;
  let hasWritten = false;
  let isLocked = false;
  const note = (statement: Sql): void => {
    const text = textOf(statement).trim();
    // An entry of the audit joins the transaction of an action. It is one new row.
    if (!isOurs || /^insert into audit_entries/i.test(text)) return;
    statements += 1;
    hasWritten ||= !/^select/i.test(text);
    if (isLocked || statements < 2 || !hasWritten) return;
    throw new Error(
      `the transaction ${name} has several statements and did not begin with a lock: ${text.slice(0, 80)}`,
    );
  };
  const over = (inner: Tx): Tx => ({
    all: async (row, statement) => (note(statement), inner.all(row, statement)),
    one: async (row, statement) => (note(statement), inner.one(row, statement)),
    run: async (statement) => (note(statement), inner.run(statement)),
    lock: async (root, ...ids) => {
      if (statements === 0) isLocked = true;
      await inner.lock(root, ...ids);
    },
    firstUnlocked: (root, ids, still) => {
      if (statements === 0) isLocked = true;
      return inner.firstUnlocked(root, ids, still);
    },
    together: (work) => inner.together((joined) => work(over(joined))),
  });
  return over(tx);
}
