// Only one primary at a time on PostgreSQL: tests processes that start too early, are paused, have a wrong clock or lose the server.
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { int, text } from '../../control-plane/base/db/columns.ts';
import { raw, sql } from '../../control-plane/base/db/db.ts';
import {
  type Held,
  isFree,
  LEASE_MS,
  RENEW_MS,
  RENEWED_MS_MAX,
  renewLease,
  seeLease,
  takeLease,
} from '../../control-plane/base/db/lease.ts';
import { prepareDatabase } from '../../control-plane/base/db/migrate.ts';
import { openPostgres, type PostgresDb } from '../../control-plane/base/db/postgres.ts';
import { type Config, readConfig } from '../../control-plane/config.ts';
import { type Foundation, openFoundation } from '../../control-plane/foundation.ts';
import { openHouse } from '../../control-plane/house.ts';
import { systemClock } from '../../shared/clock.ts';
import { createIds } from '../../shared/ids.ts';
import { createLog } from '../../shared/log.ts';
import { seededRng } from '../../shared/rng.ts';
import { freePort } from '../kit/ports.ts';
import { startPostgres } from '../kit/postgres.ts';
import { type VirtualClock, virtualClock } from '../kit/virtual-clock.ts';

const Count = z.object({ count: int });
const Pid = z.object({ pid: int });
const log = createLog('test', 'silent');

let server: Awaited<ReturnType<typeof startPostgres>>;
let databases = 0;
let url: string;
/** The database connection of a process that is not under test. */
let db: PostgresDb;

beforeAll(async () => {
  server = await startPostgres();
});
afterAll(() => server.stop());
beforeEach(async () => {
  databases += 1;
  const admin = openPostgres(server.url, { clock: systemClock(), rng: seededRng(1), log });
  // Not inside a transaction.
  await admin.read.all(z.unknown(), raw(`create database lease_${databases}`));
  await admin.close();
  url = server.url.replace(/\/postgres$/, `/lease_${databases}`);
  db = openPostgres(url, { clock: systemClock(), rng: seededRng(2), log });
  await prepareDatabase(db);
});
afterEach(() => db.close());

/** A process that starts now, on a clock that the test controls. */
function start(at: string, clock: VirtualClock): Promise<Foundation> {
  return openFoundation({ postgres: at }, depsWith(clock));
}

function depsWith(clock: VirtualClock): Parameters<typeof openFoundation>[1] {
  const rng = seededRng(databases * 100 + clock.now());
  return { clock, rng, ids: createIds(clock, rng), log };
}

/** Advances the clock until `what` has ended, while real answers of the server arrive in between. */
async function pass<T>(
  clock: VirtualClock,
  what: Promise<T>,
  each: () => Promise<unknown> = async () => undefined,
): Promise<T> {
  let isOver = false;
  const over = what.finally(() => (isOver = true));
  over.catch(() => undefined);
  while (!isOver) {
    await each();
    await clock.advance(100);
    await db.read.one(Count, sql`select 1 as count`);
  }
  return over;
}

async function holder(): Promise<Held> {
  const held = await takeLease(db, { name: 'primary', holder: 'a' }, await seeLease(db, 'primary'));
  if (held === undefined) throw new Error('it was taken');
  return held;
}

test('a newer version that is started beside a running one does not change the schema, and ends', async () => {
  const held = await holder();
  const clock = virtualClock();
  const started = pass(clock, start(url, clock), () => renewLease(db, held));
  await expect(started).rejects.toMatchObject({ code: 'database_in_use' });
  expect(await db.read.one(Count, sql`select count(*) as count from schema_migrations`)).toEqual({ count: 0 });
});

test('a migration has no limit for a statement, and all other transactions have one', async () => {
  await db.tx('listen', async (tx) => {
    await tx.run(raw('create table heard (statement_limit text not null)'));
    await tx.run(
      raw(`create function hear() returns event_trigger as
        $$ begin insert into heard values (current_setting('statement_timeout')); end $$ language plpgsql`),
    );
    await tx.run(
      raw(`create event trigger hears on ddl_command_end when tag in ('CREATE INDEX') execute function hear()`),
    );
  });
  const started = await start(url, virtualClock());
  const Heard = z.object({ statement_limit: z.string() });
  const heard = await db.read.all(Heard, sql`select distinct statement_limit from heard`);
  expect(heard).toEqual([{ statement_limit: '0' }]);
  const ofCallers = sql`select current_setting('statement_timeout') as statement_limit`;
  expect(await started.db.tx('any', (tx) => tx.one(Heard, ofCallers))).toEqual({ statement_limit: '1min' });
  expect(await started.db.read.one(Heard, ofCallers)).toEqual({ statement_limit: '1min' });
  await started.close();
});

test('a process whose clock is a day ahead cannot take the lease from a holder that renews it', async () => {
  const held = await holder();
  const clock = virtualClock(Date.now() + 86_400_000);
  let looks = 0;
  const started = pass(clock, start(url, clock), async () => {
    looks += 1;
    if (looks % (RENEW_MS / 100) === 0) await renewLease(db, held);
  });
  await expect(started).rejects.toMatchObject({ code: 'database_in_use' });
  expect(await renewLease(db, held)).toBe(true);
});

test('one renewal proves that the holder lives: a command beside it ends then, and does not wait longer', async () => {
  const held = await holder();
  const clock = virtualClock();
  let renewals = 0;
  const started = pass(clock, start(url, clock), async () => {
    // It sleeps between two looks, so it has seen the lease before.
    if (renewals > 0 || clock.waiting() === 0) return;
    renewals += 1;
    await renewLease(db, held);
  });
  await expect(started).rejects.toMatchObject({ code: 'database_in_use' });
});

test('a process whose transactions all wait still renews its lease', async () => {
  const clock = virtualClock();
  const busy = await start(url, clock);
  let isLost = false;
  busy.onLost(() => (isLost = true));
  const before = await seeLease(db, 'primary');
  const end = Promise.withResolvers<void>();
  // More than it has lanes, so that further transactions wait in its queue.
  const waiting = Array.from({ length: 40 }, () => busy.db.tx('waits', () => end.promise));
  const wanted = (before?.beat ?? 0) + 4;
  const renewed = async (): Promise<void> => {
    while (!isLost && ((await seeLease(db, 'primary'))?.beat ?? 0) < wanted);
  };
  // Each step takes real time, because the connection of the renewal is opened in between.
  await pass(clock, renewed(), () => setTimeout(5));
  expect(isLost).toBe(false);
  end.resolve();
  await Promise.all(waiting);
  await busy.close();
});

test('a lease that is not renewed changes hands; its former holder writes nothing more and ends', async () => {
  const clockA = virtualClock();
  const a = await start(url, clockA);
  const lost = new Promise<void>((resolve) => a.onLost(resolve));
  // The process is paused: its clock stands still.
  const clockB = virtualClock();
  const b = await pass(clockB, start(url, clockB));
  expect(b.epoch()).toBe(a.epoch() + 1);
  const write = a.db.tx('late', (tx) => tx.run(sql`update commit_probes set at_ms = 1`));
  await expect(write).rejects.toMatchObject({ code: 'lease_lost' });
  await b.db.tx('write', (tx) => tx.run(sql`insert into commit_probes (id, at_ms) values (1, 2)`));
  // The process resumes.
  await pass(clockA, lost);
  await a.close();
  await b.close();
});

test('a process that stands by waits as long as the holder renews the lease, and then takes it', async () => {
  const held = await holder();
  const clock = virtualClock();
  const standsBy: number[] = [];
  const onStandBy = async (): Promise<void> => void standsBy.push(clock.monotonicMs());
  const started = openFoundation({ postgres: url }, { ...depsWith(clock), onStandBy });
  let looks = 0;
  // The holder renews until the process stands by and for three leases more. Virtual time passes while the database works, so no bound would hold.
  const far = (): number => (standsBy[0] ?? 100 * LEASE_MS) + 3 * LEASE_MS;
  const waited = pass(
    clock,
    started.then((foundation) => ({ foundation, atMs: clock.monotonicMs() })),
    async () => {
      looks += 1;
      if (clock.monotonicMs() < far() && looks % (RENEW_MS / 100) === 0) await renewLease(db, held);
    },
  );
  const { foundation, atMs } = await waited;
  expect(standsBy).toHaveLength(1);
  expect(atMs).toBeGreaterThan(far() + LEASE_MS - RENEW_MS);
  expect(foundation.epoch()).toBe(held.epoch + 1);
  await foundation.close();
});

test('a process that finds out that it could not serve ends in place of standing by', async () => {
  const held = await holder();
  const clock = virtualClock();
  const refused = openFoundation(
    { postgres: url },
    { ...depsWith(clock), onStandBy: () => Promise.reject(new Error('another secret')) },
  );
  await expect(pass(clock, refused, () => renewLease(db, held))).rejects.toThrow('another secret');
});

test('a released lease is taken at once', async () => {
  const clock = virtualClock();
  const a = await start(url, clock);
  await a.close();
  const b = await start(url, clock);
  expect(b.epoch()).toBe(a.epoch() + 1);
  await b.close();
});

test('a holder without answers from the server ends before another process may take over', async () => {
  const proxy = await openProxy(url);
  const clock = virtualClock();
  const a = await start(proxy.url, clock);
  const startedMs = clock.monotonicMs();
  const lost = new Promise<number>((resolve) => a.onLost(() => resolve(clock.monotonicMs() - startedMs)));
  proxy.hang();
  expect(await pass(clock, lost)).toBeLessThanOrEqual(RENEWED_MS_MAX);
  expect(RENEWED_MS_MAX).toBeLessThan(LEASE_MS);
  proxy.stop();
  await a.close();
});

test('a server that has become read-only is left: the next transaction uses a new connection', async () => {
  const admin = openPostgres(server.url, { clock: systemClock(), rng: seededRng(3), log });
  const setReadOnly = async (to: 'on' | 'off'): Promise<void> => {
    await admin.read.all(z.unknown(), raw(`alter system set default_transaction_read_only = ${to}`));
    await admin.read.all(z.unknown(), sql`select pg_reload_conf()`);
  };
  const pid = async (): Promise<number | undefined> =>
    (await db.tx('pid', (tx) => tx.one(Pid, sql`select pg_backend_pid() as pid`)))?.pid;
  const write = (): Promise<number> =>
    db.tx('write', (tx) => tx.run(sql`insert into leases values ('x', '', 1, 1) on conflict do nothing`));
  const before = await pid();
  await setReadOnly('on');
  await expect.poll(() => write().then(String, (error: { code: string }) => error.code)).toBe('unavailable');
  await setReadOnly('off');
  await expect.poll(() => write().then(() => 'written', String)).toBe('written');
  expect(await pid()).not.toBe(before);
  await admin.close();
});

test('a server that nobody reaches is reported as unavailable, also to a read of several statements', async () => {
  const nobody = openPostgres(`postgres://127.0.0.1:${await freePort()}/nobody`, {
    clock: systemClock(),
    rng: seededRng(4),
    log,
  });
  const count = sql`select 1 as count`;
  const reads = [nobody.read.one(Count, count), nobody.snapshot('test.count', (query) => query.one(Count, count))];
  for (const read of reads) await expect(read).rejects.toMatchObject({ code: 'unavailable' });
  await nobody.close();
});

test('a lease that was lost before anybody could be told ends the process as soon as somebody can', async () => {
  const clock = virtualClock();
  const process = await start(url, clock);
  await db.tx('steal', (tx) => tx.run(sql`update leases set holder = 'thief' where name = 'primary'`));
  let isLost = false;
  // The renewal finds it out, and then no timer is left.
  await expect.poll(async () => (await clock.advance(RENEW_MS), clock.waiting())).toBe(0);
  process.onLost(() => (isLost = true));
  expect(isLost).toBe(true);
  await process.close();
});

describe('a house with a fault gives the lease back', () => {
  let dir: string;
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), 'start-'));
  });
  afterEach(() => rmSync(dir, { recursive: true }));

  const configOf = (): Config => {
    const file = join(dir, 'config.yaml');
    const at = (name: string): string => join(dir, name);
    const settings = {
      base_url: 'http://127.0.0.1/v1',
      listen: { host: '127.0.0.1', port: 0 },
      database: { postgres: url },
      admin_socket: at('admin.sock'),
      secret_file: at('secret'),
    };
    writeFileSync(file, JSON.stringify(settings));
    return readConfig(file);
  };

  test('if its start fails after it has taken the lease', async () => {
    const config = configOf();
    // The rooms read this setting after the lease is taken.
    Object.defineProperty(config, 'retention', { get: () => expect.unreachable('a late fault') });
    await expect(openHouse(config, log)).rejects.toThrow('a late fault');
    const lease = await seeLease(db, 'primary');
    expect(lease && isFree(lease)).toBe(true);
  });

  test('if its end fails', async () => {
    const config = configOf();
    const house = await openHouse(config, log);
    Object.defineProperty(config, 'drain_seconds', { get: () => expect.unreachable('a late fault') });
    await expect(house.close()).rejects.toThrow('a late fault');
    const lease = await seeLease(db, 'primary');
    expect(lease && isFree(lease)).toBe(true);
  });
});

test('a server that closes the connection is reported as unavailable, and reads go on', async () => {
  const Name = z.object({ name: text });
  const killed = db.tx('killed', (tx) => tx.run(sql`select pg_terminate_backend(pg_backend_pid())`));
  await expect(killed).rejects.toMatchObject({ code: 'unavailable' });
  expect(await db.read.one(Name, sql`select 'here' as name`)).toEqual({ name: 'here' });
});

interface Proxy {
  url: string;
  /** No packet passes any more, and neither side is notified. */
  hang(): void;
  stop(): void;
}

async function openProxy(to: string): Promise<Proxy> {
  const { port } = new URL(to);
  const sockets: Socket[] = [];
  let hangs = false;
  const proxy: Server = createServer((near) => {
    const far = connect(Number(port), '127.0.0.1');
    sockets.push(near, far);
    for (const [from, into] of [
      [near, far],
      [far, near],
    ] as const) {
      from.on('data', (chunk) => void (hangs || into.write(chunk)));
      from.on('error', () => undefined);
      from.on('close', () => into.destroy());
    }
  }).listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  const own = new URL(to);
  own.port = String((proxy.address() as AddressInfo).port);
  return {
    url: own.href,
    hang: () => void (hangs = true),
    stop: () => {
      for (const socket of sockets) socket.destroy();
      proxy.close();
    },
  };
}
