// The contract of presigned URLs, whichever store makes them: what they allow, for how long, and that no part of one can be changed.
import { request } from 'node:http';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Permission, PresignedRequest } from '../../../../control-plane/base/blobs/blobs.ts';
import { openPresignedUrls } from '../../../../control-plane/base/blobs/presigned-urls.ts';
import type { Db } from '../../../../control-plane/base/db/db.ts';
import { blobRoutes } from '../../../../control-plane/base/blobs/routes.ts';
import { type Bench, openBench } from '../http/fixture.ts';
import {
  AMPLE,
  BACKENDS,
  blobs as unserved,
  clock,
  contentOf,
  everything,
  openKeys,
  openStoreForEachTest,
  pieces,
  reopened,
} from './store.ts';

const SECRET = new Uint8Array(32).fill(9);
const TEXT = '0123456789';
const NAME = 'größe (1) a+b&c.jsonl';

describe.each(BACKENDS)('on %s', (backend) => {
  openStoreForEachTest(backend);
  let bench: Bench;
  let db: Db;
  let blobs: typeof unserved;
  let key: string;
  /** How often the key that signs was read. */
  let reads: number;

  beforeEach(async () => {
    let port = 0;
    const { db: keyDb, keys } = await openKeys();
    db = keyDb;
    reads = 0;
    const current = () => {
      reads += 1;
      return keys.current();
    };
    const presignedUrls = () =>
      openPresignedUrls({ secret: SECRET, baseUrl: `http://127.0.0.1:${port}/v1`, keys: { ...keys, current } });
    bench = await openBench({
      clock,
      routes: () => blobRoutes({ blobs: unserved, presignedUrls: presignedUrls(), clock }),
    });
    ({ port } = await bench.http.listen({ host: '127.0.0.1', port: 0 }));
    blobs = reopened(presignedUrls());
    key = blobs.newKey('files');
  });
  afterEach(async () => {
    const closing = bench.close();
    await clock.advance(10_000);
    await closing;
    await db.close();
  });

  const inSeconds = (seconds: number): number => clock.now() / 1000 + seconds;
  const readable = async (more: Partial<Permission> = {}): Promise<string> =>
    (await blobs.presign({ method: 'GET', key, expiresS: inSeconds(10), ...more })).url;
  const writable = (more: Partial<Permission> = {}): Promise<PresignedRequest> =>
    blobs.presign({ method: 'PUT', key, expiresS: inSeconds(10), bytes: TEXT.length, ...more });
  const put = async ({ url, headers }: PresignedRequest, body: string): Promise<number> => {
    const response = await fetch(url, { method: 'PUT', body, headers });
    await response.text();
    return response.status;
  };
  const get = async (url: string | URL, headers = {}): Promise<[number, string]> => {
    const response = await fetch(url, { headers });
    return [response.status, await response.text()];
  };

  test('a URL to read gives the content, under its name, whole or a range, without an API key', async () => {
    await blobs.write(key, pieces(TEXT), AMPLE);
    const response = await fetch(await readable({ filename: NAME }));
    expect([response.status, await response.text()]).toEqual([200, TEXT]);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      'content-type': 'application/octet-stream',
      'content-length': '10',
      'content-disposition': "attachment; filename*=UTF-8''gr%C3%B6%C3%9Fe%20%281%29%20a%2Bb%26c.jsonl",
      'cache-control': 'private, no-store',
    });
    expect(await get(await readable(), { range: 'bytes=3-5' })).toEqual([206, '345']);
    expect((await get(await readable(), { range: 'bytes=10-' }))[0]).toBe(416);
    expect((await get(await readable({ key: blobs.newKey('files') })))[0]).toBe(404);
  });

  test('many URLs are made at once, each for its own blob, and the key that signs is read once', async () => {
    const keys = [key, blobs.newKey('files'), blobs.newKey('files')];
    for (const each of keys) await blobs.write(each, pieces(`content of ${each}`), AMPLE);
    const all = keys.map((each): Permission => ({ method: 'GET', key: each, expiresS: inSeconds(10), filename: NAME }));
    const made = await blobs.presignAll(all);
    expect(reads).toBeLessThanOrEqual(1);
    const shown = await Promise.all(made.map(({ url }) => get(url)));
    expect(shown).toEqual(keys.map((each) => [200, `content of ${each}`]));
    expect(made).toEqual(await Promise.all(all.map((permission) => blobs.presign(permission))));
    const tooLong = { ...all[0], method: 'GET', key, expiresS: inSeconds(8 * 86_400) } as const;
    await expect(blobs.presignAll([...all, tooLong])).rejects.toThrow('cannot be valid');
  });

  test('a URL is valid until its time and no longer', async () => {
    await blobs.write(key, pieces(TEXT), AMPLE);
    const [url, late] = [await readable(), await writable({ key: blobs.newKey('files') })];
    await clock.advance(9_999);
    expect(await get(url)).toEqual([200, TEXT]);
    await clock.advance(1);
    expect((await get(url))[0]).toBe(403);
    expect(await put(late, TEXT)).toBe(403);
    expect(everything()).toHaveLength(1);
  });

  test('a URL cannot be valid for more than seven days, or for no time', async () => {
    const weekS = 7 * 86_400;
    expect(await readable({ expiresS: inSeconds(weekS) })).toContain('http');
    await expect(readable({ expiresS: inSeconds(weekS + 1) })).rejects.toThrow('cannot be valid');
    await expect(readable({ expiresS: inSeconds(0) })).rejects.toThrow('cannot be valid');
    await expect(writable({ expiresS: inSeconds(weekS + 1) })).rejects.toThrow('cannot be valid');
  });

  test('no part of a URL can be changed', async () => {
    await blobs.write(key, pieces(TEXT), AMPLE);
    const other = blobs.newKey('files');
    await blobs.write(other, pieces('of somebody else'), AMPLE);
    const url = await readable({ filename: NAME });
    for (const name of new URL(url).searchParams.keys()) {
      const changed = new URL(url);
      const value = changed.searchParams.get(name) ?? '';
      changed.searchParams.set(name, /^\d+$/.test(value) ? String(Number(value) + 1) : `${value.slice(0, -2)}xy`);
      expect([name, Math.floor((await get(changed))[0] / 100)]).toEqual([name, 4]);
    }
    expect((await get(url.replace(key, other)))[0]).toBe(403);
    expect(await put({ method: 'PUT', url, headers: {} }, TEXT)).toBe(403);
    expect((await get((await writable({ key: other })).url))[0]).toBe(403);
    expect(await get(url)).toEqual([200, TEXT]);
  });

  test('a URL to write takes exactly its bytes, once', async () => {
    const allowed = await writable();
    for (const body of [`${TEXT}!`, TEXT.slice(1), '']) expect([400, 403, 413]).toContain(await put(allowed, body));
    expect(everything()).toEqual([]);
    expect([200, 201]).toContain(await put(allowed, TEXT));
    expect([409, 412]).toContain(await put(allowed, 'abcdefghij'));
    expect(await contentOf(key)).toBe(TEXT);
  });

  test('a body that breaks off in the middle leaves nothing, and the URL still works', async () => {
    const allowed = await writable();
    const headers = { ...allowed.headers, 'content-length': String(TEXT.length) };
    const sending = request(allowed.url, { method: 'PUT', headers });
    sending.on('error', () => undefined);
    const isClosed = new Promise((resolve) => sending.once('close', resolve));
    sending.write(TEXT.slice(0, 5), () => sending.destroy());
    await isClosed;
    await expect.poll(() => everything()).toEqual([]);
    expect([200, 201]).toContain(await put(allowed, TEXT));
  });
});
