// How video jobs are driven: which server gets a job, what is retried, what fails it, and that the server is cleaned up afterwards.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { fail } from '../../../shared/errors.ts';
import { mp4, openVideoServer, type Scripted, type VideoServer } from '../../kit/video-server.ts';
import type { World } from '../../kit/world.ts';
import { CENTS, driveFor, jobOf, openVideoWorld, paid, submitVideo, type Who } from './video-world.ts';

const MINUTE = 60_000;
const BYTES_MAX = 4_096;

let servers: [VideoServer, VideoServer];
let world: World;
let who: Who;
beforeEach(async () => {
  servers = [await openVideoServer(), await openVideoServer()];
});
afterEach(async () => {
  await world.verify();
  await world.close();
  for (const server of servers) await server.close();
});

async function open(...more: object[]): Promise<void> {
  const outside = { settings: { videoBytesMax: BYTES_MAX } };
  world = await openVideoWorld(servers.slice(0, Math.max(more.length, 1)), { more, outside });
  who = await world.customer(CENTS);
}
const submit = (): Promise<string> => submitVideo(world, who);
const first = (): VideoServer => servers[0];
const stand = (standing: object): void => void Object.assign(first().jobs.at(-1) ?? {}, standing);
/** Scripts the answer to one kind of request: to all, or to the first few. */
const script = (server: VideoServer, kind: string, scripted: Scripted, times = Infinity): void => {
  let left = times;
  server.script = (what) => (what.startsWith(kind) && (left -= 1) >= 0 ? scripted : undefined);
};
const said = (kind: string): number => first().asked.filter((what) => what.startsWith(kind)).length;

describe('a dialect', () => {
  test('is a form of texts for vLLM-Omni, whose copy is deleted once ours is here', async () => {
    await open({});
    first().usual = { status: 'completed', progress: 100 };
    const id = await submitVideo(world, who, { prompt: '--x\r\nname="y"', seed: 7, generate_sound: false });
    await driveFor(world, 1);
    expect(await jobOf(world, id)).toMatchObject({ status: 'completed', upstream_open: false });
    expect(first().asked).toEqual([
      'POST /videos',
      'GET /videos/video_gen_1',
      'GET /videos/video_gen_1/content',
      'DELETE /videos/video_gen_1',
    ]);
    expect(first().headers[0]?.['content-type']).toMatch(/^multipart\/form-data; boundary=[\w-]{32}$/);
  });

  test('is JSON with numbers for SGLang, which has no DELETE', async () => {
    await servers[0].close();
    servers[0] = await openVideoServer('sglang');
    await open({ engine: 'sglang' });
    await submitVideo(world, who, { seed: 7, generate_sound: false });
    await world.drive();
    expect(first().jobs[0]?.fields).toEqual({
      model: 'upstream/secret-name',
      prompt: 'a cat',
      seconds: 4,
      size: '832x480',
      seed: 7,
      generate_sound: false,
    });
  });
});

describe('another server is asked', () => {
  test.each<[string, Scripted | 'down']>([
    ['answers 429', { status: 429 }],
    ['answers 502', { status: 502 }],
    ['answers 503', { status: 503 }],
    ['cannot be connected to', 'down'],
  ])('at once if the first %s', async (_what, scripted) => {
    await open(scripted === 'down' ? { base_url: 'http://127.0.0.1:1/v1' } : {}, {});
    if (scripted !== 'down') script(first(), 'POST', scripted);
    const id = await submit();
    await world.drive();
    expect(servers[1].jobs).toHaveLength(1);
    expect(await jobOf(world, id)).toMatchObject({ upstream: servers[1].baseUrl, submissions_lost: 0 });
    expect(world.rooms.videos.counts.failures()).toHaveLength(1);
  });

  test('if the first is full, and the first again when it is free', async () => {
    await open({ max_open_requests: 3 }, { max_open_requests: 2 });
    for (let i = 0; i < 6; i += 1) await submit();
    await driveFor(world, 2);
    expect(servers.map(({ jobs }) => jobs.length)).toEqual([3, 2]);
    first().jobs.forEach((job) => (job.status = 'completed'));
    await driveFor(world, 5);
    expect(servers.map(({ asked }) => asked.filter((what) => what === 'POST /videos').length)).toEqual([4, 2]);
  });

  test('by weight: a server with twice the weight gets twice the jobs', async () => {
    await open({ weight: 2 }, { weight: 1 });
    for (let i = 0; i < 6; i += 1) await submit();
    await world.drive();
    expect(servers.map(({ jobs }) => jobs.length)).toEqual([4, 2]);
  });

  test('with no more jobs than it takes, however many come at once', async () => {
    await open({ max_open_requests: 1 });
    const ids = await Promise.all(Array.from({ length: 8 }, () => submit()));
    const { driver } = world.rooms.videos;
    await Promise.all(ids.map((id) => driver.drive(id, new AbortController().signal)));
    expect(first().jobs).toHaveLength(1);
  });
});

describe('a job that no server has begun', () => {
  test('stays in the queue while all servers are full, and is accepted later', async () => {
    await open({});
    script(first(), 'POST', { status: 503 }, 3);
    const id = await submit();
    await driveFor(world, 2);
    expect(await jobOf(world, id)).toMatchObject({ status: 'queued', upstream_job_id: null });
    await driveFor(world, 5);
    expect(await jobOf(world, id)).toMatchObject({ upstream_job_id: 'video_gen_1' });
  });

  // Specification 3.3: A never-started job expires about 2 hours after submission, unbilled.
  test('expires unbilled two hours after it was submitted, and is removed from its server', async () => {
    await open({});
    const id = await submit();
    await world.drive();
    await world.clock.advance(120 * MINUTE - 1);
    await world.drive();
    expect(await jobOf(world, id)).toMatchObject({ status: 'queued' });
    await driveFor(world, 15);
    expect(await jobOf(world, id)).toMatchObject({ status: 'expired', expires_ms: null, request: null });
    expect((await jobOf(world, id))?.error_message).toMatch(
      /^No server began with this video within two hours\. Nothing/,
    );
    expect(await paid(world, who)).toBe(false);
    expect(first().jobs).toEqual([]);
  });

  test.each<[string, Scripted]>([
    ['answers 500', { status: 500, body: 'trace' }],
    ['takes it, and breaks off before it says so', { takes: true, status: 200, body: '{"id"', ending: 'cut' }],
    ['answers with no id', { body: {} }],
    ['answers with an id that leads elsewhere', { body: { id: '../health' } }],
  ])('is sent again if a server %s: three times, then it fails, unbilled', async (_what, scripted) => {
    await open({});
    script(first(), 'POST', scripted, 2);
    const lucky = await submit();
    await driveFor(world, 5);
    expect(await jobOf(world, lucky)).toMatchObject({ submissions_lost: 2, upstream_job_id: expect.any(String) });
    script(first(), 'POST', scripted);
    const id = await submit();
    const before = said('POST');
    await driveFor(world, 30);
    expect(said('POST') - before).toBe(3);
    expect(await jobOf(world, id)).toMatchObject({
      status: 'failed',
      error_code: 'upstream_error',
      charged_ucents: 0n,
    });
    await world.rooms.videos.cancel(who.orgId, lucky, async () => undefined);
    expect(await paid(world, who)).toBe(false);
  });

  test('fails at once if a server refuses the request, with our own text', async () => {
    await open({}, {});
    script(first(), 'POST', { status: 400, body: { detail: 'secret-name: prompt is unsafe' } });
    const id = await submit();
    await world.drive();
    const { error_message: message, ...job } = await jobOf(world, id);
    expect(job).toMatchObject({ status: 'failed', error_code: 'invalid_request' });
    expect(message).toBe(
      'acme/director does not take this request. Check its prompt and its parameters. Nothing was charged.',
    );
    expect(servers[1].asked).toEqual([]);
    expect(await paid(world, who)).toBe(false);
  });
});

describe('a job in progress', () => {
  test('goes on if its server is silent for a while, and its progress never goes back', async () => {
    await open({});
    first().usual = { status: 'in_progress', progress: 60 };
    const id = await submit();
    await world.drive();
    script(first(), 'GET', { status: 500 }, 4);
    await driveFor(world, 20);
    expect(await jobOf(world, id)).toMatchObject({ status: 'in_progress', failures: 0, progress: 60 });
    stand({ progress: 20 });
    await driveFor(world, 5);
    expect(await jobOf(world, id)).toMatchObject({ progress: 60 });
    stand({ progress: 400 });
    await driveFor(world, 5);
    expect(await jobOf(world, id)).toMatchObject({ progress: 99 });
  });

  test('fails unbilled if it is not finished in time, and is removed from its server', async () => {
    await open({ video_ms: 10 * MINUTE });
    first().usual = { status: 'in_progress', progress: 1 };
    const id = await submit();
    await world.drive();
    await world.clock.advance(10 * MINUTE - 1);
    await world.drive();
    expect(await jobOf(world, id)).toMatchObject({ status: 'in_progress' });
    await driveFor(world, 16);
    expect(await jobOf(world, id)).toMatchObject({
      status: 'failed',
      error_code: 'upstream_timeout',
      error_message: 'The model did not finish the video in time. Send the request again. Nothing was charged.',
    });
    expect(first().jobs).toEqual([]);
    expect(await paid(world, who)).toBe(false);
  });

  test('fails unbilled if its server has lost it', async () => {
    await open({});
    const id = await submit();
    await world.drive();
    first().jobs = [];
    await driveFor(world, 2);
    expect(await jobOf(world, id)).toMatchObject({ status: 'failed', error_code: 'upstream_error' });
    expect(await paid(world, who)).toBe(false);
  });

  test('has a time limit for each request to a server that does not answer', async () => {
    await open({});
    const id = await submit();
    await world.drive();
    script(first(), 'GET', { ending: 'stall' }, 1);
    await world.clock.advance(1_000);
    const driving = world.drive();
    await first().came(3);
    await world.clock.advance(30_000);
    await driving;
    expect(await jobOf(world, id)).toMatchObject({ status: 'queued', failures: 1 });
  });

  test('that is cancelled during its submission is removed from the server as soon as that has accepted it', async () => {
    await open({});
    const gate = Promise.withResolvers<void>();
    script(first(), 'POST', { takes: true, after: gate.promise });
    const id = await submit();
    const driving = world.drive();
    await first().came(1);
    await world.rooms.videos.cancel(who.orgId, id, async () => undefined);
    gate.resolve();
    await driving;
    await driveFor(world, 1);
    expect(first().asked).toEqual(['POST /videos', 'DELETE /videos/video_gen_1']);
    expect(await jobOf(world, id)).toMatchObject({ status: 'cancelled', upstream_open: false });
    expect(await paid(world, who)).toBe(false);
  });

  test.each([
    ['queued', 'in_progress'],
    ['queued', 'completed'],
    ['queued', 'failed'],
    ['in_progress', 'in_progress'],
    ['in_progress', 'completed'],
  ] as const)(
    'that is %s and cancelled while its server is asked stays as it was cancelled if that says %s',
    async (before, status) => {
      await open({});
      first().usual = { status: before, progress: 10 };
      const id = await submit();
      await world.drive();
      const gate = Promise.withResolvers<void>();
      script(first(), 'GET', { takes: true, after: gate.promise }, 1);
      stand({ status, progress: 80 });
      await world.clock.advance(1_000);
      const [already, driving] = [first().asked.length, world.drive()];
      await first().came(already + 1);
      const { progress } = await world.rooms.videos.cancel(who.orgId, id, async () => undefined);
      gate.resolve();
      await driving;
      await driveFor(world, 2);
      const job = await jobOf(world, id);
      expect(job).toMatchObject({ status: 'cancelled', progress, error_code: null, committed_ms: null });
      expect(job.upstream_open).toBe(false);
      expect(await paid(world, who)).toBe(false);
    },
  );

  test('that has ended is given up after five tries to remove it from its server', async () => {
    await open({});
    const id = await submit();
    await world.drive();
    script(first(), 'DELETE', { status: 409 });
    await world.rooms.videos.cancel(who.orgId, id, async () => undefined);
    await driveFor(world, 60);
    expect(said('DELETE')).toBe(5);
    expect(await jobOf(world, id)).toMatchObject({ status: 'cancelled', upstream_open: false });
  });
});

describe('the file of a finished video', () => {
  const finish = async (file: Buffer): Promise<string> => {
    const id = await submit();
    await world.drive();
    stand({ status: 'completed', file });
    await driveFor(world, 2);
    return id;
  };

  test('may have as many bytes as the limit; one more fails the job, unbilled', async () => {
    await open({});
    const large = await finish(mp4(BYTES_MAX + 1));
    expect(await jobOf(world, large)).toMatchObject({ status: 'failed', error_code: 'upstream_response_too_large' });
    expect(await paid(world, who)).toBe(false);
    expect(await jobOf(world, await finish(mp4(BYTES_MAX)))).toMatchObject({ status: 'completed' });
    expect(await paid(world, who)).toBe(true);
  });

  test.each([
    ['a page of an error', Buffer.from('<html>out of memory</html>')],
    ['nothing', Buffer.alloc(0)],
    ['less than a head', mp4().subarray(0, 7)],
  ])('that is %s fails the job, unbilled', async (_what, file) => {
    await open({});
    expect(await jobOf(world, await finish(file))).toMatchObject({ status: 'failed', error_code: 'upstream_error' });
    expect(await paid(world, who)).toBe(false);
  });

  test('that breaks off on its way is fetched again, and charged once', async () => {
    await open({});
    const cut: Scripted = { body: mp4().subarray(0, 40), headers: { 'content-length': '64' }, ending: 'cut' };
    const id = await submit();
    await world.drive();
    stand({ status: 'completed' });
    let left = 2;
    first().script = (what) => (what.endsWith('/content') && (left -= 1) >= 0 ? cut : undefined);
    await driveFor(world, 10);
    expect(await jobOf(world, id)).toMatchObject({ status: 'completed', failures: 0 });
    expect(await paid(world, who)).toBe(true);
  });

  test('that does not fit on the disk fails the job with a clear error, unbilled', async () => {
    await open({});
    world.rooms.blobs.write = async () => fail('storage_full', 'There is no room.');
    const { error_message: message, ...job } = await jobOf(world, await finish(mp4()));
    expect(job).toMatchObject({ status: 'failed', error_code: 'storage_full' });
    expect(message).toBe('There was no room to keep the video. Try again later. Nothing was charged.');
    expect(await paid(world, who)).toBe(false);
  });
});

test('endings of jobs are counted once, and a file that expires is no second ending', async () => {
  await open({});
  first().usual = { status: 'completed', progress: 100 };
  await submit();
  await driveFor(world, 1);
  await world.clock.advance(24 * 60 * MINUTE);
  await world.drive();
  expect(world.rooms.videos.counts.endings()).toEqual([{ model: 'acme/director', status: 'completed', count: 1 }]);
});

describe('the engine', () => {
  test('gets 24 jobs at most at once, so that slow files leave room for other work', async () => {
    await open({});
    const other = await world.customer(CENTS);
    for (let i = 0; i < 20; i += 1) await submitVideo(world, who, { seconds: 2 });
    for (let i = 0; i < 20; i += 1) await submitVideo(world, other, { seconds: 2 });
    const gate = Promise.withResolvers<void>();
    script(first(), 'POST', { takes: true, after: gate.promise });
    const { driver } = world.rooms.videos;
    const due = await driver.due(world.clock.now(), 64);
    expect(due).toHaveLength(24);
    const driving = due.slice(0, 20).map((id) => driver.drive(id, new AbortController().signal));
    const more = await driver.due(world.clock.now(), 64);
    expect(more).toHaveLength(4);
    expect(more.filter((id) => due.slice(0, 20).includes(id))).toEqual([]);
    gate.resolve();
    await Promise.all(driving);
  });

  test('goes on with other jobs if one cannot be driven, and retries that one later', async () => {
    await open({});
    const [broken, whole] = [await submit(), await submit()];
    await world.db.tx('test.break', (tx) => tx.run(sql`update video_jobs set request = '{}' where id = ${broken}`));
    const { driver } = world.rooms.videos;
    await expect(driver.drive(broken, new AbortController().signal)).rejects.toThrow(/prompt/);
    expect(await driver.due(world.clock.now() + 29_999, 9)).toEqual([whole]);
    expect(await driver.due(world.clock.now() + 30_000, 9)).toEqual([whole, broken]);
    await world.db.tx('test.mend', (tx) =>
      tx.run(sql`update video_jobs set request = '{"prompt":"x","parameters":{}}' where id = ${broken}`),
    );
  });
});
