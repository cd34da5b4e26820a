// Control planes that serve beside each other on PostgreSQL: who is the primary, and what becomes of those that stop, die or are too old.
import { setTimeout } from 'node:timers/promises';
import { afterEach, beforeEach, expect, inject, test } from 'vitest';
import { z } from 'zod';
import { text } from '../../control-plane/base/db/columns.ts';
import { raw, sql } from '../../control-plane/base/db/db.ts';
import { isFree, LEASE_MS, RENEW_MS, seeLease } from '../../control-plane/base/db/lease.ts';
import { addressOf, openSecondaries } from '../../control-plane/base/db/members.ts';
import { migrate } from '../../control-plane/base/db/migrate.ts';
import { openPostgres, type PostgresDb } from '../../control-plane/base/db/postgres.ts';
import { type Foundation, openFoundation, SCHEMA } from '../../control-plane/foundation.ts';
import { systemClock } from '../../shared/clock.ts';
import { createIds } from '../../shared/ids.ts';
import { createLog } from '../../shared/log.ts';
import { seededRng } from '../../shared/rng.ts';
import { createDatabase } from '../bench/database.ts';
import { type VirtualClock, virtualClock } from '../kit/virtual-clock.ts';

let written: string[];
const log = createLog('test', 'warn', { write: (line) => void written.push(line) });
const A = 'http://a.example:1';
const B = 'http://b.example:2';

const STEP = sql`insert into leases values ('step', '', 1, 0) on conflict (name) do update set beat = leases.beat + 1`;

interface Process extends Foundation {
  clock: VirtualClock;
  isLost(): boolean;
}

let databases = 0;
let url: string;
/** The database connection of nobody in particular. */
let db: PostgresDb;
/** The clocks of the processes that run. One that is paused or dead has none here. */
let clocks: Set<VirtualClock>;
let processes: Process[];
let starts = 0;
beforeEach(async () => {
  databases += 1;
  url = await createDatabase(inject('postgresUrl') ?? '', `beside_${process.pid}_${databases}`);
  db = openPostgres(url, { clock: systemClock(), rng: seededRng(1), log });
  // A migration takes long, and virtual time would pass meanwhile.
  await migrate(db, SCHEMA, { clock: systemClock() });
  [clocks, processes, written] = [new Set(), [], []];
});
afterEach(async () => {
  for (const each of processes) await each.close();
  await db.close();
});

type WhenPrimary = (process: Foundation) => Promise<void>;

const start = (peerUrl?: string, whenPrimary?: WhenPrimary): Promise<Process> => until(begin(peerUrl, whenPrimary));

/** The test lets time pass meanwhile. */
async function begin(peerUrl?: string, whenPrimary: WhenPrimary = async () => undefined): Promise<Process> {
  const clock = virtualClock();
  clocks.add(clock);
  starts += 1;
  const rng = seededRng(100 + starts);
  const foundation = await openFoundation(
    { postgres: url },
    { clock, rng, ids: createIds(clock, rng), log, peerUrl, onStandBy: async () => undefined },
  );
  let isLost = false;
  foundation.onLost(() => (isLost = true));
  foundation.onPrimary(() => whenPrimary(foundation));
  const started = { ...foundation, clock, isLost: () => isLost };
  processes.push(started);
  return started;
}

/** Virtual time passes until `what` has ended, while real answers of the server arrive in between. */
async function until<T>(what: Promise<T>): Promise<T> {
  let isOver = false;
  const over = what.finally(() => (isOver = true));
  over.catch(() => undefined);
  while (!isOver) await pass(500);
  return over;
}

/**
 * Each step takes longer than a renewal of a lease, so that no lease is lost because the server is slow. A renewal may open a connection, which takes
 * some real time more.
 */
async function pass(ms: number): Promise<void> {
  for (let passedMs = 0; passedMs < ms; passedMs += 500) {
    await Promise.all([...clocks].map((clock) => clock.advance(500)));
    for (let i = 0; i < 2; i += 1) await db.tx('step', (tx) => tx.run(STEP));
    await setTimeout(10);
  }
}

async function passUntil(isSo: () => boolean): Promise<void> {
  while (!isSo()) await pass(500);
}

async function stop(process: Process): Promise<void> {
  clocks.delete(process.clock);
  processes = processes.filter((each) => each !== process);
  await process.close();
}

const LeaseRow = z.object({ name: text, holder: text });

const leases = (): Promise<z.infer<typeof LeaseRow>[]> =>
  db.read.all(LeaseRow, sql`select name, holder from leases where name <> 'step' order by name`);

/** The former primaries that the log names, and what became of them. */
const takeovers = (): unknown[] =>
  written
    .map((line) => JSON.parse(line) as Record<string, unknown>)
    .filter((line) => 'former_primary' in line)
    .map((line) => [line['former_primary'], line['msg']]);

const write = ({ db: own }: Foundation): Promise<number> =>
  own.tx('write', (tx) =>
    tx.run(sql`insert into commit_probes values (1, 1) on conflict (id) do update set at_ms = 2`),
  );

test('one that has a URL serves beside a primary that has one, knows where it is, and may write', async () => {
  const a = await start(A);
  const b = await start(B);
  expect([a.primary(), a.epoch()]).toEqual(['self', 1]);
  await passUntil(() => b.primary() !== 'unknown');
  expect([b.primary(), b.epoch()]).toEqual([{ id: a.members.id, url: A }, 0]);
  expect([...(await a.members.others())]).toEqual([b.members.id]);
  expect([...(await b.members.others())]).toEqual([]);
  expect([await write(a), await write(b)]).toEqual([1, 1]);
  expect([a.isLost(), b.isLost()]).toEqual([false, false]);
});

test('when the primary stops, the secondary takes its place, is ready before it says so, and goes on writing', async () => {
  const a = await start(A);
  const during: unknown[] = [];
  const b = await start(B, async (own) => void during.push(own.primary(), own.epoch(), await write(own)));
  await stop(a);
  await passUntil(() => b.primary() === 'self');
  expect(during).toEqual(['unknown', 2, 1]);
  expect([await write(b), b.epoch(), b.isLost()]).toEqual([1, 2, false]);
  expect(b.primacy()?.how).toBe('given_back');
  expect(takeovers()).toEqual([
    [A, 'this control plane takes the place of the former primary, which has given its lease back'],
  ]);
  const c = await start(A);
  await passUntil(() => c.primary() !== 'unknown');
  expect(c.primary()).toEqual({ id: b.members.id, url: B });
});

test('when the primary dies, the secondary waits until its lease is over; the dead one writes nothing more', async () => {
  const a = await start(A);
  const b = await start(B);
  await passUntil(() => b.primary() !== 'unknown');
  clocks.delete(a.clock);
  const diedMs = b.clock.monotonicMs();
  await passUntil(() => b.primary() === 'self');
  expect(b.clock.monotonicMs() - diedMs).toBeGreaterThanOrEqual(LEASE_MS - RENEW_MS);
  expect([a.primacy()?.how, b.primacy()?.how]).toEqual(['start', 'ran_out']);
  expect(takeovers()).toEqual([[A, expect.stringContaining('has not renewed its lease for 15 s')]]);
  await expect(write(a)).rejects.toMatchObject({ code: 'lease_lost' });
  clocks.add(a.clock);
  await passUntil(a.isLost);
  expect(written.join('')).toContain(`another control plane (${B}) has taken this database over`);
});

test('a secondary that dies is ended by the primary, writes nothing more when it resumes, and ends', async () => {
  const a = await start(A);
  const b = await start(B);
  const { endDead } = openSecondaries(a.members.id, { db: a.db, clock: a.clock, log });
  clocks.delete(b.clock);
  expect(await endDead()).toBe(0);
  await pass(LEASE_MS - 1_000);
  expect(await endDead()).toBe(0);
  await pass(1_000);
  expect(await endDead()).toBe(1);
  expect([...(await a.members.others())]).toEqual([]);
  await expect(write(b)).rejects.toMatchObject({ code: 'lease_lost' });
  clocks.add(b.clock);
  await passUntil(b.isLost);
});

test('a secondary that renews its lease is not ended, and neither is the primary itself', async () => {
  const a = await start(A);
  await start(B);
  await stop(a);
  const [b] = processes;
  await passUntil(() => b?.primary() === 'self');
  const c = await start(A);
  const { endDead } = openSecondaries(b?.members.id ?? '', { db, clock: c.clock, log });
  for (let i = 0; i < 5; i += 1) {
    expect(await endDead()).toBe(0);
    await pass(LEASE_MS / 3);
  }
});

test('beside a primary without a URL, or with another schema, it waits until it can take its place', async () => {
  const a = await start();
  let isOpen = false;
  const starting = begin(B).then((b) => ((isOpen = true), b));
  await pass(2 * LEASE_MS);
  expect(isOpen).toBe(false);
  const schema = (to: string): Promise<number> =>
    db.tx('schema', (tx) => tx.run(sql`update schema_migrations set room = ${to} where room in ('admin', 'newer')`));
  await schema('newer');
  await db.tx('url', (tx) => tx.run(sql`insert into control_planes values (${a.members.id}, ${A})`));
  await pass(2 * LEASE_MS);
  expect(isOpen).toBe(false);
  await schema('admin');
  const b = await until(starting);
  await passUntil(() => b.primary() !== 'unknown');
  expect(b.primary()).toEqual({ id: a.members.id, url: A });
});

test('a new primary that changes the schema ends the secondaries first', async () => {
  const a = await start(A);
  const b = await start(B);
  await passUntil(() => b.primary() !== 'unknown');
  clocks.delete(b.clock);
  await db.tx('older', (tx) =>
    tx.run(sql`delete from schema_migrations where room = 'base/db' and name like '%control-planes%'`),
  );
  await db.tx('older', (tx) => tx.run(sql`drop table control_planes`));
  await stop(a);
  const c = await start(A);
  expect(c.primary()).toBe('self');
  await expect(write(b)).rejects.toMatchObject({ code: 'lease_lost' });
  expect(await addressOf(db, c.members.id)).toBe(A);
});

test('one that leaves gives back what it holds', async () => {
  const a = await start(A);
  const b = await start(B);
  await stop(b);
  expect([...(await a.members.others())]).toEqual([]);
  await stop(a);
  expect(await leases()).toEqual([{ name: 'primary', holder: '' }]);
});

test('one that has become the primary gives back what it holds too', async () => {
  const a = await start(A);
  const b = await start(B);
  await stop(a);
  await passUntil(() => b.primary() === 'self');
  await stop(b);
  expect(await leases()).toEqual([{ name: 'primary', holder: '' }]);
});

test('one that could not become the primary ends, and gives back what it holds', async () => {
  const a = await start(A);
  const b = await start(B, async () => Promise.reject(new Error('the port is taken')));
  await stop(a);
  await passUntil(b.isLost);
  await b.stay();
  expect(await leases()).toEqual([{ name: 'primary', holder: '' }]);
  expect(written.join('')).toContain('the port is taken');
});

test('one that closes first ends what it does to become the primary', async () => {
  const a = await start(A);
  const { promise: mayEnd, resolve: end } = Promise.withResolvers<void>();
  let hasBegun = false;
  const b = await start(B, () => ((hasBegun = true), mayEnd));
  await stop(a);
  await passUntil(() => hasBegun);
  let stays = false;
  const staying = b.stay().then(() => (stays = true));
  await pass(1_000);
  expect([stays, b.primary()]).toEqual([false, 'unknown']);
  end();
  await staying;
  expect(b.primary()).toBe('self');
});

test('one that closes does not become the primary', async () => {
  const a = await start(A);
  const b = await start(B);
  await b.stay();
  await stop(a);
  await pass(LEASE_MS);
  expect(b.primary()).not.toBe('self');
  expect(isFree(await seeLease(db, 'primary'))).toBe(true);
});

test('one that is too old for the schema leaves the lease and the secondaries alone', async () => {
  const a = await start(A);
  const b = await start(B);
  await b.stay();
  await stop(a);
  await db.tx('newer', (tx) => tx.run(sql`insert into schema_migrations values ('newer', '0001-more.sql', '', 1)`));
  const before = await seeLease(db, 'primary');
  await expect(start(A)).rejects.toMatchObject({ code: 'migration' });
  expect(await seeLease(db, 'primary')).toEqual(before);
  expect(await write(b)).toBe(1);
});

test('a new primary that cannot change the schema gives the lease back', async () => {
  await db.tx('older', (tx) => tx.run(sql`delete from schema_migrations where name like '%control-planes%'`));
  await expect(start(A)).rejects.toThrow('already exists');
  expect(await leases()).toEqual([{ name: 'primary', holder: '' }]);
});

test('one with the URL of the primary is refused', async () => {
  await start(A);
  await expect(start(A)).rejects.toThrow(`has the same peer_url (${A})`);
  expect(await leases()).toMatchObject([{ name: 'primary' }]);
});

test('one that finds no primary that it can reach says once which setting is wrong', async () => {
  const a = await start(A);
  const b = await start(B);
  const alike = await start(B);
  clocks.delete(alike.clock);
  await stop(a);
  await passUntil(() => b.primary() === 'self');
  clocks.add(alike.clock);
  await pass(2_000);
  clocks.delete(alike.clock);
  await stop(b);
  const silent = await start();
  clocks.add(alike.clock);
  const complaints = (): string[] =>
    written.flatMap((line) => /the primary has (?:the same|no) peer_url/.exec(line)?.[0] ?? []);
  await passUntil(() => complaints().length > 1);
  await pass(2_000);
  expect([silent.primary(), alike.primary()]).toEqual(['self', 'unknown']);
  expect(complaints()).toEqual(['the primary has the same peer_url', 'the primary has no peer_url']);
});

test('one that joins just when another one takes the lease of the primary does not serve beside it', async () => {
  const a = await start(A);
  // What a newer version could do before it changes the schema, after the secondaries were ended.
  await db.tx('takeover', async (tx) => {
    await tx.run(
      raw(`create function take_over() returns trigger as
        $$ begin update leases set epoch = epoch + 1, holder = 'newer' where name = 'primary'; return new; end $$ language plpgsql`),
    );
    await tx.run(
      raw(
        `create trigger takes_over after insert on leases for each row when (new.name like 'member/%') execute function take_over()`,
      ),
    );
  });
  const b = await start(B);
  await passUntil(a.isLost);
  expect([b.primary(), b.epoch()]).toEqual(['self', 3]);
  expect(await leases()).toEqual([{ name: 'primary', holder: b.members.id }]);
});
