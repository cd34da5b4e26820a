// Deleted videos that cost nothing are forgotten after a day, and neither lists nor the counts of a server walk rows that they do not show.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { brought } from '../../../control-plane/brings.ts';
import { forgetOld } from '../../../control-plane/loops.ts';
import { countAt, findJob, nextInLine, pageOfJobs } from '../../../control-plane/models/videos/store.ts';
import { planOf, recordingDb } from '../../kit/recording-db.ts';
import { openVideoServer, type VideoServer } from '../../kit/video-server.ts';
import type { World } from '../../kit/world.ts';
import { CENTS, driveFor, openVideoWorld, paid, submitVideo, type Who } from './video-world.ts';

const DAY_MS = 24 * 3_600_000;

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

const forget = (): Promise<void> =>
  forgetOld(new AbortController().signal, brought(world.brings(), 'forgets'), world.core);
const known = async (...ids: string[]): Promise<boolean[]> =>
  Promise.all(ids.map(async (id) => (await findJob(world.db.read, id)) !== undefined));

test('a deleted video that cost nothing is forgotten after a day; one that was paid, or that nobody has deleted, is kept', async () => {
  const done = await submitVideo(world, who);
  await driveFor(world, 1);
  Object.assign(server.jobs.at(-1) ?? {}, { status: 'completed', progress: 100 });
  await driveFor(world, 20);
  expect(await paid(world, who)).toBe(true);
  const [free, kept] = [await submitVideo(world, who), await submitVideo(world, who)];
  for (const id of [free, kept]) await world.rooms.videos.cancel(who.orgId, id, async () => undefined);
  await driveFor(world, 60);
  for (const id of [done, free]) await world.rooms.videos.remove(who.orgId, id);
  await world.clock.advance(DAY_MS - 1);
  await forget();
  expect(await known(done, free, kept)).toEqual([true, true, true]);
  await world.clock.advance(1);
  await forget();
  expect(await known(done, free, kept)).toEqual([true, false, true]);
});

test('a page, a count and the line of waiting jobs begin in an index of what they show', async () => {
  if (world.db.dialect !== 'sqlite') return;
  const { db, sent } = recordingDb(world.db);
  await pageOfJobs(db.read, 'o', { count: 2, order: 'desc' });
  await countAt(db.read, 'http://server');
  await nextInLine(db.read, ['director'], { jobId: 'vid_1', free: 1 });
  const plans = await Promise.all(sent.map((statement) => planOf(world.db, statement)));
  const steps = plans.flatMap((plan) => plan.split('\n')).filter((step) => step.includes(' video_jobs'));
  expect(steps).toEqual([
    'SEARCH video_jobs USING INDEX video_jobs_of_org (org_id=?)',
    'SEARCH video_jobs USING INDEX video_jobs_at (upstream=?)',
    'SEARCH video_jobs USING INDEX video_jobs_left_at (upstream=?)',
    'SEARCH video_jobs USING INDEX video_jobs_sent (model_id=?)',
    'SEARCH video_jobs USING INDEX video_jobs_waiting (model_id=?)',
  ]);
});
