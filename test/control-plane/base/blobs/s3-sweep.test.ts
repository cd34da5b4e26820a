// The sweep of a store that is slow: it ends in time, removes some things side by side, and goes on at the next time.
import { expect, test } from 'vitest';
import { type S3Request, type S3Requests, S3Silence } from '../../../../control-plane/base/blobs/s3-requests.ts';
import { openObjectSweep } from '../../../../control-plane/base/blobs/s3-sweep.ts';
import { createLog } from '../../../../shared/log.ts';
import { virtualClock, whileTimePasses } from '../../../kit/virtual-clock.ts';

const DAY_MS = 24 * 3_600_000;
const PAGE = 40;
const REMOVE_MS = 10_000;
const never = new AbortController().signal;
const claims = { files: async () => [] };

/** A store with these leftovers, which answers each removal late. */
function openSlowStore({ objects, uploads }: { objects: number; uploads: number }) {
  const clock = virtualClock();
  const at = new Date(clock.now() - DAY_MS).toISOString();
  const keysOf = (count: number): Set<string> =>
    new Set(Array.from({ length: count }, (_, i) => `files/files-blob_${1_000 + i}`));
  const left = { objects: keysOf(objects), uploads: keysOf(uploads) };
  const seen = { lists: 0, most: 0 };
  let under = 0;
  const remove = async ({ object = '', query }: S3Request): Promise<void> => {
    seen.most = Math.max(seen.most, (under += 1));
    await clock.sleep(REMOVE_MS);
    under -= 1;
    (query === undefined ? left.objects : left.uploads).delete(object);
  };
  const list = ({ query = {} }: S3Request): Record<string, unknown> => {
    seen.lists += 1;
    const [kind, after = ''] =
      'uploads' in query
        ? ['uploads' as const, query['key-marker']]
        : ['objects' as const, query['continuation-token']];
    const keys = [...left[kind]].filter((key) => key > after);
    const page = keys.slice(0, PAGE);
    const last = keys.length > PAGE ? page.at(-1) : undefined;
    if (kind === 'objects')
      return { Contents: page.map((key) => ({ Key: key, LastModified: at })), NextContinuationToken: last };
    const more = { IsTruncated: String(last !== undefined), NextKeyMarker: last, NextUploadIdMarker: last };
    return { Upload: page.map((key) => ({ Key: key, UploadId: key, Initiated: at })), ...more };
  };
  const store = { fails: false };
  const send: S3Requests['send'] = async (request) => {
    if (store.fails) throw new S3Silence('the store gave no answer');
    if (request.method === 'DELETE') await remove(request);
    return { headers: {}, xml: request.method === 'GET' ? list(request) : {} };
  };
  const other = (): never => {
    throw new Error('a sweep does not ask this');
  };
  const requests: S3Requests = { send, begin: other, bytesOf: other, presign: other };
  const sweep = openObjectSweep({ clock, log: createLog('test', 'silent'), requests });
  return { clock, left, seen, store, sweep: () => whileTimePasses(clock, sweep(claims, never), 1_000) };
}

test('a sweep of a slow store ends within a minute, and the next ones go on from there', async () => {
  const { clock, left, seen, sweep } = openSlowStore({ objects: 100, uploads: 30 });
  const removed: number[] = [];
  for (let ticks = 0; left.objects.size + left.uploads.size > 0 && ticks < 20; ticks += 1) {
    const startMs = clock.monotonicMs();
    removed.push(await sweep());
    expect(clock.monotonicMs() - startMs).toBeLessThan(60_000);
  }
  // Each page was listed once: three of objects, one of uploads.
  expect([removed, seen]).toEqual([[40, 40, 36, 14], { lists: 4, most: 16 }]);
  expect(await sweep()).toBe(0);
});

test('a sweep that failed is followed by one that begins anew', async () => {
  const { left, store, sweep } = openSlowStore({ objects: 60, uploads: 0 });
  await sweep();
  store.fails = true;
  await expect(sweep()).rejects.toThrow('gave no answer');
  store.fails = false;
  await sweep();
  await sweep();
  expect(left.objects.size).toBe(0);
});
