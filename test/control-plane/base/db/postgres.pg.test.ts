// A PostgreSQL server that goes away in the middle: work in progress fails, and everything else goes on.
import { expect, test } from 'vitest';
import { z } from 'zod';
import { int } from '../../../../control-plane/base/db/columns.ts';
import { sql } from '../../../../control-plane/base/db/db.ts';
import { openTestDb } from '../../../kit/databases.ts';

test('a full disk of the server is our own error, and the next transaction works', async () => {
  const db = await openTestDb([]);
  const full = sql`do $$ begin raise exception 'could not extend file' using errcode = 'disk_full'; end $$`;
  await expect(db.tx('full', (tx) => tx.run(full))).rejects.toMatchObject({ code: 'disk_full' });
  expect(await db.tx('next', (tx) => tx.one(One, sql`select 1 as one`))).toEqual({ one: 1 });
  await db.close();
});

const One = z.object({ one: int });

test('a server that closes the connection of a transaction fails that transaction, and the process goes on', async () => {
  const uncaught: unknown[] = [];
  const note = (error: unknown): void => void uncaught.push(error);
  process.on('uncaughtExceptionMonitor', note);
  const db = await openTestDb([]);
  const ended = db.tx('ended', (tx) => tx.run(sql`select pg_terminate_backend(pg_backend_pid())`));
  await expect(ended).rejects.toThrow('terminat');
  expect(await db.tx('next', (tx) => tx.one(One, sql`select 1 as one`))).toEqual({ one: 1 });
  await db.close();
  process.off('uncaughtExceptionMonitor', note);
  expect(uncaught).toEqual([]);
});
