// kill -9 of the sending process in the middle of a load, with endpoints that hang and refuse: a healthy endpoint misses nothing.
import { afterEach, expect, test } from 'vitest';
import { z } from 'zod';
import { sql } from '../../../../control-plane/base/db/db.ts';
import { int } from '../../../../control-plane/base/db/columns.ts';
import { openLoadRooms, orgOf } from '../../../kit/webhook-load/rooms.ts';
import { type Arrival, openWebhookLoad, type WebhookLoad } from '../../../kit/webhook-load/load.ts';

const SIZE =
  process.env['SOAK'] === '1'
    ? { endpoints: 100, hanging: 10, refusing: 10, events: 10_000, perSecond: 200 }
    : { endpoints: 20, hanging: 2, refusing: 2, events: 600, perSecond: 200 };
const PATIENCE_MS = 20_000 + (SIZE.events / SIZE.perSecond) * 4_000;

let load: WebhookLoad;
afterEach(() => load.close());

/** The events in order, each once. It is a fault if an event arrives again after a later one of its instance. */
function inOrder(arrivals: readonly Arrival[]): { versions: Map<string, number[]>; faults: string[] } {
  const versions = new Map<string, number[]>();
  const faults: string[] = [];
  for (const { event } of arrivals) {
    const { id, version } = event.data.instance;
    const before = versions.get(id) ?? [];
    const last = before.at(-1) ?? -1;
    if (version < last) faults.push(`${id}: version ${version} after ${last}`);
    if (version > last) versions.set(id, [...before, version]);
  }
  return { versions, faults };
}

// Specification 6.4: A delivery is retried until it succeeds or is dead, whatever ends our process.
test(
  'a healthy endpoint loses no event and keeps their order over a kill -9 while other endpoints hang and refuse',
  async () => {
    load = await openWebhookLoad(SIZE);
    for (const part of [0.3, 0.6]) {
      const program = load.start('service');
      await load.received(Math.floor(load.expected * part), PATIENCE_MS);
      await program.stop('SIGKILL');
    }
    const last = load.start('service');
    await last.waitForOutput(/all events are made/, PATIENCE_MS);
    await load.received(load.expected, PATIENCE_MS);
    await last.stop('SIGKILL');

    const { db, webhooks } = await openLoadRooms(load.plan);
    const outbox = await db.read.all(
      z.object({ events: int, deliveries: int }),
      sql`select (select count(*) from events) as events, (select count(*) from webhook_deliveries) as deliveries`,
    );
    expect(outbox).toEqual([{ events: SIZE.events, deliveries: SIZE.events }]);
    for (const place of load.healthy) {
      const arrivals = load.arrivals[place] ?? [];
      expect(arrivals.filter(({ answer }) => answer !== 204)).toEqual([]);
      const { versions, faults } = inOrder(arrivals);
      expect(faults).toEqual([]);
      const counted = await db.read.all(
        z.object({ id: z.string(), count: int }),
        sql`select subject_id as id, count(*) as count from events where org_id = ${orgOf(place)} group by subject_id`,
      );
      expect(Object.fromEntries([...versions].map(([id, list]) => [id, list.length]))).toEqual(
        Object.fromEntries(counted.map(({ id, count }) => [id, count])),
      );
    }
    await webhooks.courier.stop();
    await db.close();
  },
  4 * PATIENCE_MS,
);
