// How mails leave: in which order, how many in a run, over a full disk, with two processes, and when a process ends.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { countRow } from '../../../../control-plane/base/db/columns.ts';
import { raw } from '../../../../control-plane/base/db/db.ts';
import {
  GATHER_MS,
  LETTERS_WINDOW_MS,
  PEOPLE_MAX,
  TELL_MS_MAX,
} from '../../../../control-plane/rental/notices/limits.ts';
import { dueMails, dueTopics } from '../../../../control-plane/rental/notices/store.ts';
import type { World } from '../../../kit/world.ts';
import { type Mailed, openMailed } from './mailed.ts';

let mailed: Mailed;
let world: World;
let orgId: string;
beforeEach(async () => {
  mailed = await openMailed();
  ({ world } = mailed);
  ({ orgId } = await world.customer(0));
});
afterEach(() => world.close());

const append = (subjectId: string, of = orgId): Promise<void> =>
  mailed.append({ type: 'instance.unreachable', subjectId, orgId: of, data: {} });

/** The database, in which transactions of this name fail. */
const without = (failing: string): World['db'] => ({
  ...world.db,
  tx: (name, body) => (name === failing ? Promise.reject(new Error('disk full')) : world.db.tx(name, body)),
});

test('a mail does not leave if its attempt cannot be written', async () => {
  const ada = await mailed.person(orgId, 'owner');
  await append('i-1');
  await world.clock.advance(GATHER_MS);
  const full = mailed.beside(without('notices.try'));
  await expect(full.run(new AbortController().signal)).rejects.toThrow(`could not be mailed to ${ada.userId}`);
  expect(mailed.asked).toEqual([]);
  await mailed.run();
  expect(mailed.sent).toMatchObject([{ to: ada.email }]);
});

test('a mail that leaves although its row cannot be deleted is repeated with longer waits', async () => {
  const ada = await mailed.person(orgId, 'owner');
  await append('i-1');
  await world.clock.advance(GATHER_MS);
  const full = mailed.beside(without('notices.sent'));
  for (const [minutes, times] of [
    [0, 1],
    [1, 2],
    [5, 3],
  ] as const) {
    await world.clock.advance(minutes * 60_000);
    await expect(full.run(new AbortController().signal)).rejects.toThrow(`could not be mailed to ${ada.userId}`);
    await full.run(new AbortController().signal);
    expect(mailed.sent).toHaveLength(times);
  }
});

test('a mail that another process has begun to send is left to it', async () => {
  await mailed.person(orgId, 'owner');
  await append('i-1');
  await world.clock.advance(GATHER_MS);
  const late: World['db'] = {
    ...world.db,
    tx: async (name, body) => {
      if (name === 'notices.try') await mailed.run();
      return world.db.tx(name, body);
    },
  };
  mailed.takeOnly(() => false);
  await mailed.beside(late).run(new AbortController().signal);
  expect(mailed.asked).toHaveLength(1);
});

test('letters that were made before the clock was set back by more than an hour hold no later one up', async () => {
  await mailed.person(orgId, 'owner');
  await append('i-1');
  await mailed.gather();
  world.clock.step(-2 * LETTERS_WINDOW_MS);
  await append('i-2');
  await mailed.gather();
  expect(mailed.sent).toHaveLength(2);
  expect(mailed.sent[1]?.text).toContain('i-2');
});

test('letters are made in the order in which they are due, and so do their mails leave', async () => {
  // The ids of the organisations give the other order.
  const [first = '', second = ''] = [orgId, (await world.customer(0)).orgId].toSorted().toReversed();
  for (const [n, of] of [first, second].entries()) {
    await mailed.person(of, 'owner');
    await append(`i-${n}`, of);
    await world.clock.advance(1);
  }
  await world.clock.advance(GATHER_MS);
  const nowMs = world.clock.now();
  expect(await dueTopics(world.db.read, nowMs, 1)).toEqual([{ org_id: first, topic: 'outage' }]);
  mailed.takeOnly(() => false);
  await mailed.run();
  await world.db.tx('test.order', (tx) =>
    tx.run(
      raw(`update notice_mails set due_ms = due_ms - 1 where letter_id in (
        select id from notice_letters where org_id = '${second}')`),
    ),
  );
  expect(await dueMails(world.db.read, nowMs + 60_000, 1)).toMatchObject([{ org_id: second }]);
});

test('one run sends all that is due, in more than one read', async () => {
  const { orgId: other } = await world.customer(0);
  for (const each of [orgId, other]) {
    for (let n = 0; n < PEOPLE_MAX; n += 1) await mailed.person(each, 'owner');
    await append('i-1', each);
  }
  await mailed.gather();
  expect(mailed.sent).toHaveLength(2 * PEOPLE_MAX);
});

test('letters for more organisations than one run takes are made in the next one, which follows at once', async () => {
  const orgIds = Array.from({ length: 101 }, (_, n) => `org-${n}`);
  for (const each of orgIds) await append('i-1', each);
  await mailed.gather();
  const left = await world.db.read.one(countRow, raw('select count(*) as count from notices'));
  expect(left?.count).toBe(0);
});

test('a run that lasts a minute ends with the two mails in progress, and the next one goes on', async () => {
  for (let n = 0; n < 3; n += 1) await mailed.person(orgId, 'owner');
  await append('i-1');
  await world.clock.advance(GATHER_MS);
  let asked = 0;
  const slow = mailed.beside(world.db, async () => {
    asked += 1;
    await world.clock.advance(60_000);
    return true;
  });
  await slow.run(new AbortController().signal);
  expect(asked).toBe(2);
  await slow.run(new AbortController().signal);
  expect(asked).toBe(3);
});

test('a process that ends begins no letter and no further mail, and leaves no timer', async () => {
  for (let n = 0; n < 3; n += 1) await mailed.person(orgId, 'owner');
  await append('i-1');
  await world.clock.advance(GATHER_MS);
  const stopping = new AbortController();
  let asked = 0;
  const ending = mailed.beside(world.db, async () => {
    asked += 1;
    stopping.abort();
    return true;
  });
  const timers = world.clock.waiting();
  await ending.run(stopping.signal);
  expect(asked).toBeLessThanOrEqual(2);
  expect(world.clock.waiting()).toBe(timers);
  await append('i-2');
  await world.clock.advance(LETTERS_WINDOW_MS);
  await ending.run(stopping.signal);
  const left = await world.db.read.one(countRow, raw('select count(*) as count from notices'));
  expect(left?.count).toBe(1);
});

test('a process that ends while it begins a mail waits five seconds for a silent server', async () => {
  await mailed.person(orgId, 'owner');
  await append('i-1');
  await world.clock.advance(GATHER_MS);
  const stopping = new AbortController();
  const begun = Promise.withResolvers<void>();
  const db: World['db'] = {
    ...world.db,
    tx: (name, body) => {
      if (name === 'notices.try') stopping.abort();
      return world.db.tx(name, body);
    },
  };
  const silent = (): Promise<boolean> => {
    begun.resolve();
    return new Promise(() => undefined);
  };
  const run = mailed.beside(db, silent).run(stopping.signal);
  await begun.promise;
  await world.clock.advance(5_000);
  expect(await run).toBe(false);
});

test('a mail is given up when its event is a day old, although its letter was made later', async () => {
  await mailed.person(orgId, 'owner');
  await append('i-1');
  mailed.takeOnly(() => false);
  await world.clock.advance(TELL_MS_MAX - 60_000);
  await mailed.run();
  mailed.takeOnly(() => true);
  await world.clock.advance(60_000);
  await mailed.run();
  expect([mailed.asked.length, mailed.sent]).toEqual([1, []]);
});
