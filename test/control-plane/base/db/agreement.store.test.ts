// Control planes of one database that have other values of what all must have alike: who is found, by what, and until when.
import { afterEach, beforeEach, expect, test } from 'vitest';
import {
  type Difference,
  differencesFrom,
  differencesFromPrimary,
  digestsOf,
  writeSettings,
} from '../../../../control-plane/base/db/agreement.ts';
import { countRow } from '../../../../control-plane/base/db/columns.ts';
import { type Db, sql } from '../../../../control-plane/base/db/db.ts';
import { SCHEMA } from '../../../../control-plane/foundation.ts';
import { openTestDb } from '../../../kit/databases.ts';

let db: Db;
beforeEach(async () => {
  db = await openTestDb(SCHEMA);
  await live('primary', 'a');
  await live('member/b', 'b');
});
afterEach(() => db.close());

const live = (name: string, holder: string): Promise<number> =>
  db.tx('live', (tx) => tx.run(sql`insert into leases (name, holder, epoch, beat) values (${name}, ${holder}, 1, 0)`));
const end = (holder: string): Promise<number> =>
  db.tx('end', (tx) => tx.run(sql`delete from leases where holder = ${holder}`));
const write = (id: string, values: object, nowMs = 1): Promise<void> =>
  writeSettings(db, id, { digests: digestsOf({ ...values }), nowMs });
const rows = async (): Promise<number | undefined> =>
  (await db.read.one(countRow, sql`select count(*) as count from control_plane_settings`))?.count;

test('equal values agree, in whatever order they are written, and other ones do not', () => {
  const one = digestsOf({ fee: 1n, map: new Map([['a', { x: 1, y: 2 }]]), none: undefined });
  expect(digestsOf({ fee: 1n, map: new Map([['a', { y: 2, x: 1 }]]), none: undefined })).toEqual(one);
  expect(digestsOf({ fee: 2n, map: new Map(), none: 0 })).not.toMatchObject({ fee: one['fee'] });
  expect(digestsOf({ map: new Map([['a', { x: 1, y: 3 }]]) })['map']).not.toBe(one['map']);
  expect(JSON.stringify(digestsOf({ secret: 'a word' }))).not.toContain('word');
});

test('those that differ are named with the settings, until they have the same values', async () => {
  await write('a', { fee: 1, models: [] }, 5);
  await write('b', { fee: 2, models: [], other: 1 }, 9);
  const differs = (member: string): Difference => ({ member, settings: ['fee'], sinceMs: 9 });
  expect(await differencesFromPrimary(db.read)).toEqual([differs('b')]);
  expect(await differencesFrom(db.read, 'a', digestsOf({ fee: 1, models: [] }))).toEqual([differs('b')]);
  await db.tx('url', (tx) => tx.run(sql`insert into control_planes (id, url) values ('b', 'http://b.example:2')`));
  expect(await differencesFromPrimary(db.read)).toEqual([differs('http://b.example:2')]);
  await write('b', { fee: 1, models: [] }, 12);
  expect(await differencesFromPrimary(db.read)).toEqual([]);
});

test('one that writes the same again differs since as long as before', async () => {
  await write('a', { fee: 1 }, 5);
  await write('b', { fee: 2 }, 9);
  await write('b', { fee: 2 }, 20);
  expect(await differencesFromPrimary(db.read)).toMatchObject([{ sinceMs: 9 }]);
});

test('one that stands by has no id yet, and is compared with all', async () => {
  await write('a', { fee: 1 });
  await write('b', { fee: 1 });
  const found = await differencesFrom(db.read, undefined, digestsOf({ fee: 2 }));
  expect(found.map(({ member }) => member)).toEqual(['a', 'b']);
});

test('one that has ended counts no more, and is forgotten when another one writes', async () => {
  await write('a', { fee: 1 });
  await write('b', { fee: 2 });
  await end('b');
  expect(await differencesFromPrimary(db.read)).toEqual([]);
  expect(await rows()).toBe(2);
  await write('a', { fee: 1 });
  expect(await rows()).toBe(1);
});
