// Video jobs that were made (specification 3.3, 4.8, 7.3): their list, cancelling and deleting them, and the file.
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { VideoPage } from '../../shared/api/videos.ts';
import { fail } from '../../shared/errors.ts';
import { mp4 } from '../kit/video-server.ts';
import type { Answer } from './api.ts';
import { api, owner } from './api-of-test.ts';
import { expectRefused } from './refusals.ts';
import {
  completed,
  driveFor,
  FOUR_SECONDS,
  money,
  openVideosForEachTest,
  read,
  server,
  submitted,
  VIDEOS,
} from './videos-of-test.ts';

const ALL = 1_000_000_000_000n;

openVideosForEachTest();

const get = (path: string, headers: Record<string, string> = {}): Promise<Answer> =>
  api.call('GET', `${VIDEOS}${path}`, { key: owner.key, headers });
const cancel = (id: string): Promise<Answer> => api.call('POST', `${VIDEOS}/${id}/cancel`, { key: owner.key });
const remove = (id: string): Promise<Answer> => api.call('DELETE', `${VIDEOS}/${id}`, { key: owner.key });

/** Those of the blob store. */
const files = (): string[] =>
  readdirSync(api.world.blobsDirectory, { recursive: true, withFileTypes: true })
    .filter((each) => each.isFile())
    .map(({ parentPath, name }) => join(parentPath, name));

describe('the list', () => {
  const list = async (query: string): Promise<VideoPage> => VideoPage.parse((await get(`?${query}`)).json);
  const ids = ({ data }: VideoPage): string[] => data.map(({ id }) => id);
  const make = async (count: number): Promise<string[]> => {
    const made: string[] = [];
    for (let i = 0; i < count; i += 1) {
      made.push((await submitted()).id);
      await api.world.clock.advance(i % 2);
    }
    return made;
  };

  // Specification 4.8: GET /v1/videos is a page of video jobs.
  test('has pages by after and by cursor, from new to old or from old to new', async () => {
    const made = await make(5);
    for (const [order, expected] of [
      ['desc', made.toReversed()],
      ['asc', made],
    ] as const) {
      const first = await list(`limit=2&order=${order}`);
      expect(first).toMatchObject({ object: 'list', has_more: true, first_id: expected[0], last_id: expected[1] });
      const byId = await list(`limit=2&order=${order}&after=${first.last_id}`);
      const byCursor = await list(`limit=2&order=${order}&cursor=${first.next_cursor}`);
      expect(byId).toEqual(byCursor);
      expect(ids(byId)).toEqual(expected.slice(2, 4));
      const last = await list(`limit=2&order=${order}&after=${byId.last_id}`);
      expect(last).toMatchObject({ has_more: false, next_cursor: null, first_id: expected[4], last_id: expected[4] });
    }
    expect(ids(await list(''))).toEqual(made.toReversed());
    // A page that is exactly full is the last one too.
    const full = await list('limit=5');
    expect(full).toMatchObject({ has_more: false, next_cursor: null, first_id: made[4], last_id: made[0] });
  });

  test('is an empty page without jobs', async () => {
    const empty = { object: 'list', data: [], first_id: null, last_id: null, has_more: false, next_cursor: null };
    expect(await list('')).toEqual(empty);
  });

  test('goes on after a job that was deleted meanwhile', async () => {
    const [old = '', gone = ''] = await make(2);
    await cancel(gone);
    expect((await remove(gone)).status).toBe(200);
    expect(ids(await list(`after=${gone}`))).toEqual([old]);
  });

  test('refuses a cursor of others, a cursor of another order, and invalid parameters', async () => {
    await make(3);
    const other = await api.account();
    const { id } = await submitted({}, other);
    const { next_cursor: cursor } = await list('limit=1&order=asc');
    for (const [query, field] of [
      [`after=${id}`, 'after'],
      ['after=vid_none', 'after'],
      [`cursor=${cursor}&order=desc`, 'cursor'],
      [`cursor=${cursor}&order=asc&after=${id}`, 'after'],
      ['order=up', 'order'],
      ['limit=0', 'limit'],
      ['limit=201', 'limit'],
    ])
      expect(expectRefused(VIDEOS, await get(`?${query}`), 'validation_failed').fields).toEqual([field]);
  });
});

describe('cancel', () => {
  // Specification 2.13: status is cancelled.
  // Specification 3.3: queued or in_progress to cancelled if the output is not committed: never billed.
  test('ends a job that is queued or in progress, gives its money back, and ends the work of its server', async () => {
    const queued = await submitted();
    expect((await cancel(queued.id)).json).toMatchObject({ status: 'cancelled', cost_cents: 0 });
    const running = await submitted();
    server.usual = { status: 'in_progress', progress: 50 };
    await driveFor(1);
    expect(await read(running)).toMatchObject({ status: 'in_progress' });
    expect((await cancel(running.id)).json).toMatchObject({ status: 'cancelled', progress: 50 });
    expect(await money()).toEqual({ posted: ALL, held: 0n });
    await api.world.drive();
    expect(server.jobs).toEqual([]);
    expect(server.asked.filter((what) => what.startsWith('DELETE'))).toHaveLength(1);
  });

  // Specification 3.3: A cancel of a terminal job leaves it unchanged.
  // Specification 4.8: POST /v1/videos/{id}/cancel answers the job, a terminal one unchanged.
  test('does not change a job that is over', async () => {
    const job = await completed();
    expect((await cancel(job.id)).json).toEqual(job);
    await api.world.clock.advance(24 * 3_600_000);
    await api.world.drive();
    expect((await cancel(job.id)).json).toMatchObject({ status: 'expired', cost_cents: 4 });
  });

  // Specification 3.3: A cancel once the output is committed leaves the job unchanged.
  test('does not change a job whose finished video is still being fetched', async () => {
    server.usual = { status: 'completed', progress: 100 };
    server.script = (what) => (what.endsWith('/content') ? { status: 500 } : undefined);
    const { id } = await submitted();
    await driveFor(1);
    expect((await cancel(id)).json).toMatchObject({ id, status: 'in_progress' });
    server.script = () => undefined;
    await driveFor(10);
    expect(await read({ id })).toMatchObject({ status: 'completed', cost_cents: 4 });
  });
});

describe('the file', () => {
  const FILE = mp4().toString('latin1');

  // Specification 4.8: GET /v1/videos/{id}/content is the mp4 file.
  test('is video/mp4 with its length, whatever a client accepts, and in parts for a Range', async () => {
    const { id } = await completed();
    const whole = await get(`/${id}/content?variant=video`, { accept: 'application/binary' });
    expect(whole).toMatchObject({ status: 200, body: FILE });
    expect(whole.headers).toMatchObject({
      'content-type': 'video/mp4',
      'content-length': '64',
      'accept-ranges': 'bytes',
    });
    const part = await get(`/${id}/content`, { range: 'bytes=4-11' });
    expect(part).toMatchObject({ status: 206, body: 'ftypisom' });
    expect(part.headers).toMatchObject({ 'content-range': 'bytes 4-11/64', 'content-length': '8' });
    expectRefused(VIDEOS, await get(`/${id}/content`, { range: 'bytes=64-' }), 'range_not_satisfiable');
  });

  test('of a job that is not completed is 409, which a client should not retry at once', async () => {
    const { id } = await submitted();
    const answer = await get(`/${id}/content`);
    expect(expectRefused(VIDEOS, answer, 'conflict').text).toContain('is queued. Ask GET /v1/videos/');
    expect(answer.headers['x-should-retry']).toBe('false');
    await cancel(id);
    expect(expectRefused(VIDEOS, await get(`/${id}/content`), 'conflict').text).toContain(
      'is cancelled. There will be',
    );
  });

  // Specification 2.13: status is expired.
  // Specification 3.3: completed to expired after 24 hours: cost_cents stays, /content is 410.
  // Specification 7.3: expired is 410: the video artifact has expired.
  test('is 410 expired from 24 hours on, and no sooner', async () => {
    const { id } = await completed();
    await api.world.clock.advance(24 * 3_600_000 - 1);
    await api.world.drive();
    expect((await get(`/${id}/content`)).status).toBe(200);
    await api.world.clock.advance(1);
    await api.world.drive();
    expectRefused(VIDEOS, await get(`/${id}/content`), 'expired');
    expect(files()).toEqual([]);
  });

  // Specification 3.3: A job that expired before a server began says so.
  test('of a job that no server has begun is 410 with that reason, which the job shows too', async () => {
    server.script = () => ({ status: 503, body: {} });
    const { id } = await submitted();
    await api.world.clock.advance(2 * 3_600_000);
    await api.world.drive();
    const message = 'No server began with this video within two hours. Nothing was charged. Send the request again.';
    expect(await read({ id })).toMatchObject({ status: 'expired', error: { code: 'upstream_unavailable', message } });
    expect(expectRefused(VIDEOS, await get(`/${id}/content`), 'expired').text).toContain(message);
  });

  test('is 410 if it is no longer on the disk, as after the restore of a backup', async () => {
    const { id } = await completed();
    for (const path of files()) rmSync(path);
    expectRefused(VIDEOS, await get(`/${id}/content`), 'expired');
  });

  test('has no variant but video', async () => {
    const { id } = await completed();
    expect(expectRefused(VIDEOS, await get(`/${id}/content?variant=thumbnail`), 'validation_failed').fields).toEqual([
      'variant',
    ]);
  });
});

test('a cancel and a DELETE take no body: an unknown member is 422, and {} is nothing', async () => {
  const { id } = await submitted();
  for (const [method, path] of [
    ['POST', `${VIDEOS}/${id}/cancel`],
    ['DELETE', `${VIDEOS}/${id}`],
  ] as const) {
    const answer = await api.call(method, path, { key: owner.key, body: { x: 1 } });
    expect(expectRefused(VIDEOS, answer, 'validation_failed').fields).toEqual(['x']);
    expect((await api.call(method, path, { key: owner.key, body: {} })).status).toBe(200);
  }
});

describe('delete', () => {
  test('removes a job also while the store of its file is away', async () => {
    const { id } = await completed();
    api.world.rooms.blobs.remove = async () => fail('unavailable', 'The store is away.');
    expect((await remove(id)).status).toBe(200);
  });

  test('removes a job that is over, with its file, and keeps its charge', async () => {
    const { id } = await completed();
    const { videos } = api.world.rooms;
    expect((await videos.describe(api.world.db.read, owner.orgId, [id])).size).toBe(1);
    expect((await remove(id)).json).toEqual({ id, object: 'video.deleted', deleted: true });
    expect((await videos.describe(api.world.db.read, owner.orgId, [id])).size).toBe(0);
    expectRefused(VIDEOS, await get(`/${id}`), 'not_found');
    expectRefused(VIDEOS, await get(`/${id}/content`), 'not_found');
    expectRefused(VIDEOS, await remove(id), 'not_found');
    expect((await get('')).json.data).toEqual([]);
    expect(files()).toEqual([]);
    expect(await money()).toEqual({ posted: ALL - FOUR_SECONDS, held: 0n });
  });

  test('is an event of its own, whether there was a file or not', async () => {
    const newest = async (): Promise<string | undefined> => {
      const { json } = await api.call('GET', '/v1/events?limit=1', { key: owner.key });
      return (json.data as { type: string }[])[0]?.type;
    };
    const { id } = await completed();
    await remove(id);
    expect(await newest()).toBe('video.deleted');
    await api.world.clock.advance(1_000);
    const { id: without } = await submitted();
    await cancel(without);
    await api.world.clock.advance(1_000);
    expect(await newest()).toBe('video.cancelled');
    await remove(without);
    expect(await newest()).toBe('video.deleted');
  });

  test('of a job that is not over is 409, which says to cancel it first', async () => {
    const { id } = await submitted();
    const answer = await remove(id);
    expect(expectRefused(VIDEOS, answer, 'conflict').text).toContain(`POST /v1/videos/${id}/cancel`);
    expect(await read({ id })).toMatchObject({ status: 'queued' });
  });
});
