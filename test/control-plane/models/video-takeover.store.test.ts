// A control plane that was paused goes on with a video that another one has taken over. What it still does changes nothing: the row, the charge and
// the file are those of the other one.
import { readdirSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openVideoServer, type Scripted, type VideoServer } from '../../kit/video-server.ts';
import type { World } from '../../kit/world.ts';
import { CENTS, driveFor, jobOf, openVideoWorld, paid, submitVideo, type Who } from './video-world.ts';

const { signal } = new AbortController();
const nothing = (): void => undefined;

let first: VideoServer;
let second: VideoServer;
let paused: World;
let other: World;
let who: Who;
beforeEach(async () => {
  [first, second] = [await openVideoServer(), await openVideoServer()];
  for (const server of [first, second]) server.usual = { status: 'completed', progress: 100 };
  paused = await openVideoWorld([first, second], { more: [{}, { video_ms: 60_000 }] });
  other = await paused.restart();
  who = await paused.customer(CENTS);
});
afterEach(async () => {
  await other.verify();
  await paused.rooms.videos.close();
  await other.close();
  await Promise.all([first.close(), second.close()]);
});

const drive = (world: World, id: string): Promise<void> => world.rooms.videos.driver.drive(id, signal);

/** The next requests of this kind get these answers, each once its function is called. The server answers all later ones with 503. */
function hold(server: VideoServer, what: string, ...answers: Scripted[]): (() => void)[] {
  const held = answers.map((scripted) => ({ scripted, gate: Promise.withResolvers<void>() }));
  let count = 0;
  server.script = (asked) => {
    if (asked !== what) return undefined;
    const next = held[count];
    count += 1;
    return next === undefined ? { status: 503, body: {} } : { ...next.scripted, after: next.gate.promise };
  };
  return held.map(
    ({ gate }) =>
      () =>
        gate.resolve(),
  );
}

/** How many files there are, also those that no job names. */
function files(): number {
  const all = readdirSync(other.blobsDirectory, { recursive: true, withFileTypes: true });
  return all.filter((each) => each.isFile()).length;
}

const OLD_ANSWERS: [string, Scripted][] = [
  ['takes it', { takes: true }],
  ['is busy', { status: 503, body: {} }],
  ['refuses it', { status: 422, body: {} }],
  ['gives an answer that says nothing', { status: 500, body: {} }],
];

test.each(OLD_ANSWERS)(
  'if the first server %s after another process has sent the video to the second one, the second one makes it',
  async (_what, scripted) => {
    // The servers give different ids after this one.
    await submitVideo(paused, who);
    await driveFor(paused, 3);
    second.usual = { status: 'in_progress', progress: 5 };
    const before = first.asked.length;
    const [answer = nothing] = hold(first, 'POST /videos', scripted);
    const id = await submitVideo(paused, who);
    const sending = drive(paused, id);
    await first.came(before + 1);
    await drive(other, id);
    const accepted = { status: 'queued', upstream: second.baseUrl, upstream_job_id: 'video_gen_1' };
    expect(await jobOf(other, id)).toMatchObject({ ...accepted, submissions_lost: 1 });
    answer();
    await sending;
    expect(await jobOf(other, id)).toMatchObject({ ...accepted, submissions_lost: 1, upstream_open: true });
    // What the first server has taken is not wanted any more.
    expect(first.jobs).toEqual([]);
    for (const job of second.jobs) job.status = 'completed';
    await driveFor(other, 3);
    expect(await jobOf(other, id)).toMatchObject({ status: 'completed', charged_ucents: 4_000_000n });
    expect(files()).toBe(2);
  },
);

test.each(OLD_ANSWERS)(
  'if a server %s while another process sends the video again, the second submission counts',
  async (_what, scripted) => {
    const [old = nothing, answer = nothing] = hold(first, 'POST /videos', scripted, { takes: true });
    const id = await submitVideo(paused, who);
    const sending = drive(paused, id);
    await first.came(1);
    const again = drive(other, id);
    await first.came(2);
    const claimed = { status: 'queued', upstream: first.baseUrl, upstream_job_id: null, upstream_open: true };
    expect(await jobOf(other, id)).toMatchObject({ ...claimed, submissions_lost: 1 });
    old();
    await sending;
    expect(await jobOf(other, id)).toMatchObject({ ...claimed, submissions_lost: 1 });
    answer();
    await again;
    expect(second.asked).toEqual([]);
    await driveFor(other, 3);
    expect(await jobOf(other, id)).toMatchObject({ status: 'completed', submissions_lost: 1 });
    expect(await paid(other, who)).toBe(true);
    expect(first.jobs).toEqual([]);
    expect(files()).toBe(1);
  },
);

test('an old answer does not end a video that has been finished meanwhile', async () => {
  second.usual = { status: 'in_progress', progress: 5 };
  first.script = () => ({ status: 503, body: {} });
  const id = await submitVideo(paused, who);
  await driveFor(paused, 2);
  // The longest time of the second server is over.
  await other.clock.advance(60_000);
  const before = second.asked.length;
  const [answer = nothing] = hold(second, 'GET /videos/video_gen_1', { body: { status: 'in_progress', progress: 99 } });
  const asking = drive(paused, id);
  await second.came(before + 1);
  second.script = () => undefined;
  for (const job of second.jobs) job.status = 'completed';
  await drive(other, id);
  answer();
  await asking;
  expect(await jobOf(other, id)).toMatchObject({ status: 'in_progress', committed_ms: other.clock.now() });
  await driveFor(other, 3);
  expect(await jobOf(other, id)).toMatchObject({ status: 'completed' });
  expect(await paid(other, who)).toBe(true);
});

test('if two processes fetch the same video, it is charged once and kept once', async () => {
  const id = await submitVideo(paused, who);
  await drive(paused, id);
  await drive(paused, id);
  const [answer = nothing] = hold(first, 'GET /videos/video_gen_1/content', {
    headers: { 'content-type': 'video/mp4' },
    body: first.jobs[0]?.file ?? '',
  });
  const before = first.asked.length;
  const fetching = drive(paused, id);
  await first.came(before + 1);
  first.script = () => undefined;
  await drive(other, id);
  expect(await jobOf(other, id)).toMatchObject({ status: 'completed' });
  answer();
  await fetching;
  expect(await paid(other, who)).toBe(true);
  expect(files()).toBe(1);
  await driveFor(other, 3);
});
