// A reader of the live stream that has left is freed with the young objects, so a process with many short streams needs no full collection for them.
import { expect, test } from 'vitest';
import { SCHEMA } from '../../../../control-plane/foundation.ts';
import { openLive } from '../../../../control-plane/rental/journal/live.ts';
import { openTestDb } from '../../../kit/databases.ts';
import { grownOldBytes } from '../../../kit/garbage.ts';
import { virtualClock } from '../../../kit/virtual-clock.ts';

const READERS = 50;
/** What a reader may leave on average. The test itself leaves something; a reader whose functions or place in a Set are old leaves 800 bytes. */
const BYTES_MAX = 400;

test('a reader that comes and goes leaves nothing among the old objects', async () => {
  const clock = virtualClock();
  const db = await openTestDb(SCHEMA, clock);
  const events = {
    newestSince: async () => [],
    byIds: async () => [],
    ofOrgSince: async () => [],
    timeOf: async () => undefined,
  };
  const live = openLive({ db, clock, events });
  const caller = { orgId: 'org-1', principalId: 'key-1', scopes: ['instances:read' as const] };
  const sight = { families: ['instance'], ownFamilies: [], userId: undefined };
  const comeAndGo = async (): Promise<void> => {
    const { next, stop } = live.open({ caller, address: '10.0.0.1', sight, after: undefined });
    const reading = next[Symbol.asyncIterator]();
    await reading.next();
    const waiting = reading.next();
    await clock.nextTurn();
    stop();
    expect((await waiting).done).toBe(true);
  };
  const all = async (): Promise<void> => {
    for (let i = 0; i < READERS; i += 1) await comeAndGo();
  };
  for (let i = 0; i < 4; i += 1) await all();
  const times = 20;
  expect(await grownOldBytes(times, all)).toBeLessThan(BYTES_MAX * times * READERS);
  await db.close();
});
