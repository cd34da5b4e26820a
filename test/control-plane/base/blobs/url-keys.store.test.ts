// The keys of presigned URLs: a rotation, its edges in time, a revocation, and that all control planes see it.
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Permission } from '../../../../control-plane/base/blobs/blobs.ts';
import {
  openPresignedUrls,
  PresignedQuery,
  type PresignedUrls,
} from '../../../../control-plane/base/blobs/presigned-urls.ts';
import { openUrlKeys, type UrlKey, type UrlKeys } from '../../../../control-plane/base/blobs/url-keys.ts';
import type { Db } from '../../../../control-plane/base/db/db.ts';
import { createIds } from '../../../../shared/ids.ts';
import { systemRng } from '../../../../shared/rng.ts';
import { clock, openKeys, openStoreForEachTest } from './store.ts';

const WEEK_MS = 7 * 86_400_000;
const SECRET = new Uint8Array(32).fill(9);

openStoreForEachTest();
let db: Db;
let keys: UrlKeys;
let urls: PresignedUrls;
beforeEach(async () => {
  ({ db, keys } = await openKeys());
  urls = urlsWith(keys);
});
afterEach(() => db.close());

const urlsWith = (own: Pick<UrlKeys, 'current' | 'find'>): PresignedUrls =>
  openPresignedUrls({ secret: SECRET, baseUrl: 'https://api.example.com/v1', keys: own });
const nowS = (): number => clock.now() / 1000;
const permission = (expiresS = nowS() + 60): Permission => ({ method: 'GET', key: 'files-blob_a', expiresS });
const isTaken = async (url: string): Promise<boolean> => {
  const query = PresignedQuery.parse(Object.fromEntries(new URL(url).searchParams));
  return (await urls.read('GET', 'files-blob_a', query)) !== undefined;
};
const kidOf = (url: string): string | null => new URL(url).searchParams.get('kid');
/** URLs of somebody who has a copy of this key. */
const copied = (key: UrlKey): PresignedUrls => urlsWith({ current: async () => key, find: keys.find });

test('after a rotation the new key signs, and URLs of the old one stay valid', async () => {
  const before = (await urls.signer())(permission());
  const { id } = await keys.rotate({ revoke: false });
  const after = (await urls.signer())(permission());
  expect([kidOf(before), kidOf(after)]).toEqual(['urlkey_0', id]);
  expect([await isTaken(before), await isTaken(after)]).toEqual([true, true]);
});

test('an old key is valid for URLs that end seven days after the rotation, and for none that ends later', async () => {
  await clock.advance(5_000);
  const old = await keys.current();
  const longest = (await urls.signer())(permission(nowS() + WEEK_MS / 1000));
  await keys.rotate({ revoke: false });
  expect(await isTaken(longest)).toBe(true);
  const lastS = nowS() + WEEK_MS / 1000;
  await clock.advance(1_000);
  expect(await isTaken((await copied(old).signer())(permission(lastS)))).toBe(true);
  expect(await isTaken((await copied(old).signer())(permission(lastS + 1)))).toBe(false);
});

test('a revocation ends all URLs that were signed before it, and a copied key is worth nothing', async () => {
  const old = await keys.current();
  await keys.rotate({ revoke: false });
  const [first, second] = [(await copied(old).signer())(permission()), (await urls.signer())(permission())];
  expect([await isTaken(first), await isTaken(second)]).toEqual([true, true]);
  await keys.rotate({ revoke: true });
  expect([await isTaken(first), await isTaken(second)]).toEqual([false, false]);
  expect(await isTaken((await urls.signer())(permission()))).toBe(true);
  expect(await keys.list()).toHaveLength(1);
});

test('a key that never was here is refused, although its signature is right', async () => {
  const unknown = { id: 'urlkey_none', createdMs: 0, untilMs: null };
  expect(await isTaken((await copied(unknown).signer())(permission()))).toBe(false);
});

test('an old key is forgotten seven days after its rotation, and not a millisecond earlier; the newest never is', async () => {
  await keys.current();
  const { id } = await keys.rotate({ revoke: false });
  await clock.advance(WEEK_MS - 1);
  expect(await keys.forget({ limit: 10 })).toBe(0);
  await clock.advance(1);
  expect(await keys.forget({ limit: 10 })).toBe(1);
  expect((await keys.list()).map((key) => key.id)).toEqual([id]);
  await clock.advance(10 * WEEK_MS);
  expect(await keys.forget({ limit: 10 })).toBe(0);
});

test('every control plane signs with the newest key at once, even if its clock is behind', async () => {
  const behind = { ...clock, now: () => clock.now() - 3_600_000 };
  const other = openUrlKeys({ db, clock: behind, ids: createIds(behind, systemRng()) });
  const both = await Promise.all([keys.current(), other.current()]);
  expect(both.map((key) => key.id)).toEqual(['urlkey_0', 'urlkey_0']);
  const first = await keys.rotate({ revoke: false });
  expect((await other.current()).id).toBe(first.id);
  const second = await other.rotate({ revoke: false });
  expect(await keys.list()).toEqual([
    { id: second.id, createdMs: first.createdMs + 1, untilMs: null },
    { id: first.id, createdMs: first.createdMs, untilMs: first.createdMs + 1 + WEEK_MS },
    { id: 'urlkey_0', createdMs: 0, untilMs: first.createdMs + WEEK_MS },
  ]);
});
