// Video servers in trouble beside healthy ones, and an absence of our own: no job fails for what its server did not do.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { readBytes } from '../../../control-plane/base/outbound/outbound.ts';
import { fail } from '../../../shared/errors.ts';
import { mp4, openVideoServer, type Scripted, type VideoServer } from '../../kit/video-server.ts';
import { whileTimePasses } from '../../kit/virtual-clock.ts';
import type { World } from '../../kit/world.ts';
import { CENTS, driveFor, jobOf, openVideoWorld, submitVideo, type Who } from './video-world.ts';

const MINUTE_MS = 60_000;

let servers: [VideoServer, VideoServer];
let world: World;
let who: Who;
beforeEach(async () => {
  servers = [await openVideoServer(), await openVideoServer()];
  world = await openVideoWorld(servers, {
    more: [{ video_ms: 10 * MINUTE_MS }, {}],
    outside: { settings: { openVideosPerOrg: 40 } },
  });
  who = await world.customer(CENTS);
});
afterEach(async () => {
  await world.verify();
  await world.close();
  for (const server of servers) await server.close();
});

const submit = (): Promise<string> => submitVideo(world, who, { seconds: 2 });
const script = (server: VideoServer, kind: string, scripted: Scripted): void => {
  server.script = (what) => (what.startsWith(kind) ? scripted : undefined);
};

test.each<[string, Scripted, number]>([
  ['fails at once', { status: 500 }, 1],
  ['refuses its key', { status: 401 }, 0],
  ['has no such path', { status: 404 }, 0],
  ['is behind a redirect', { status: 302 }, 0],
])('a job whose first server %s goes to the other one', async (_what, scripted, lost) => {
  script(servers[0], 'POST', scripted);
  const id = await submit();
  await driveFor(world, 2);
  expect(await jobOf(world, id)).toMatchObject({ upstream: servers[1].baseUrl, submissions_lost: lost });
});

test('a server that has lost a job comes last for a minute, and is then tried again', async () => {
  script(servers[0], 'POST', { status: 500 });
  await submit();
  await driveFor(world, 2);
  servers[0].script = () => undefined;
  const next = await submit();
  await world.drive();
  expect((await jobOf(world, next)).upstream).toBe(servers[1].baseUrl);
  await world.clock.advance(MINUTE_MS);
  const again = await submit();
  await world.drive();
  expect((await jobOf(world, again)).upstream).toBe(servers[0].baseUrl);
});

test('three servers that are away do not use up the tries of every job', async () => {
  await world.close();
  const away = [await openVideoServer(), await openVideoServer(), await openVideoServer()];
  for (const server of away) script(server, 'POST', { status: 503 });
  for (const server of servers) server.usual = { status: 'in_progress', progress: 1 };
  world = await openVideoWorld([...away, ...servers]);
  who = await world.customer(CENTS);
  const ids = [await submit(), await submit(), await submit()];
  await driveFor(world, 30);
  const healthy = servers.map(({ baseUrl }) => baseUrl);
  for (const id of ids) expect(healthy).toContain((await jobOf(world, id)).upstream);
  for (const server of away) await server.close();
});

test.each(['queued', 'in_progress'] as const)(
  'a video that was %s when the control plane went away, and finished meanwhile, is fetched, however late',
  async (status) => {
    servers[0].usual = { status, progress: 1 };
    const id = await submit();
    await driveFor(world, 2);
    Object.assign(servers[0].jobs[0] ?? {}, { status: 'completed', progress: 100 });
    await world.clock.advance(3 * 60 * MINUTE_MS);
    world = await world.restart();
    // The network of this host comes up a little later.
    let refused = 0;
    servers[0].script = () => ((refused += 1) <= 3 ? { ending: 'cut' } : undefined);
    await driveFor(world, 30);
    expect(await jobOf(world, id)).toMatchObject({ status: 'completed' });
  },
);

test('a video that is still queued at a silent server after two hours expires', async () => {
  servers[0].usual = { status: 'queued', progress: 0 };
  const id = await submit();
  await driveFor(world, 2);
  servers[0].script = () => ({ ending: 'cut' });
  await world.clock.advance(2 * 60 * MINUTE_MS);
  await driveFor(world, 60);
  expect(await jobOf(world, id)).toMatchObject({ status: 'expired' });
});

test('a video that nobody has tried to fetch in time is fetched all the same', async () => {
  servers[0].usual = { status: 'completed', progress: 100 };
  const id = await submit();
  for (let step = 0; step < 2; step += 1) await world.rooms.videos.driver.drive(id, new AbortController().signal);
  expect((await jobOf(world, id)).committed_ms).not.toBeNull();
  await world.clock.advance(20 * MINUTE_MS);
  await driveFor(world, 1);
  expect(await jobOf(world, id)).toMatchObject({ status: 'completed' });
});

test('twelve jobs at most fetch files at once, so that others are sent meanwhile', async () => {
  servers[0].usual = { status: 'completed', progress: 100 };
  servers[1].usual = { status: 'completed', progress: 100 };
  const ids = await Promise.all(Array.from({ length: 16 }, submit));
  const { driver } = world.rooms.videos;
  const signal = new AbortController().signal;
  const driveAll = async (due: readonly string[]): Promise<unknown> =>
    Promise.all(due.map((id) => driver.drive(id, signal)));
  // A job that finds all places for submissions taken for a moment is sent in a later round.
  for (let left: readonly string[] = ids; left.length > 0; await world.clock.advance(1_000)) {
    await driveAll(left);
    const jobs = await Promise.all(ids.map((id) => jobOf(world, id)));
    left = jobs.filter(({ committed_ms: committedMs }) => committedMs === null).map(({ id }) => id);
  }
  const fetches = await driver.due(world.clock.now(), 64);
  expect(fetches).toHaveLength(12);
  const gate = Promise.withResolvers<void>();
  for (const server of servers)
    server.script = (what) => (what.endsWith('/content') ? { takes: true, after: gate.promise } : undefined);
  const driving = driveAll(fetches);
  const fresh = await submit();
  expect(await driver.due(world.clock.now(), 64)).toEqual([fresh]);
  gate.resolve();
  await driving;
  const left = ids.filter((id) => !fetches.includes(id));
  expect(await driver.due(world.clock.now(), 64)).toEqual(expect.arrayContaining([...left, fresh]));
});

test('while the store of files is away, a finished video waits, and nothing is said against its server', async () => {
  servers[0].usual = { status: 'completed', progress: 100 };
  const id = await submit();
  const { blobs, videos } = world.rooms;
  const { write } = blobs;
  blobs.write = async () => fail('unavailable', 'The store is away.');
  for (let n = 0; n < 40; n += 1) {
    await videos.driver.drive(id, new AbortController().signal).catch(() => undefined);
    await world.clock.advance(MINUTE_MS / 2);
  }
  expect(videos.counts.failures()).toEqual([]);
  blobs.write = write;
  await driveFor(world, 1);
  expect(await jobOf(world, id)).toMatchObject({ status: 'completed', failures: 0 });
});

test('a server is left at once if the store fails before it reads the file', async () => {
  servers[0].usual = { status: 'completed', progress: 100 };
  const id = await submit();
  servers[0].script = (what) => (what.endsWith('/content') ? { body: mp4(), ending: 'stall' } : undefined);
  const unread = Promise.withResolvers<AsyncIterable<Uint8Array>>();
  world.rooms.blobs.write = async (_key, source) => {
    unread.resolve(source);
    return fail('unavailable', 'The store is away.');
  };
  for (let n = 0; n < 3; n += 1)
    await world.rooms.videos.driver.drive(id, new AbortController().signal).catch(() => undefined);
  const reading = whileTimePasses(world.clock, readBytes(await unread.promise, 1_000), 1_000);
  await expect(reading).rejects.toThrow('it was given up');
});
