// The log about a PostgreSQL server that cannot be reached, and which errors have no other reason.
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { beforeEach, expect, test } from 'vitest';
import { DbError, isDatabaseAway } from '../../../../control-plane/base/db/db.ts';
import { borrow, openPool } from '../../../../control-plane/base/db/postgres-connections.ts';
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

/** A message of the protocol of PostgreSQL. */
function message(type: string, body: string): Buffer {
  const length = Buffer.alloc(4);
  length.writeInt32BE(4 + body.length);
  return Buffer.concat([Buffer.from(type), length, Buffer.from(body)]);
}

// Without a listener at that moment, vitest reports an uncaught exception.
test('a connection that its server ends in the packet in which it opens it fails its statement, and no more', async () => {
  const signedIn = [message('R', '\0\0\0\0'), message('Z', 'I')];
  const ended = message('E', 'SFATAL\0C57P01\0Mterminating connection due to unexpected postmaster exit\0\0');
  const server = createServer((socket) => socket.once('data', () => socket.end(Buffer.concat([...signedIn, ended]))));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const pool = openPool(`postgres://a@127.0.0.1:${(server.address() as AddressInfo).port}/a`, { max: 1 }, reach);
  await expect(borrow({ pool, reach }, (client) => client.query('select 1'))).rejects.toThrow(/terminat|not queryable/);
  await pool.end();
  server.close();
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
