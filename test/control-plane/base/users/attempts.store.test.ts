// The counters of tries to sign in: what one network can write, and whom its tries hold up.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { countRow } from '../../../../control-plane/base/db/columns.ts';
import { type Db, sql } from '../../../../control-plane/base/db/db.ts';
import { type Attempt, type Attempts, openAttempts } from '../../../../control-plane/base/users/attempts.ts';
import { ServiceError } from '../../../../shared/errors.ts';
import { SCHEMA } from '../../../../control-plane/foundation.ts';
import { openTestDb } from '../../../kit/databases.ts';
import { type VirtualClock, virtualClock } from '../../../kit/virtual-clock.ts';

/** Failures of one network before it must wait. */
const NETWORK_MAX = 100;
/** Failures of one account, from networks that its owner has not used, before they must wait. */
const ACCOUNT_MAX = 50;
const MINUTE_MS = 60_000;

let clock: VirtualClock;
let db: Db;
let attempts: Attempts;
beforeEach(async () => {
  clock = virtualClock();
  db = await openTestDb(SCHEMA, clock);
  attempts = openAttempts({ db, clock });
});
afterEach(() => db.close());

const take = (account: string, clientIp = '198.51.100.7'): Promise<void> =>
  attempts.take({ account, clientIp, isKnown: false });
const refused = { code: 'rate_limit_exceeded' };
const rows = async (): Promise<number> =>
  (await db.read.one(countRow, sql`select count(*) as count from sign_in_failures`))?.count ?? 0;

test('a network that must wait leaves no row, whatever addresses it names', async () => {
  for (let n = 0; n < NETWORK_MAX; n += 1) await take(`a${n}@example.org`);
  // One of the network, and two of each address: its own, and the one with the network.
  expect(await rows()).toBe(1 + 2 * NETWORK_MAX);
  for (let n = 0; n < 20; n += 1) await expect(take(`b${n}@example.org`)).rejects.toMatchObject(refused);
  expect(await rows()).toBe(1 + 2 * NETWORK_MAX);
  await take('b0@example.org', '203.0.113.1');
  await clock.advance(15 * MINUTE_MS);
  await take('b0@example.org');
  await expect(take('b1@example.org')).rejects.toMatchObject(refused);
});

test('a person who must wait and goes on trying does not use up the tries of the network', async () => {
  for (let n = 0; n < 5; n += 1) await take('ada@example.org');
  for (let n = 0; n < 2 * NETWORK_MAX; n += 1) await expect(take('ada@example.org')).rejects.toMatchObject(refused);
  for (let n = 5; n < NETWORK_MAX; n += 1) await take(`b${n}@example.org`);
  await expect(take('late@example.org')).rejects.toMatchObject(refused);
});

test('a person whose account strangers lock, and who goes on trying, waits no longer than they make it wait', async () => {
  for (let n = 0; n < ACCOUNT_MAX; n += 1) await take('ada@example.org', `203.0.113.${n}`);
  for (let n = 0; n < 2 * NETWORK_MAX; n += 1) await expect(take('ada@example.org')).rejects.toMatchObject(refused);
  await clock.advance(15 * MINUTE_MS);
  await take('ada@example.org');
  for (let n = 1; n < NETWORK_MAX; n += 1) await take(`b${n}@example.org`);
  await expect(take('late@example.org')).rejects.toMatchObject(refused);
});

test('answers of an OpenID provider that are not valid fade after an hour, however many valid ones come meanwhile', async () => {
  const invalid = (): Promise<never> => Promise.reject(new ServiceError('sign_in_failed', { detail: 'not valid' }));
  const answer = (ask: () => Promise<string>): Promise<string> => attempts.asking('198.51.100.7', ask);
  for (let round = 0; round < 2; round += 1) {
    for (let n = 0; n < 29; n += 1) await expect(answer(invalid)).rejects.toMatchObject({ code: 'sign_in_failed' });
    for (let n = 0; n < 6; n += 1) {
      await clock.advance(10 * MINUTE_MS);
      expect(await answer(() => Promise.resolve('tokens'))).toBe('tokens');
    }
  }
});

describe('the failures of a network whose people sign in rightly all the time', () => {
  /** A right sign-in of somebody each ten minutes, each overlapped by that of somebody else. */
  const office = async (minutes: number): Promise<void> => {
    for (let n = 0; n < minutes / 10; n += 1) {
      await clock.advance(9 * MINUTE_MS);
      const two = [attemptOf(`ann${n}@example.org`), attemptOf(`bob${n}@example.org`)];
      for (const attempt of two) {
        await attempts.take(attempt);
        await clock.advance(MINUTE_MS / 2);
      }
      for (const attempt of two) await db.tx('test.forgive', (tx) => attempts.forgive(tx, attempt));
    }
  };
  const failure = async (account: string): Promise<void> => {
    await take(account);
    await attempts.noteFailure(attemptOf(account));
  };
  const attemptOf = (account: string): Attempt => ({ account, clientIp: '198.51.100.7', isKnown: false });

  test('fade after an hour without another one', async () => {
    for (let n = 0; n < NETWORK_MAX - 10; n += 1) await failure(`a${n}@example.org`);
    await office(60);
    for (let n = 0; n < NETWORK_MAX - 10; n += 1) await failure(`b${n}@example.org`);
    await office(10);
  });

  test('count for an hour after the last one', async () => {
    for (let n = 10; n < NETWORK_MAX; n += 1) await failure(`a${n}@example.org`);
    await office(40);
    await failure('late@example.org');
    await office(40);
    for (let n = 1; n < 10; n += 1) await failure(`b${n}@example.org`);
    await expect(take('ann@example.org')).rejects.toMatchObject(refused);
  });

  test('fade too if each sign-in first lacked its code', async () => {
    for (let n = 0; n < NETWORK_MAX - 1; n += 1) await failure(`a${n}@example.org`);
    for (let n = 0; n < 6; n += 1) {
      await clock.advance(10 * MINUTE_MS);
      await take('ann@example.org');
      await attempts.takeBack(attemptOf('ann@example.org'));
    }
    await failure('b@example.org');
    await take('ann@example.org');
  });
});
