// Slots of servers: who gets one, and servers that cannot stop a job (SGLang), where a cancelled one takes a slot until it is finished.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openVideoServer, type VideoServer } from '../../kit/video-server.ts';
import type { World } from '../../kit/world.ts';
import { CENTS, driveFor, jobOf, openVideoWorld, submitVideo, type Who } from './video-world.ts';

let server: VideoServer;
let world: World;
let who: Who;
beforeEach(async () => {
  server = await openVideoServer('sglang');
  server.usual = { status: 'in_progress', progress: 10 };
});
afterEach(async () => {
  await world.verify();
  await world.close();
  await server.close();
});

async function open(upstream: object, settings: object = {}): Promise<void> {
  world = await openVideoWorld([server], { more: [{ engine: 'sglang', ...upstream }], outside: { settings } });
  who = await world.customer(CENTS);
}
const stand = (standing: object): void => void Object.assign(server.jobs.at(-1) ?? {}, standing);
const asked = (kind: string): number => server.asked.filter((what) => what.startsWith(kind)).length;

const leave = async (): Promise<string> => {
  const id = await submitVideo(world, who);
  await world.drive();
  await world.rooms.videos.cancel(who.orgId, id, async () => undefined);
  await driveFor(world, 30);
  return id;
};

test('a server that cannot stop a job keeps the slot of a cancelled one until it has finished it', async () => {
  await open({ max_open_requests: 1 });
  const id = await leave();
  const next = await submitVideo(world, who);
  await driveFor(world, 30);
  expect([asked('DELETE'), asked('POST')]).toEqual([0, 1]);
  expect(await jobOf(world, id)).toMatchObject({ status: 'cancelled', upstream_open: true });
  stand({ status: 'completed', progress: 100 });
  await driveFor(world, 60);
  expect(await jobOf(world, id)).toMatchObject({ status: 'cancelled', upstream_open: false });
  expect(await jobOf(world, next)).toMatchObject({ status: 'in_progress' });
});

test('such a server gets the slot back if it has lost the job, or after its longest time for a video', async () => {
  await open({ video_ms: 120_000 });
  const [lost, slow] = [await leave(), await leave()];
  server.jobs.shift();
  await driveFor(world, 30);
  expect(await jobOf(world, lost)).toMatchObject({ upstream_open: false });
  expect(await jobOf(world, slow)).toMatchObject({ upstream_open: true });
  await driveFor(world, 80);
  expect(await jobOf(world, slow)).toMatchObject({ upstream_open: false });
});

test('a cancelled video that its server still makes counts as an open one of its organisation', async () => {
  await open({}, { openVideosPerOrg: 2 });
  await leave();
  await leave();
  await expect(submitVideo(world, who)).rejects.toMatchObject({ code: 'rate_limit_exceeded' });
  stand({ status: 'failed' });
  await driveFor(world, 60);
  await submitVideo(world, who);
});

test.each(['director', 'acme/clips'])(
  'a slot goes to the job that waits longest, although a new one of %s asks more often',
  async (model) => {
    await open({ max_open_requests: 1 });
    const busy = await submitVideo(world, who);
    await world.drive();
    const first = await submitVideo(world, who);
    // An old job asks every 15 seconds.
    await driveFor(world, 600);
    const second = await submitVideo(world, who, { model });
    await driveFor(world, 4);
    stand({ status: 'completed', progress: 100 });
    for (let passed = 0; passed < 60 && (await jobOf(world, busy)).status !== 'completed'; passed += 1)
      await driveFor(world, 1);
    await driveFor(world, 3);
    expect([(await jobOf(world, first)).status, (await jobOf(world, second)).status]).toEqual([
      'in_progress',
      'queued',
    ]);
    stand({ status: 'completed', progress: 100 });
    await driveFor(world, 60);
    expect((await jobOf(world, second)).status).toBe('in_progress');
    stand({ status: 'completed', progress: 100 });
    await driveFor(world, 60);
  },
);

/** The server finishes this video, and the next one gets its slot. */
async function finish(id: string): Promise<void> {
  const { upstream_job_id: serverId } = await jobOf(world, id);
  Object.assign(server.jobs.find((job) => job.id === serverId) ?? {}, { status: 'completed', progress: 100 });
  await driveFor(world, 40);
}

/** Submits as many videos, a second apart. */
async function submitted(owner: Who, count: number): Promise<string[]> {
  const ids: string[] = [];
  for (let i = 0; i < count; i += 1) {
    ids.push(await submitVideo(world, owner));
    await driveFor(world, 1);
  }
  return ids;
}

const statuses = async (...ids: string[]): Promise<string[]> =>
  (await Promise.all(ids.map((id) => jobOf(world, id)))).map(({ status }) => status);

test('one video is not behind all those of an organisation that came first, and the two then take turns', async () => {
  await open({ max_open_requests: 1 });
  const [a1 = '', a2 = '', a3 = ''] = await submitted(who, 20);
  const [b1 = '', b2 = ''] = await submitted(await world.customer(CENTS), 2);
  expect(await statuses(a1, b1)).toEqual(['in_progress', 'queued']);
  await finish(a1);
  expect(await statuses(a2, b1)).toEqual(['queued', 'in_progress']);
  await finish(b1);
  expect(await statuses(a2, b2)).toEqual(['in_progress', 'queued']);
  await finish(a2);
  expect(await statuses(a3, b2)).toEqual(['queued', 'in_progress']);
});

test('a slot goes to the organisation that has the fewest videos there', async () => {
  await open({ max_open_requests: 4 });
  const [a1 = '', a2 = '', , , a5 = ''] = await submitted(who, 6);
  const [b1 = '', b2 = '', b3 = ''] = await submitted(await world.customer(CENTS), 3);
  await finish(a1);
  expect(await statuses(a5, b1)).toEqual(['queued', 'in_progress']);
  // The other organisation had the last turn, but it has only one video there.
  await finish(a2);
  expect(await statuses(a5, b2)).toEqual(['queued', 'in_progress']);
  await finish(b1);
  expect(await statuses(a5, b3)).toEqual(['queued', 'in_progress']);
});

test('free slots are filled at once with the videos of several organisations', async () => {
  await open({ max_open_requests: 7 });
  const other = await world.customer(CENTS);
  const ids: string[] = [];
  for (const owner of [who, other]) for (let i = 0; i < 5; i += 1) ids.push(await submitVideo(world, owner));
  await world.drive();
  const held = (await Promise.all(ids.map((id) => jobOf(world, id)))).map(({ upstream }) => Number(upstream !== null));
  expect(held).toEqual([1, 1, 1, 1, 0, 1, 1, 1, 0, 0]);
});

test('a job that is cancelled before the server has answered takes its slot and its place until the answer is there', async () => {
  await open({ max_open_requests: 1 }, { openVideosPerOrg: 1 });
  const answered = Promise.withResolvers<void>();
  server.script = (what) => (what === 'POST /videos' ? { takes: true, after: answered.promise } : undefined);
  const id = await submitVideo(world, who);
  const driven = world.drive();
  await server.came(1);
  await world.rooms.videos.cancel(who.orgId, id, async () => undefined);
  await expect(submitVideo(world, who)).rejects.toMatchObject({ code: 'rate_limit_exceeded' });
  server.script = () => undefined;
  answered.resolve();
  await driven;
  await driveFor(world, 40);
  expect(await jobOf(world, id)).toMatchObject({ status: 'cancelled', upstream_open: true });
  stand({ status: 'completed', progress: 100 });
  await driveFor(world, 60);
  expect(await jobOf(world, id)).toMatchObject({ upstream_open: false });
  await submitVideo(world, who);
});

test('a job that is cancelled before a server has refused it gives its slot back when no answer can come any more', async () => {
  await open({ max_open_requests: 1 });
  const answered = Promise.withResolvers<void>();
  server.script = () => ({ status: 503, body: {}, after: answered.promise });
  const id = await submitVideo(world, who);
  const driven = world.drive();
  await server.came(1);
  await world.rooms.videos.cancel(who.orgId, id, async () => undefined);
  answered.resolve();
  await driven;
  server.script = () => undefined;
  expect(await jobOf(world, id)).toMatchObject({ status: 'cancelled', upstream_open: true });
  await driveFor(world, 60);
  expect(await jobOf(world, id)).toMatchObject({ upstream_open: false });
});

test('of two processes that are about to send the same video, one sends it', async () => {
  await open({});
  const other = await world.restart();
  const id = await submitVideo(world, who);
  const { signal } = new AbortController();
  await Promise.all([world, other].map(({ rooms }) => rooms.videos.driver.drive(id, signal)));
  expect(asked('POST')).toBe(1);
  expect(await jobOf(world, id)).toMatchObject({ upstream_job_id: 'video_gen_1', submissions_lost: 0 });
  await other.rooms.videos.close();
});
