// A PostgreSQL server that goes away in the middle: work in progress fails, and everything else goes on.
import { Socket } from 'node:net';
import { expect, inject, test, vi } from 'vitest';
import { z } from 'zod';
import { int } from '../../../../control-plane/base/db/columns.ts';
import { sql } from '../../../../control-plane/base/db/db.ts';
import { renewLease, seeLease, takeLease } from '../../../../control-plane/base/db/lease.ts';
import { prepareDatabase } from '../../../../control-plane/base/db/migrate.ts';
import { openPostgres } from '../../../../control-plane/base/db/postgres.ts';
import { systemClock } from '../../../../shared/clock.ts';
import { createLog } from '../../../../shared/log.ts';
import { systemRng } from '../../../../shared/rng.ts';
import { createDatabase, openTestDb } from '../../../kit/databases.ts';

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
  const Ended = z.object({ ended: z.boolean() });
  const end = sql`select pg_terminate_backend(pg_backend_pid()) as ended`;
  await expect(db.snapshot('ended', (query) => query.one(Ended, end))).rejects.toThrow('terminat');
  expect(await db.snapshot('next', (query) => query.one(One, sql`select 1 as one`))).toEqual({ one: 1 });
  expect(await db.tx('next', (tx) => tx.one(One, sql`select 1 as one`))).toEqual({ one: 1 });
  await db.close();
  process.off('uncaughtExceptionMonitor', note);
  expect(uncaught).toEqual([]);
});

test('a connection that the server ends between two statements of a transaction counts as a server that is away', async () => {
  const ours = await openTestDb([]);
  const theirs = await openTestDb([]);
  const lost = ours.tx('lost', async (tx) => {
    const { pid } = z.object({ pid: int }).parse(await tx.one(z.unknown(), sql`select pg_backend_pid() as pid`));
    const Ended = z.object({ ended: z.boolean() });
    await theirs.read.one(Ended, sql`select pg_terminate_backend(cast(${pid} as integer), 5000) as ended`);
    return tx.one(One, sql`select 1 as one`);
  });
  await expect(lost).rejects.toMatchObject({ code: 'unavailable' });
  expect(await ours.tx('next', (tx) => tx.one(One, sql`select 1 as one`))).toEqual({ one: 1 });
  await Promise.all([ours.close(), theirs.close()]);
});

test('several processes may prepare a new database at the same time', async () => {
  const url = await createDatabase(inject('postgresUrl') ?? '');
  const deps = { clock: systemClock(), rng: systemRng(), log: createLog('test', 'silent') };
  const dbs = Array.from({ length: 4 }, () => openPostgres(url, deps));
  // All of them have connections now, so that none begins later than the others.
  await Promise.all(dbs.map((db) => db.tx('connect', (tx) => tx.one(One, sql`select 1 as one`))));
  await Promise.all(dbs.map(prepareDatabase));
  const seen = await Promise.all(dbs.map((db) => seeLease(db, 'primary')));
  expect(seen).toEqual([undefined, undefined, undefined, undefined]);
  await Promise.all(dbs.map((db) => db.close()));
});

test('a transaction in progress holds up a takeover of the lease, and not its renewal', async () => {
  const url = await createDatabase(inject('postgresUrl') ?? '');
  const deps = { clock: systemClock(), rng: systemRng(), log: createLog('test', 'silent') };
  const ours = openPostgres(url, deps);
  const theirs = openPostgres(url, deps);
  await prepareDatabase(ours);
  const held = await takeLease(ours, { name: 'primary', holder: 'ours' }, undefined);
  if (held === undefined) throw new Error('the lease was not free');
  ours.fence(held);
  const begun = Promise.withResolvers<void>();
  const end = Promise.withResolvers<void>();
  let isTaken = false;
  const body = ours.tx('slow', async (tx) => {
    await tx.one(One, sql`select 1 as one`);
    begun.resolve();
    await end.promise;
  });
  await begun.promise;
  expect(await renewLease(ours, held)).toBe(true);
  const seen = await seeLease(theirs, 'primary');
  const takeover = takeLease(theirs, { name: 'primary', holder: 'theirs' }, seen).then((taken) => {
    isTaken = true;
    return taken;
  });
  const Waiting = z.object({ count: int });
  const waiting = sql`select count(*) as count from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
  while ((await theirs.read.one(Waiting, waiting))?.count === 0) await deps.clock.sleep(5);
  expect(isTaken).toBe(false);
  end.resolve();
  await body;
  expect(await takeover).toMatchObject({ epoch: 2 });
  await expect(ours.tx('late', (tx) => tx.one(One, sql`select 1 as one`))).rejects.toMatchObject({
    code: 'lease_lost',
  });
  await Promise.all([ours.close(), theirs.close()]);
});

test('statements that a body sends without waiting for answers are written at once', async () => {
  const db = await openTestDb([]);
  const one = sql`select 1 as one`;
  const ten = (): Promise<unknown> =>
    db.tx('ten', (tx) => Promise.all(Array.from({ length: 10 }, () => tx.one(One, one))));
  // The first two transactions make the connections of both processes.
  await ten();
  await ten();
  const writes = vi.spyOn(Socket.prototype as unknown as { _writeGeneric(): void }, '_writeGeneric');
  await ten();
  // BEGIN with the ten statements, and the COMMIT.
  expect(writes).toHaveBeenCalledTimes(2);
  writes.mockRestore();
  await db.close();
});

test('a snapshot sends its beginning together with its first read', async () => {
  const db = await openTestDb([]);
  const one = (): Promise<unknown> => db.snapshot('one', (query) => query.one(One, sql`select 1 as one`));
  await one();
  const writes = vi.spyOn(Socket.prototype as unknown as { _writeGeneric(): void }, '_writeGeneric');
  await one();
  // BEGIN with the read, and the COMMIT.
  expect(writes).toHaveBeenCalledTimes(2);
  writes.mockRestore();
  await db.close();
});
