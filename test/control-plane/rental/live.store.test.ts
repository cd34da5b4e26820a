// The live stream: what a reader gets, in which order, after a break, if it is slow, and what nobody gets.
import { beforeEach, describe, expect, test } from 'vitest';
import { LiveEvent } from '../../../shared/api/event.ts';
import { Instance } from '../../../shared/api/instance.ts';
import { EVENT_STREAMS_PER_ADDRESS_MAX, EVENT_STREAMS_PER_KEY_MAX } from '../../../shared/limits.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import type { Events } from '../../../control-plane/base/events/events.ts';
import { openLive } from '../../../control-plane/rental/journal/live.ts';
import { api, openApiForEachTest, owner } from '../../contract/api-of-test.ts';
import type { ApiAccount } from '../../contract/api.ts';
import { append, listen, type Reader, typesOf } from './live-reader.ts';

openApiForEachTest();
// The owner's key was made just now, and that is an event too. PostgreSQL reads the last 15 seconds again.
beforeEach(() => api.world.clock.advance(20_000));

test('a reader gets the headers at once, then each change with the instance as its own endpoint shows it', async () => {
  await api.world.machine();
  const reader = await listen();
  expect(typesOf(await reader.sent(1))).toEqual(['ready']);
  expect(reader.text()).toMatch(/^: open\n\n/);
  const id = await api.world.launch(owner);
  const [created] = await reader.sent(1);
  const shown = Instance.parse((await api.call('GET', `/v1/instances/${id}`, { key: owner.key })).json);
  expect(created).toMatchObject({ event: 'instance.creating', id: expect.stringMatching(/^evt_/) });
  expect(LiveEvent.parse(created?.data)).toMatchObject({
    id: created?.id,
    resource_type: 'instance',
    resource_id: id,
    resource: shown,
  });
  await api.world.start(id);
  const next = await reader.sent(1);
  expect(typesOf(next)).toContain('instance.running');
  expect(LiveEvent.parse(next.at(-1)?.data).resource).toMatchObject({ id, status: 'running' });
});

test('a reader gets nothing of other organisations, and nothing that its scopes do not let it read', async () => {
  await api.world.machine();
  const stranger = await api.account();
  const limited = await api.account(['events:read', 'supply:read']);
  const readers = [await listen(stranger), await listen(limited)];
  for (const reader of readers) await reader.sent(1);
  await api.world.launch(owner);
  await api.world.launch(limited);
  for (const reader of readers) expect(await reader.sent()).toEqual([]);
});

test('a supplier sees its machines, and the organisation its videos and fine-tuning jobs', async () => {
  const reader = await listen();
  await reader.sent(1);
  const supplier = await api.call('POST', '/v1/community/machines', {
    key: owner.key,
    body: { region: 'eu-west', price_per_hour: 2 },
  });
  expect(supplier.status).toBe(404);
  await api.call('POST', '/v1/community/supplier', { key: owner.key });
  const { json } = await api.call('POST', '/v1/community/machines', {
    key: owner.key,
    body: { region: 'eu-west', price_per_hour: 2 },
  });
  const sent = await reader.sent(1);
  expect(typesOf(sent)).toEqual(['machine.registered']);
  expect(LiveEvent.parse(sent[0]?.data).resource).toEqual(json['machine']);
  await append(1, 'video.queued');
  await append(1, 'fine_tuning_job.queued');
  expect(typesOf(await reader.sent(2))).toEqual(['video.queued', 'fine_tuning_job.queued']);
});

describe('after a break', () => {
  test.each(['lastEventId', 'after'] as const)('a reader goes on with %s, and misses nothing', async (how) => {
    const before = await listen();
    await before.sent(1);
    await append(2);
    const seen = await before.sent(2);
    before.leave();
    await append(3);
    const again = await listen(owner, { [how]: seen[0]?.id ?? '' });
    // `ready`, the second event from before and the three that were missed.
    const sent = await again.sent(5);
    const journal = await api.call('GET', '/v1/events', { key: owner.key });
    const missed = (journal.json.data ?? [])
      .map(({ id }) => id)
      .toReversed()
      .slice(2);
    // On PostgreSQL an event of the last seconds may come twice.
    const unseen = sent.filter(({ event, id }) => event !== 'ready' && id !== seen[0]?.id);
    expect(unseen.map(({ id }) => id)).toEqual(missed);
    const repeated = sent.filter(({ id, event }) => event !== 'ready' && id === seen[0]?.id);
    expect(repeated).toEqual([]);
    await append(1);
    expect(typesOf(await again.sent(1))).toEqual(['instance.placed']);
  });

  test('an event that is missed and then found by the next poll comes once', async () => {
    const other = await listen();
    const [ready] = await other.sent(1);
    await append(1);
    const again = await listen(owner, { lastEventId: ready?.id ?? '' });
    expect(typesOf(await again.sent(2))).toEqual(['ready', 'instance.placed']);
    expect(typesOf(await other.sent(1))).toEqual(['instance.placed']);
  });

  test('a reader that had no event yet goes on after the id of `ready`', async () => {
    const before = await listen();
    const [ready] = await before.sent(1);
    before.leave();
    await append(1);
    const again = await listen(owner, { lastEventId: ready?.id ?? '' });
    expect(typesOf(await again.sent(2))).toEqual(['ready', 'instance.placed']);
  });

  test.each(['evt_00000000000000000000000000', 'of another organisation'])(
    'a position that is not known (%s) is a resync',
    async (position) => {
      const stranger = await api.account();
      await append(1, 'instance.placed', stranger.orgId);
      const { json } = await api.call('GET', '/v1/events', { key: stranger.key });
      const id = position.startsWith('evt_') ? position : String(json.data?.[0]?.['id']);
      const reader = await listen(owner, { lastEventId: id });
      expect(typesOf(await reader.sent(1))).toEqual(['resync']);
      await append(1);
      expect(typesOf(await reader.sent(1))).toEqual(['instance.placed']);
    },
  );

  test.each([
    [1_000, 1_001],
    [1_001, 1],
  ])('after %i missed events a reader gets %i messages', async (missed, messages) => {
    const { clock } = api.world;
    const position = `at_${clock.now()}`;
    await append(missed);
    const reader = await listen(owner, { after: position });
    const sent = await reader.sent(messages);
    expect(sent).toHaveLength(messages);
    expect(sent[0]?.event).toBe(messages === 1 ? 'resync' : 'ready');
  });

  test.each(['evt_1', 'at_x', "evt_'; drop table events"])('the position %s is refused by name', async (position) => {
    await expect(listen(owner, { lastEventId: position })).rejects.toMatchObject({
      code: 'validation_failed',
      details: { errors: [{ field: 'Last-Event-ID', rule: expect.stringContaining('id of an event') }] },
    });
    const answer = await api.call('GET', `/v1/events?after=${encodeURIComponent(position)}`, { key: owner.key });
    expect(answer).toMatchObject({ status: 422, json: { errors: [{ field: 'after' }] } });
  });
});

test('an event that is committed after a later one is sent too', async () => {
  const { db, clock } = api.world;
  const reader = await listen();
  await reader.sent(1);
  await append(1);
  expect(typesOf(await reader.sent(1))).toEqual(['instance.placed']);
  await clock.advance(3_000);
  await append(1);
  expect(typesOf(await reader.sent(1))).toEqual(['instance.placed']);
  // SQLite commits in order, so there an event can be late only within its second.
  const createdMs = clock.now() - (db.dialect === 'postgres' ? 12_000 : 500);
  await db.tx('test.late', (tx) =>
    tx.run(sql`insert into events (id, type, subject_id, org_id, data, created_ms)
      values ('evt_late', 'instance.starting', 'i-x', ${owner.orgId}, '{}', ${createdMs})`),
  );
  const late: string[] = [];
  for (let i = 0; i < 10; i += 1) {
    await clock.advance(250);
    late.push(...typesOf(await reader.sent()));
  }
  expect(late).toEqual(['instance.starting']);
});

test('an event that one control plane appends reaches a reader of another one, once', async () => {
  const other = await api.beside();
  const reader = await listen(owner, { on: other });
  await reader.sent(1);
  await append(1);
  expect(typesOf(await reader.sent(1))).toEqual(['instance.placed']);
  expect(await reader.sent()).toEqual([]);
  other.world.rooms.live.close();
});

test.each([
  [1_000, Array.from({ length: 1_000 }, () => 'instance.placed')],
  [1_001, ['resync']],
])(
  'of %i events that come at once, all are sent or the reader is told to read its lists again',
  async (count, expected) => {
    const reader = await listen();
    await reader.sent(1);
    await append(count);
    expect(typesOf(await reader.sent(expected.length))).toEqual(expected);
  },
);

test('a reader that takes its events more slowly than they come gets a resync, and no queue that grows', async () => {
  const { live } = api.world.rooms;
  const caller = { orgId: owner.orgId, principalId: owner.principalId, scopes: ['instances:read' as const] };
  const sight = { families: ['instance'], ownFamilies: [], userId: undefined };
  const { next, stop } = live.open({ caller, address: '10.0.0.1', sight, after: undefined });
  const reading = next[Symbol.asyncIterator]();
  const kinds: unknown[] = [];
  // The reader takes 50 of 150 events in each turn.
  for (let turn = 0; turn < 20; turn += 1) {
    await append(150);
    await live.tick();
    kinds.push((await reading.next()).value?.kind);
  }
  expect(kinds).toContain('resync');
  stop();
});

test('while the journal cannot be read a reader gets nothing, and after that one resync', async () => {
  const { clock, db, rooms } = api.world;
  const journal = { isAway: false };
  const newestSince: Events['newestSince'] = async (...asked) => {
    if (journal.isAway) throw new Error('the database is away');
    return rooms.events.newestSince(...asked);
  };
  const live = openLive({ db, clock, events: { ...rooms.events, newestSince } });
  const caller = { orgId: owner.orgId, principalId: owner.principalId, scopes: ['instances:read' as const] };
  const sight = { families: ['instance'], ownFamilies: [], userId: undefined };
  const { next } = live.open({ caller, address: '10.0.0.1', sight, after: undefined });
  const kinds: string[] = [];
  const reading = (async () => {
    for await (const { kind } of next) kinds.push(kind);
  })();
  await expect.poll(() => kinds).toEqual(['ready']);
  await live.tick();
  journal.isAway = true;
  for (let i = 0; i < 3; i += 1) {
    await expect(live.tick()).rejects.toThrow('away');
    await clock.nextTurn();
  }
  expect(kinds).toEqual(['ready']);
  journal.isAway = false;
  await append(1);
  await live.tick();
  await expect.poll(() => kinds).toEqual(['ready', 'resync']);
  await append(1);
  await live.tick();
  await expect.poll(() => kinds).toEqual(['ready', 'resync', 'events']);
  live.close();
  await reading;
});

test('the stream of a key that was revoked ends with the next check', async () => {
  const { rooms, clock } = api.world;
  const second = await api.world.key(owner.orgId);
  const readers = [await listen(second), await listen()];
  for (const reader of readers) await reader.sent(1);
  await rooms.accounts.revokeKey(second.principalId);
  await clock.advance(15_000);
  await expect.poll(() => readers[0]?.ended()).toBe(true);
  expect(readers[1]?.ended()).toBe(false);
});

test('a silent stream carries a comment each 15 seconds', async () => {
  const reader = await listen();
  await reader.sent(1);
  const before = reader.text();
  await api.world.clock.advance(15_000);
  expect(reader.text().slice(before.length)).toBe(': keep-alive\n\n');
});

describe('bounds', () => {
  test(`a key has ${EVENT_STREAMS_PER_KEY_MAX} streams, and one more when one is closed`, async () => {
    const readers: Reader[] = [];
    for (let i = 0; i < EVENT_STREAMS_PER_KEY_MAX; i += 1) readers.push(await listen());
    await expect(listen()).rejects.toMatchObject({ code: 'stream_limit_exceeded' });
    readers[0]?.leave();
    await api.world.clock.advance(1);
    await listen();
    expect(api.world.rooms.live.counts().open).toBe(EVENT_STREAMS_PER_KEY_MAX);
  });

  test(`an address has ${EVENT_STREAMS_PER_ADDRESS_MAX} streams, whatever keys they have`, async () => {
    let who: ApiAccount = owner;
    for (let i = 0; i < EVENT_STREAMS_PER_ADDRESS_MAX; i += 1) {
      if (i % EVENT_STREAMS_PER_KEY_MAX === 0) who = await api.account();
      await listen(who, { address: '192.0.2.1' });
    }
    await expect(listen(owner, { address: '192.0.2.1' })).rejects.toMatchObject({ code: 'stream_limit_exceeded' });
    await listen(owner, { address: '192.0.2.2' });
  });
});

test('the shutdown ends all streams', async () => {
  const readers = [await listen(), await listen()];
  api.world.rooms.live.close();
  await expect.poll(() => readers.map((reader) => reader.ended())).toEqual([true, true]);
});

test('without a reader nothing is read', async () => {
  const { rooms } = api.world;
  const reader = await listen();
  reader.leave();
  await expect.poll(() => rooms.live.counts().open).toBe(0);
  await append(1);
  await rooms.live.tick();
  // What came before the first reader is not new to it.
  expect(typesOf(await (await listen()).sent(1))).toEqual(['ready']);
});

test('the page has what the key may see, newest first', async () => {
  await append(2);
  await append(1, 'machine.listed');
  const { json } = await api.call('GET', '/v1/events?limit=2', { key: owner.key });
  expect(json.data?.map(({ type }) => type)).toEqual(['machine.listed', 'instance.placed']);
  const rest = await api.call('GET', `/v1/events?limit=2&cursor=${json.next_cursor}`, { key: owner.key });
  expect(rest.json.data?.map(({ type }) => type)).toEqual(['instance.placed', 'api_key.created']);
  const { key } = await api.world.customer(0, ['events:read', 'instances:read']);
  expect((await api.call('GET', '/v1/events', { key })).json.data).toEqual([]);
});
