// A stop of the control plane during a video download does not count against the server.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { mp4, openVideoServer, type Scripted, type VideoServer } from '../../kit/video-server.ts';
import type { World } from '../../kit/world.ts';
import { CENTS, jobOf, openVideoWorld, submitVideo, type Who } from './video-world.ts';

let server: VideoServer;
let world: World;
let who: Who;
beforeEach(async () => {
  server = await openVideoServer();
  world = await openVideoWorld([server]);
  who = await world.customer(CENTS);
});
afterEach(async () => {
  await world.verify();
  await world.close();
  await server.close();
});

test('a download that our own stop cuts off is no failure of its server', async () => {
  const id = await submitVideo(world, who);
  await world.drive();
  Object.assign(server.jobs.at(-1) ?? {}, { status: 'completed', progress: 100 });
  const begun: Scripted = { body: mp4().subarray(0, 40), headers: { 'content-length': '64' }, ending: 'stall' };
  server.script = (what) => (what.endsWith('/content') ? begun : undefined);
  const stopping = new AbortController();
  const { driver } = world.rooms.videos;
  for (let i = 0; i < 20 && !server.asked.some((what) => what.endsWith('/content')); i += 1) {
    await world.clock.advance(1_000);
    const driving = driver.drive(id, stopping.signal);
    await Promise.race([driving, untilAsked('/content')]);
  }
  stopping.abort();
  for (let turn = 0; turn < 100; turn += 1) await world.clock.nextTurn();
  expect(await jobOf(world, id)).toMatchObject({ status: 'in_progress', failures: 0 });
  expect(world.rooms.videos.counts.failures()).toEqual([]);
});

/** Resolves when a request with this ending has arrived. */
async function untilAsked(end: string): Promise<void> {
  for (let turn = 0; turn < 2_000 && !server.asked.some((what) => what.endsWith(end)); turn += 1)
    await world.clock.nextTurn();
}
