// The log about a PostgreSQL server that cannot be reached, and which errors have no other reason.
import { beforeEach, expect, test } from 'vitest';
import { DbError, isDatabaseAway } from '../../../../control-plane/base/db/db.ts';
import { openReach, type Reach } from '../../../../control-plane/base/db/reach.ts';
import { createLog } from '../../../../shared/log.ts';
import { type VirtualClock, virtualClock } from '../../../kit/virtual-clock.ts';

const refused = Object.assign(new Error('connect ECONNREFUSED 127.0.0.1:1'), { code: 'ECONNREFUSED' });
const away = new DbError('unavailable', 'the database cannot be used now', refused);

let clock: VirtualClock;
let lines: string[];
let reach: Reach;
beforeEach(() => {
  clock = virtualClock();
  lines = [];
  const log = createLog('test', 'info', {
    write: (line) => void lines.push((JSON.parse(line) as { msg: string }).msg),
  });
  reach = openReach({ clock, log });
});

test('a server that is away is one line, however much fails, and one that is back is another', async () => {
  reach.worked();
  reach.failed(new Error('a statement was wrong'));
  expect(lines).toEqual([]);
  for (let i = 0; i < 10; i += 1) reach.failed(refused);
  expect(lines).toEqual([expect.stringContaining('the database cannot be reached')]);
  await clock.advance(5_000);
  reach.worked();
  reach.worked();
  expect(lines.slice(1)).toEqual(['the database can be reached again']);
  reach.failed(refused);
  expect(lines).toHaveLength(3);
});

test('a server that answers some and refuses others is not back', async () => {
  for (let i = 0; i < 10; i += 1) {
    reach.failed(refused);
    await clock.advance(1_000);
    reach.worked();
  }
  expect(lines).toHaveLength(1);
});

test('idle connections that end together are one line', async () => {
  for (let i = 0; i < 10; i += 1) reach.lostIdle(refused);
  await clock.advance(60_000);
  reach.lostIdle(refused);
  expect(lines).toEqual(Array.from({ length: 2 }, () => 'an idle database connection was lost'));
});

test.each([
  ['the error of the database', away, true],
  ['an error that it has caused', new Error('the row was not done', { cause: away }), true],
  ['several of them', new AggregateError([away, away]), true],
  ['one of them among others', new AggregateError([away, new Error('a bug')]), false],
  [
    'a statement that took too long',
    new DbError('unavailable', 'late', Object.assign(new Error(''), { code: '57014' })),
    false,
  ],
  ['a full disk', new DbError('disk_full', 'full', refused), false],
  ['the same error of another server', refused, false],
])('whether the database is away: %s', (_, error, expected) => {
  expect(isDatabaseAway(error)).toBe(expected);
});
