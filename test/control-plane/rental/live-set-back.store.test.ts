// The live stream and the pages of events after the wall clock was set back, when later events have earlier times.
import { beforeEach, describe, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { UNNOTED_MS_MAX } from '../../../control-plane/rental/journal/set-backs.ts';
import { api, openApiForEachTest, owner } from '../../contract/api-of-test.ts';
import type { Api } from '../../contract/api.ts';
import { append, listen, typesOf } from './live-reader.ts';

openApiForEachTest();
// The owner's key was made just now, and that is an event too. PostgreSQL reads the last 15 seconds again.
beforeEach(() => api.world.clock.advance(20_000));

test('all events arrive after the clock was set back', async () => {
  const reader = await listen();
  await reader.sent(1);
  api.world.clock.step(-60_000);
  const got: string[] = [];
  for (let event = 0; event < 12; event += 1) {
    await append(1);
    await api.world.clock.advance(700);
    got.push(...typesOf(await reader.sent()));
  }
  await api.world.clock.advance(3_000);
  got.push(...typesOf(await reader.sent()));
  expect(got.filter((type) => type === 'instance.placed')).toHaveLength(12);
});

test('events from before the clock was set back, however many, are no reason to read everything again', async () => {
  const { db, clock } = api.world;
  const laterMs = clock.now() + 60_000;
  await db.tx('test.fill', (tx) =>
    tx.run(sql`with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < 20000)
      insert into events (id, type, subject_id, org_id, data, created_ms, family)
      select 'evt_later' || n, 'instance.placed', 'i', 'other', '{}', ${laterMs}, 'instance' from numbers`),
  );
  const reader = await listen();
  await reader.sent(1);
  await append(1);
  expect(typesOf(await reader.sent(1))).toEqual(['instance.placed']);
});

describe('a reader that comes back after the clock was set back', () => {
  const MINUTE = 60_000;

  /** A reader has got one event and left. Then the clock is set back by a minute, and two events follow. */
  async function breakOff(): Promise<string> {
    const before = await listen();
    await before.sent(1);
    await append(1);
    const [seen] = await before.sent(1);
    before.leave();
    await expect.poll(() => api.world.rooms.live.counts().open).toBe(0);
    await api.world.clock.advance(500);
    api.world.clock.step(-MINUTE);
    await append(2);
    return seen?.id ?? '';
  }
  /** The number of events that it has missed and gets. */
  async function missed(lastEventId: string, on: Api = api): Promise<number> {
    const sent = await (await listen(owner, { on, lastEventId })).sent(3);
    return sent.filter(({ event, id }) => event === 'instance.placed' && id !== lastEventId).length;
  }

  test('gets what it has missed at once', async () => {
    expect(await missed(await breakOff())).toBe(2);
  });
  test.each([1, UNNOTED_MS_MAX - 1])('gets it too if that was by %i ms, which is not noted', async (ms) => {
    const { rooms, db, clock } = api.world;
    await rooms.live.tick();
    await append(1);
    const [seen] = await rooms.events.newestSince(db.read, { fromMs: 0, limit: 1 });
    clock.step(-ms);
    await append(2);
    expect(await missed(seen?.id ?? '')).toBe(2);
  });
  test('gets it too when the clock shows a later time again', async () => {
    const lastEventId = await breakOff();
    await api.world.rooms.live.tick();
    await api.world.clock.advance(2 * MINUTE);
    expect(await missed(lastEventId)).toBe(2);
  });
  test('gets it too if it has no event yet', async () => {
    const reader = await listen();
    const [ready] = await reader.sent(1);
    reader.leave();
    api.world.clock.step(-MINUTE);
    await append(2);
    await api.world.rooms.live.tick();
    await api.world.clock.advance(2 * MINUTE);
    expect(await missed(ready?.id ?? '')).toBe(2);
  });
  test('gets it too if the clock was set back twice', async () => {
    const lastEventId = await breakOff();
    await api.world.rooms.live.tick();
    api.world.clock.step(-MINUTE);
    await append(2);
    await api.world.rooms.live.tick();
    await api.world.clock.advance(4 * MINUTE);
    expect(await missed(lastEventId)).toBe(4);
  });
  test('gets it too from another control plane, which has not seen that', async () => {
    const lastEventId = await breakOff();
    await api.world.rooms.live.tick();
    await api.world.clock.advance(2 * MINUTE);
    const other = await api.beside();
    expect(await missed(lastEventId, other)).toBe(2);
    other.world.rooms.live.close();
  });
  test('gets it too if the control plane was not running when it happened', async () => {
    await append(1);
    const { json } = await api.call('GET', '/v1/events?limit=1', { key: owner.key });
    const lastEventId = String(json.data?.[0]?.['id']);
    api.world.clock.step(-MINUTE);
    const next = await api.beside();
    await next.world.rooms.live.tick();
    await append(2);
    await next.world.clock.advance(2 * MINUTE);
    expect(await missed(lastEventId, next)).toBe(2);
    next.world.rooms.live.close();
  });
});

test('the pages of the list have every event once, also if the clock was set back between them', async () => {
  await append(3);
  api.world.clock.step(-60_000);
  await append(3);
  const seen: unknown[] = [];
  let query = '';
  for (let page = 0; page < 7; page += 1) {
    const { json } = await api.call('GET', `/v1/events?limit=1${query}`, { key: owner.key });
    seen.push(json.data?.[0]?.['id']);
    query = `&cursor=${json.next_cursor}`;
    api.world.clock.step(-1_000);
  }
  const { json } = await api.call('GET', '/v1/events', { key: owner.key });
  expect(json.data?.map(({ id }) => id)).toEqual(seen);
  expect(new Set(seen).size).toBe(7);
});
