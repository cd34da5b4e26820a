// How letters are made and sent: how many, to whom, again after a refusal, and over crashes.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Mail } from '../../../../control-plane/base/mail/mail.ts';
import { countRow } from '../../../../control-plane/base/db/columns.ts';
import { raw } from '../../../../control-plane/base/db/db.ts';
import type { EventType } from '../../../../control-plane/base/events/events.ts';
import { setMailNotices, setRole } from '../../../../control-plane/base/users/store.ts';
import { brought } from '../../../../control-plane/brings.ts';
import { forgetOld } from '../../../../control-plane/loops.ts';
import { UNPAID_REASON } from '../../../../control-plane/rental/instances/ending.ts';
import {
  GATHER_MS,
  LETTERS_MAX,
  LETTERS_WINDOW_MS,
  PEOPLE_MAX,
  SPAN_MS,
  TELL_MS_MAX,
} from '../../../../control-plane/rental/notices/limits.ts';
import { waitingMails } from '../../../../control-plane/rental/notices/overview.ts';
import { startLoop } from '../../../../shared/loop.ts';
import { whileTimePasses } from '../../../kit/virtual-clock.ts';
import type { World } from '../../../kit/world.ts';
import { type Mailed, openMailed, type SentMail } from './mailed.ts';

const OUTAGE = 'An outage of your instances (api.example.com)';

let mailed: Mailed;
let world: World;
let orgId: string;
beforeEach(async () => {
  mailed = await openMailed();
  ({ world } = mailed);
  ({ orgId } = await world.customer(0));
});
afterEach(() => world.close());

const append = (type: EventType, subjectId: string, of = orgId): Promise<void> =>
  mailed.append({ type, subjectId, orgId: of, data: { reason: UNPAID_REASON } });
const count = async (table: string): Promise<number> =>
  (await world.db.read.one(countRow, raw(`select count(*) as count from ${table}`)))?.count ?? 0;
const rows = async (): Promise<number[]> => [
  await count('notices'),
  await count('notice_letters'),
  await count('notice_mails'),
];
const toOf = (mails: readonly SentMail[]): string[] => mails.map(({ to }) => to);

describe('letters', () => {
  test(`of one organisation are ${LETTERS_MAX} in an hour at most, and what is above them comes in one letter later`, async () => {
    const machine = await world.machine();
    await mailed.person(machine.orgId, 'owner');
    const data = { reason: UNPAID_REASON, chain: 'base', address: '0x5aAe…BeAed' };
    const happens = (type: EventType, subjectId: string): Promise<void> =>
      mailed.append({ type, subjectId, orgId: machine.orgId, data });
    // Two topics, each at its shortest span.
    for (let n = 0; n < LETTERS_MAX / 2; n += 1) {
      await happens('instance.unreachable', `i-${n}`);
      await happens('instance.stopping', `i-${n}`);
      await world.clock.advance(n === 0 ? GATHER_MS : SPAN_MS);
      await mailed.run();
    }
    expect(mailed.sent).toHaveLength(LETTERS_MAX);
    // A third one, of which there was no letter yet.
    await happens('supplier.destination_cancelled', machine.supplierId);
    const leftMs = LETTERS_WINDOW_MS - (LETTERS_MAX / 2 - 1) * SPAN_MS;
    await world.clock.advance(leftMs - 1);
    await mailed.run();
    await happens('supplier.destination_cancelled', machine.supplierId);
    await mailed.run();
    expect(mailed.sent).toHaveLength(LETTERS_MAX);
    await world.clock.advance(1);
    await mailed.run();
    expect(mailed.sent).toHaveLength(LETTERS_MAX + 1);
    expect(mailed.sent.at(-1)?.text.match(/was cancelled/g)).toHaveLength(2);
  });

  test('of another organisation do not wait for those of one that has had its share', async () => {
    const other = await world.customer(0);
    await mailed.person(orgId, 'owner');
    const bob = await mailed.person(other.orgId, 'owner');
    for (let n = 0; n < 4; n += 1) await append('instance.unreachable', `i-${n}`);
    await mailed.gather();
    await append('instance.unreachable', 'i-4');
    await append('instance.unreachable', 'i-5', other.orgId);
    await mailed.gather();
    expect(mailed.sent).toHaveLength(2);
    expect(mailed.sent[1]).toMatchObject({ to: bob.email, subject: OUTAGE });
  });

  test('of an organisation whose notices cannot be read keep no other one from its mails', async () => {
    await mailed.person(orgId, 'owner');
    const other = await world.customer(0);
    const bob = await mailed.person(other.orgId, 'owner');
    await append('instance.unreachable', 'i-1');
    await append('instance.unreachable', 'i-2', other.orgId);
    await world.db.tx('test.break', (tx) =>
      tx.run(raw(`update notices set data = 'unreadable' where org_id = '${orgId}'`)),
    );
    await world.clock.advance(GATHER_MS);
    await expect(mailed.run()).rejects.toThrow(`the organisation ${orgId}`);
    expect(toOf(mailed.sent)).toEqual([bob.email]);
  });

  test(`go to ${PEOPLE_MAX} people at most, owners first`, async () => {
    const members = [];
    for (let n = 0; n < PEOPLE_MAX; n += 1) members.push(await mailed.person(orgId, 'member'));
    await world.clock.advance(1);
    const owner = await mailed.person(orgId, 'owner');
    await append('instance.unreachable', 'i-1');
    await mailed.gather();
    expect(new Set(toOf(mailed.sent))).toEqual(
      new Set([owner, ...members.slice(0, PEOPLE_MAX - 1)].map(({ email }) => email)),
    );
    expect(mailed.sent).toHaveLength(PEOPLE_MAX);
  });

  test('are made of notices that are less than a day old', async () => {
    await mailed.person(orgId, 'owner');
    await append('instance.unreachable', 'i-old');
    await world.clock.advance(1);
    await append('instance.unreachable', 'i-new');
    await world.clock.advance(TELL_MS_MAX - 1);
    await mailed.run();
    expect(mailed.sent).toHaveLength(1);
    expect(mailed.sent[0]?.text).toContain('i-new');
    expect(mailed.sent[0]?.text).not.toContain('i-old');
    expect(mailed.logged()).toContain(`"org_id":"${orgId}","topic":"outage","notices":1`);
  });

  test('are not made if nobody of the organisation wants them, and leave no rows', async () => {
    const owner = await mailed.person(orgId, 'owner');
    await mailed.person(orgId, 'read-only');
    await world.rooms.users.people.setMailNotices(owner.userId, false);
    await append('instance.unreachable', 'i-1');
    await mailed.gather();
    expect([mailed.asked, await rows()]).toEqual([[], [0, 0, 0]]);
  });

  test('are forgotten after two days, with what is left of them', async () => {
    await mailed.person(orgId, 'owner');
    mailed.takeOnly(() => false);
    await append('instance.unreachable', 'i-1');
    await mailed.gather();
    await append('instance.unreachable', 'i-2');
    expect(await rows()).toEqual([1, 1, 1]);
    const forget = (): Promise<void> =>
      forgetOld(new AbortController().signal, brought(world.brings(), 'forgets'), world.core);
    await world.clock.advance(2 * TELL_MS_MAX - 1);
    await forget();
    expect(await rows()).toEqual([1, 1, 1]);
    await world.clock.advance(1);
    await forget();
    expect(await rows()).toEqual([0, 1, 1]);
    // The mail was to be tried again a minute after the letter was made.
    await world.clock.advance(60_000 - 1);
    await forget();
    expect(await rows()).toEqual([0, 1, 1]);
    await world.clock.advance(1);
    await forget();
    await forget();
    expect(await rows()).toEqual([0, 0, 0]);
  });
});

describe('a mail', () => {
  test('that is refused is tried again with longer waits, for one person alone, and given up after a day', async () => {
    const [ada, bob] = [await mailed.person(orgId, 'owner'), await mailed.person(orgId, 'member')];
    mailed.takeOnly(({ to }) => to === bob.email);
    await append('instance.unreachable', 'i-1');
    const begunMs = world.clock.now();
    await mailed.gather();
    expect(toOf(mailed.sent)).toEqual([bob.email]);
    for (const [minutes, tries] of [
      [1, 2],
      [5, 3],
      [15, 4],
      [30, 5],
      [60, 6],
      [60, 7],
    ] as const) {
      await world.clock.advance(minutes * 60_000 - 1);
      await mailed.run();
      expect(toOf(mailed.asked).filter((to) => to === ada.email)).toHaveLength(tries - 1);
      await world.clock.advance(1);
      await mailed.run();
      expect(toOf(mailed.asked).filter((to) => to === ada.email)).toHaveLength(tries);
    }
    while (world.clock.now() < begunMs + TELL_MS_MAX) {
      await world.clock.advance(60_000);
      await mailed.run();
    }
    const tries = mailed.asked.length;
    await world.clock.advance(2 * 3_600_000);
    mailed.takeOnly(() => true);
    await mailed.run();
    expect([mailed.asked.length, toOf(mailed.sent), await count('notice_mails')]).toEqual([tries, [bob.email], 0]);
    expect(mailed.logged()).toMatch(new RegExp(`"user_id":"${ada.userId}","org_id":"${orgId}"[^]*a mail was given up`));
    expect(mailed.logged()).not.toContain('@');
  });

  test('that was refused three times waits for the operator, until it has left', async () => {
    const waiting = () => waitingMails(world.db.read, { nowMs: world.clock.now(), limit: 10 });
    await mailed.person(orgId, 'owner');
    mailed.takeOnly(() => false);
    await append('instance.unreachable', 'i-1');
    await mailed.gather();
    const sinceMs = world.clock.now();
    for (const minutes of [1, 5]) {
      expect(await waiting()).toEqual([]);
      await world.clock.advance(minutes * 60_000);
      await mailed.run();
    }
    expect(await waiting()).toMatchObject([
      { kind: 'mail', sinceMs, what: expect.stringMatching(/^1 notice could not be mailed\./) },
    ]);
    mailed.takeOnly(() => true);
    await world.clock.advance(15 * 60_000);
    await mailed.run();
    expect(await waiting()).toEqual([]);
  });

  test('that was refused is sent once the server takes it, and once only', async () => {
    const ada = await mailed.person(orgId, 'owner');
    mailed.takeOnly(() => false);
    await append('instance.unreachable', 'i-1');
    await mailed.gather();
    mailed.takeOnly(() => true);
    await world.clock.advance(60_000);
    await mailed.run();
    await world.clock.advance(3_600_000);
    await mailed.run();
    expect(toOf(mailed.sent)).toEqual([ada.email]);
  });

  test('goes to nobody who has left, turned mails off or lost the role since the letter was made', async () => {
    const [left, off, lost] = [
      await mailed.person(orgId, 'member'),
      await mailed.person(orgId, 'member'),
      await mailed.person(orgId, 'member'),
    ];
    mailed.takeOnly(() => false);
    await append('instance.unreachable', 'i-1');
    await mailed.gather();
    await world.db.tx('test.change', async (tx) => {
      await tx.run(raw(`delete from members where user_id = '${left.userId}'`));
      await setMailNotices(tx, off.userId, false);
      await setRole(tx, { org_id: orgId, user_id: lost.userId, role: 'billing', created_ms: 0 });
    });
    mailed.takeOnly(() => true);
    await world.clock.advance(60_000);
    await mailed.run();
    expect([mailed.sent, await count('notice_mails')]).toEqual([[], 0]);
  });

  /** The database, in which transactions of this name fail. */
  const without = (failing: string): World['db'] => ({
    ...world.db,
    tx: (name, body) => (name === failing ? Promise.reject(new Error('disk full')) : world.db.tx(name, body)),
  });

  test('that leaves before its process dies is repeated once by the next process after a minute', async () => {
    const ada = await mailed.person(orgId, 'owner');
    await append('instance.unreachable', 'i-1');
    await world.clock.advance(GATHER_MS);
    const dying = mailed.beside(without('notices.sent'));
    await expect(dying.run(new AbortController().signal)).rejects.toThrow(`could not be mailed to ${ada.userId}`);
    world = await world.restart();
    await mailed.run(world);
    expect(mailed.asked).toHaveLength(1);
    await world.clock.advance(60_000);
    await mailed.run(world);
    await world.clock.advance(3_600_000);
    await mailed.run(world);
    expect(toOf(mailed.sent)).toEqual([ada.email, ada.email]);
  });

  test('without an answer of the server keeps an ending process for five seconds, and is tried by the next one', async () => {
    const ada = await mailed.person(orgId, 'owner');
    await append('instance.unreachable', 'i-1');
    await world.clock.advance(GATHER_MS);
    const asked = Promise.withResolvers<void>();
    const silent: Mail['send'] = () => {
      asked.resolve();
      return new Promise(() => undefined);
    };
    const stopping = new AbortController();
    let hasEnded = false;
    const run = mailed.beside(world.db, silent).run(stopping.signal);
    const ended = run.finally(() => (hasEnded = true));
    await asked.promise;
    stopping.abort();
    await world.clock.advance(4_999);
    expect(hasEnded).toBe(false);
    await world.clock.advance(1);
    await ended;
    await world.clock.advance(60_000);
    await mailed.run();
    expect(toOf(mailed.sent)).toEqual([ada.email]);
  });

  test('is not lost if its process dies before it leaves', async () => {
    const ada = await mailed.person(orgId, 'owner');
    await append('instance.unreachable', 'i-1');
    await world.clock.advance(GATHER_MS);
    mailed.takeOnly(() => {
      throw new Error('killed');
    });
    await expect(mailed.run()).rejects.toThrow(`could not be mailed to ${ada.userId}`);
    expect(await rows()).toEqual([0, 1, 1]);
    mailed.takeOnly(() => true);
    world = await world.restart();
    await world.clock.advance(60_000);
    await mailed.run(world);
    expect(toOf(mailed.sent)).toEqual([ada.email]);
  });
});

test('the loop runs on the clock of the process, and mails when the minute is over', async () => {
  await mailed.person(orgId, 'owner');
  const options = brought(world.brings(), 'loops').find(({ name }) => name === 'notices');
  if (options === undefined) throw new Error('there is no loop of notices');
  const left = Promise.withResolvers<void>();
  mailed.takeOnly(() => {
    left.resolve();
    return true;
  });
  const loop = startLoop(options, world.core);
  const begunMs = world.clock.now();
  await append('instance.unreachable', 'i-1');
  await whileTimePasses(world.clock, left.promise, options.periodMs);
  expect(world.clock.now()).toBeGreaterThanOrEqual(begunMs + GATHER_MS);
  await loop.stop();
  expect([mailed.sent.length, await count('notice_mails')]).toEqual([1, 0]);
});
