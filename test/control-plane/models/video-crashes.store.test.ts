// kill -9 at every instant of a video job: one video, one charge or none, no hold for ever, no file without a job.
import { readdirSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Db, Tx } from '../../../control-plane/base/db/db.ts';
import { openVideoServer, type VideoServer } from '../../kit/video-server.ts';
import type { World, WorldOutside } from '../../kit/world.ts';
import { CENTS, driveFor, jobOf, openVideoWorld, paid, submitVideo, type Who } from './video-world.ts';

const HOUR = 3_600_000;
const forever = new AbortController().signal;

let server: VideoServer;
/** The world of the living process. Earlier processes are dead. */
let world: World;
let who: Who;
beforeEach(async () => {
  server = await openVideoServer();
  server.usual = { status: 'completed', progress: 100 };
});
afterEach(async () => {
  await world.verify();
  await world.close();
  await server.close();
});

interface Mortal {
  db: Db;
  /** Starts to count transactions. */
  arm(): void;
  died: Promise<void>;
}

/** A database whose process dies at its `nth` transaction: before it, or as soon as it is durable. */
function mortal(db: Db, nth: number, when: 'before' | 'after'): Mortal {
  const death = Promise.withResolvers<void>();
  let count = -Infinity;
  const tx = async <T>(name: string, body: (tx: Tx) => Promise<T>): Promise<T> => {
    const mine = (count += 1);
    if (mine < nth) return db.tx(name, body);
    if (mine === nth && when === 'after') await db.tx(name, body);
    death.resolve();
    return new Promise<never>(() => undefined);
  };
  return { db: { ...db, tx }, arm: () => (count = 0), died: death.promise };
}

interface Dying {
  nth: number;
  when: 'before' | 'after';
  /** Runs in a process that lives. */
  prepare?(world: World): Promise<void>;
  work(world: World): Promise<void>;
}

/** True if the process has survived its work. `world` is then the next process. */
async function die({ nth, when, prepare, work }: Dying): Promise<boolean> {
  const processes: Mortal[] = [];
  const processOn: WorldOutside['processOn'] = ({ db, clock }) => {
    const process = mortal(db, nth, when);
    processes.push(process);
    return { db: process.db, clock };
  };
  const first = await openVideoWorld([server], { outside: { processOn } });
  who = await first.customer(CENTS);
  await prepare?.(first);
  const doomed = await first.restart();
  // The start of a process has transactions too.
  processes[1]?.arm();
  const lived = await Promise.race([work(doomed).then(() => true), processes[1]?.died.then(() => false)]);
  for (const dead of [first, doomed]) await dead.rooms.videos.close();
  world = await doomed.restart();
  return lived === true;
}

/** How many files there are, also those that no job names. */
function files(): number {
  return readdirSync(world.blobsDirectory, { recursive: true, withFileTypes: true }).filter((each) => each.isFile())
    .length;
}

/** The transactions of a job: server known, submitted, accepted, in progress, finished, charged, released at the server, waiting for its expiry. */
const TRANSACTIONS_OF_A_JOB = 7;

/** So late that a file without a job counts as an orphan. */
async function sweepLater(): Promise<void> {
  await world.clock.advance(HOUR);
  await world.rooms.blobs.sweep({ videos: world.rooms.videos.namedBlobs }, forever);
}

describe.each(['before', 'after'] as const)('a process that dies %s a transaction', (when) => {
  test.each(Array.from({ length: TRANSACTIONS_OF_A_JOB + 1 }, (_, i) => i + 1))(
    'number %d of a job: the next process completes it, charges it once, and keeps one file',
    async (nth) => {
      let id = '';
      const lived = await die({
        nth,
        when,
        prepare: async (first) => void (id = await submitVideo(first, who)),
        work: (doomed) => driveFor(doomed, 3),
      });
      expect(lived).toBe(nth > TRANSACTIONS_OF_A_JOB);
      await driveFor(world, 20);
      expect(await jobOf(world, id)).toMatchObject({ status: 'completed', upstream_open: false });
      expect(await paid(world, who)).toBe(true);
      await sweepLater();
      expect(files()).toBe(1);
    },
  );

  test('that expires a file: the job expires, and the file is gone', async () => {
    let id = '';
    const lived = await die({
      nth: 1,
      when,
      prepare: async (first) => {
        id = await submitVideo(first, who);
        await driveFor(first, 3);
        await first.clock.advance(24 * HOUR);
      },
      work: (doomed) => driveFor(doomed, 3),
    });
    expect(lived).toBe(false);
    await driveFor(world, 3);
    await sweepLater();
    expect(await jobOf(world, id)).toMatchObject({ status: 'expired', blob_key: null });
    expect(await paid(world, who)).toBe(true);
    expect(files()).toBe(0);
  });

  test('that inserts a job: job and hold exist, or neither does', async () => {
    await die({ nth: 1, when, work: async (doomed) => void (await submitVideo(doomed, who)) });
    const jobs = await world.rooms.videos.list(who.orgId, { from: undefined, order: 'desc', count: 9 });
    expect(jobs).toHaveLength(when === 'before' ? 0 : 1);
    await world.verify();
    await driveFor(world, 5);
    expect(await paid(world, who)).toBe(when === 'after');
  });

  test('that cancels a job: the job is cancelled, or it goes on', async () => {
    let id = '';
    await die({
      nth: 1,
      when,
      prepare: async (first) => {
        server.usual = { status: 'in_progress', progress: 5 };
        id = await submitVideo(first, who);
        await driveFor(first, 2);
      },
      work: async (doomed) => void (await doomed.rooms.videos.cancel(who.orgId, id, async () => undefined)),
    });
    for (const job of server.jobs) job.status = 'completed';
    await driveFor(world, 20);
    expect(await jobOf(world, id)).toMatchObject({ status: when === 'before' ? 'completed' : 'cancelled' });
    expect(await paid(world, who)).toBe(when === 'before');
    expect(server.jobs).toEqual([]);
  });
});

test('a submission whose answer was lost with its process is sent again, and costs once', async () => {
  const gate = Promise.withResolvers<void>();
  server.script = () => ({ takes: true, after: gate.promise });
  const first = await openVideoWorld([server]);
  who = await first.customer(CENTS);
  const id = await submitVideo(first, who);
  void first.drive().catch(() => undefined);
  await server.came(1);
  world = await first.restart();
  server.script = () => undefined;
  await driveFor(world, 5);
  expect(await jobOf(world, id)).toMatchObject({ status: 'completed', submissions_lost: 1 });
  // The server has made it twice, and deleted the one with the id that we know.
  expect(server.asked.filter((what) => what === 'POST /videos')).toHaveLength(2);
  expect(server.jobs).toHaveLength(1);
  expect(await paid(world, who)).toBe(true);
  await first.rooms.videos.close();
});

test('if the reply of a submission or a cancel cannot be stored, the change is rolled back too', async () => {
  world = await openVideoWorld([server]);
  who = await world.customer(CENTS);
  const taken = async (): Promise<never> => Promise.reject(new Error('the claim is gone'));
  await expect(submitVideo(world, who, {}, taken)).rejects.toThrow('the claim is gone');
  expect(await world.rooms.videos.list(who.orgId, { from: undefined, order: 'desc', count: 9 })).toEqual([]);
  expect(await paid(world, who)).toBe(false);
  const id = await submitVideo(world, who);
  await expect(world.rooms.videos.cancel(who.orgId, id, taken)).rejects.toThrow('the claim is gone');
  expect(await jobOf(world, id)).toMatchObject({ status: 'queued' });
});
