// How many mails an organisation may cause in a day, and the rows that this leaves.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { countRow } from '../../../../control-plane/base/db/columns.ts';
import { type Db, sql } from '../../../../control-plane/base/db/db.ts';
import {
  countMail,
  forgetMailCounts,
  MAILS_COUNT_MS,
  takeMailBack,
} from '../../../../control-plane/base/users/mail-counts.ts';
import { SCHEMA } from '../../../../control-plane/foundation.ts';
import { INVITATION_MAILS_PER_ADDRESS_MAX, INVITATION_MAILS_PER_ORG_MAX } from '../../../../shared/limits.ts';
import { openTestDb } from '../../../kit/databases.ts';

let db: Db;
beforeEach(async () => {
  db = await openTestDb(SCHEMA);
});
afterEach(() => db.close());

const count = (orgId: string, email: string, nowMs = 1): Promise<boolean> =>
  db.tx('test.mail', (tx) => countMail(tx, { orgId, email }, nowMs));
const rows = async (): Promise<number> =>
  (await db.read.one(countRow, sql`select count(*) as count from mail_counts`))?.count ?? 0;

test('an organisation causes a number of mails in a day, and above that leaves no rows', async () => {
  for (let n = 0; n < INVITATION_MAILS_PER_ORG_MAX; n += 1) expect(await count('o', `a${n}@example.com`)).toBe(true);
  expect(await rows()).toBe(INVITATION_MAILS_PER_ORG_MAX + 1);
  for (let n = 0; n < 5; n += 1) expect(await count('o', `b${n}@example.com`)).toBe(false);
  expect(await rows()).toBe(INVITATION_MAILS_PER_ORG_MAX + 1);
  expect(await count('p', 'b0@example.com')).toBe(true);
  // The day begins with the first mail, and refusals do not prolong it.
  expect(await count('o', 'c@example.com', MAILS_COUNT_MS)).toBe(false);
  expect(await count('o', 'c@example.com', MAILS_COUNT_MS + 1)).toBe(true);
  for (let n = 1; n < INVITATION_MAILS_PER_ORG_MAX; n += 1)
    expect(await count('o', `d${n}@example.com`, MAILS_COUNT_MS + 2)).toBe(true);
  expect(await count('o', 'e@example.com', MAILS_COUNT_MS + 2)).toBe(false);
});

test('an address gets a number of mails in a day, of many that organisations cause at the same moment', async () => {
  const all = await Promise.all(Array.from({ length: 12 }, (_, n) => count(`o${n}`, 'a@example.com')));
  expect(all.filter(Boolean)).toHaveLength(INVITATION_MAILS_PER_ADDRESS_MAX);
});

test('a mail that was not sent counts for the organisation only, and one that its address may not get for nobody', async () => {
  const takeBack = (email: string, countedMs: number): Promise<void> =>
    db.tx('test.back', (tx) => takeMailBack(tx, email, countedMs));
  for (let n = 0; n < INVITATION_MAILS_PER_ORG_MAX; n += 1) {
    expect(await count('o', 'a@example.com')).toBe(true);
    await takeBack('a@example.com', 1);
  }
  expect(await count('o', 'b@example.com')).toBe(false);
  for (let n = 0; n < INVITATION_MAILS_PER_ADDRESS_MAX; n += 1) expect(await count('p', 'a@example.com')).toBe(true);
  for (let n = 0; n < INVITATION_MAILS_PER_ORG_MAX; n += 1) expect(await count('q', 'a@example.com')).toBe(false);
  expect(await count('q', 'b@example.com')).toBe(true);
  // A mail of the day before.
  expect(await count('p', 'c@example.com', MAILS_COUNT_MS + 1)).toBe(true);
  for (let n = 0; n < 5; n += 1) await takeBack('c@example.com', 1);
  for (let n = 1; n < INVITATION_MAILS_PER_ADDRESS_MAX; n += 1)
    expect(await count('p', 'c@example.com', MAILS_COUNT_MS + 1)).toBe(true);
  expect(await count('p', 'c@example.com', MAILS_COUNT_MS + 1)).toBe(false);
});

test('a count is forgotten when its day is over', async () => {
  await count('o', 'a@example.com', 1);
  await count('o', 'b@example.com', 2);
  const forget = (untilMs: number): Promise<number> => forgetMailCounts(db, { untilMs, limit: 9 });
  expect([await forget(0), await forget(1), await forget(2), await rows()]).toEqual([0, 2, 1, 0]);
});
