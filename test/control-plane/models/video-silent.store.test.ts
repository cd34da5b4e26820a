// A server that hangs costs only its own jobs: the others are sent, asked about and fetched meanwhile, and all jobs of the server share one
// question.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openVideoServer, type VideoServer } from '../../kit/video-server.ts';
import { whileTimePasses } from '../../kit/virtual-clock.ts';
import type { World } from '../../kit/world.ts';
import { CENTS, driveFor, jobOf, openVideoWorld, submitVideo, type Who } from './video-world.ts';

const JOBS = 40;
const ENGINE_LIMIT = 64;
const MINUTE_MS = 60_000;

let hanging: VideoServer;
let healthy: VideoServer;
let world: World;
let who: Who;
let ids: string[];
/** All jobs are at the first server, which then hangs. */
beforeEach(async () => {
  [hanging, healthy] = [await openVideoServer(), await openVideoServer()];
  hanging.usual = { status: 'in_progress', progress: 1 };
  healthy.usual = { status: 'completed', progress: 100 };
  healthy.script = () => ({ status: 503 });
  const more = { max_open_requests: 2 * JOBS, video_ms: 10 * MINUTE_MS };
  world = await openVideoWorld([hanging, healthy], {
    more: [more, more],
    outside: { settings: { openVideosPerOrg: 2 * JOBS } },
  });
  who = await world.customer(CENTS);
  ids = await Promise.all(Array.from({ length: JOBS }, () => submitVideo(world, who, { seconds: 2 })));
  await driveFor(world, 10);
  expect(hanging.jobs).toHaveLength(JOBS);
  healthy.script = () => undefined;
  hanging.script = () => ({ ending: 'stall' });
  // All of them are due, and the other server counts as one that takes jobs again.
  await world.clock.advance(MINUTE_MS);
});
afterEach(async () => {
  await world.verify();
  await world.close();
  await hanging.close();
  await healthy.close();
});

const signal = new AbortController().signal;
const due = (): Promise<string[]> => world.rooms.videos.driver.due(world.clock.now(), ENGINE_LIMIT);
const driveAll = async (due: readonly string[]): Promise<void> => {
  await Promise.all(due.map((id) => world.rooms.videos.driver.drive(id, signal)));
};
const askedOf = ({ asked }: VideoServer, kind: string): number => asked.filter((what) => what.startsWith(kind)).length;

/** A question to the server that hangs is over after 40 seconds at most. */
const untilSilent = (driving: Promise<void>): Promise<void> => whileTimePasses(world.clock, driving, 5_000);

test('a video that another server makes is driven while the jobs of a server that hangs wait', async () => {
  const stuck = await due();
  expect(stuck.length).toBeLessThan(12);
  const driving = driveAll(stuck);
  const fresh = await submitVideo(world, who, { seconds: 2 });
  for (let step = 0; step < 4 && (await jobOf(world, fresh)).status !== 'completed'; step += 1) {
    const others = await due();
    expect(others).toEqual([fresh]);
    await driveAll(others);
    await world.clock.advance(1_000);
  }
  expect(await jobOf(world, fresh)).toMatchObject({ status: 'completed', upstream: healthy.baseUrl });
  await untilSilent(driving);
});

test('one question at a time goes to a server that hangs, its other jobs share the answer, and end when their time is over', async () => {
  await untilSilent(driveAll(await due()));
  await world.clock.advance(20 * MINUTE_MS);
  for (let question = 1; question <= 6; question += 1) {
    const before = hanging.asked.length;
    const askers = await due();
    expect(askers).toHaveLength(1);
    await untilSilent(driveAll(askers));
    expect(hanging.asked).toHaveLength(before + 1);
    await world.clock.advance(30_000);
  }
  const ended = await Promise.all(ids.map((id) => jobOf(world, id)));
  expect(new Set(ended.map(({ error_code: code }) => code))).toEqual(new Set(['upstream_timeout']));
});

test('a server that answers again gets its places back', async () => {
  await untilSilent(driveAll(await due()));
  await world.clock.advance(30_000);
  hanging.script = () => undefined;
  const [asker = ''] = await due();
  await driveAll([asker]);
  expect((await due()).length).toBeGreaterThan(1);
  expect(await jobOf(world, asker)).toMatchObject({ status: 'in_progress', failures: 0 });
});

test('a server that hangs gets one submission at a time, and the other jobs go elsewhere', async () => {
  await untilSilent(driveAll(await due()));
  for (const id of ids) await world.rooms.videos.cancel(who.orgId, id, async () => undefined);
  await world.clock.advance(2 * MINUTE_MS);
  const fresh = await Promise.all(Array.from({ length: 6 }, () => submitVideo(world, who, { seconds: 2 })));
  const before = askedOf(hanging, 'POST');
  await untilSilent(Promise.all(fresh.map((id) => world.rooms.videos.driver.drive(id, signal))).then(() => undefined));
  expect(askedOf(hanging, 'POST') - before).toBeLessThanOrEqual(1);
  expect(askedOf(healthy, 'POST')).toBeGreaterThanOrEqual(5);
});
