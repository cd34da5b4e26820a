// Organisations whose endpoints hang, and who ask for attempts without end, do not delay the deliveries of the others.
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Tx } from '../../../../control-plane/base/db/db.ts';
import { WEBHOOK_TESTS_PER_HOUR_MAX } from '../../../../shared/limits.ts';
import { eventually } from '../../../kit/processes.ts';
import { openWebhookWorld, type WebhookWorld } from './fixture.ts';

/** Together they have more attempts that may be made at once than there are places. */
const GREEDY_ORGS = 20;

let world: WebhookWorld;
let hanging: PromiseWithResolvers<{ status: number }>;
beforeEach(async () => {
  world = await openWebhookWorld();
  hanging = Promise.withResolvers();
  const { promise } = hanging;
  world.outbound.answer = ({ url }) => (url.endsWith('hangs') ? promise : Promise.resolve({ status: 204 }));
});
afterEach(async () => {
  hanging.resolve({ status: 204 });
  await world.carry();
  await world.close();
});

const inTx = (body: (tx: Tx) => Promise<unknown>): Promise<unknown> => world.db.tx('test', body);
const orgs = Array.from({ length: GREEDY_ORGS }, (_, n) => `org_greedy_${n}`);

/** Each organisation makes this many endpoints that hang, and sends all the tests that it may to the first two. */
async function beGreedy(endpoints: number): Promise<void> {
  const { webhooks } = world.rooms;
  for (const orgId of orgs)
    await inTx(async (tx) => {
      const ids: string[] = [];
      for (let i = 0; i < endpoints; i += 1) {
        const request = { url: 'https://example.com/hangs', event_types: ['instance.creating' as const] };
        ids.push((await webhooks.create(tx, orgId, request)).id);
      }
      for (let i = 0; i < WEBHOOK_TESTS_PER_HOUR_MAX; i += 1) await webhooks.test(tx, orgId, ids[i % 2] ?? '', {});
    });
}

/** The courier runs until it starts nothing more. */
async function rest(): Promise<void> {
  let before = -1;
  await eventually('rest of the courier', 10_000, async () => {
    await world.rooms.webhooks.courier.run();
    const isAtRest = world.outbound.requests.length === before;
    before = world.outbound.requests.length;
    return isAtRest ? true : undefined;
  });
}

const arrived = (id: string) =>
  eventually('the delivery of another organisation', 5_000, async () => {
    await world.rooms.webhooks.courier.run();
    return (await world.deliveries(id)).every(({ status }) => status === 'succeeded') ? true : undefined;
  });

test('the attempts of a few organisations that hang leave places for the others', async () => {
  const { id } = await world.endpoint();
  await beGreedy(2);
  await rest();
  await world.launchOne();
  await arrived(id);
  expect(world.outbound.requests.length).toBeGreaterThan(900);
});

test('endpoints that wait because their organisation has its share do not hide those that have waited less', async () => {
  const instanceId = await world.launchOne();
  await beGreedy(50);
  await rest();
  const event = { type: 'instance.creating', subjectId: instanceId, data: {} } as const;
  for (const orgId of orgs) await inTx((tx) => world.rooms.events.append(tx, { ...event, orgId }));
  await world.clock.advance(1_000);
  const { id } = await world.endpoint();
  await world.launchOne();
  await arrived(id);
});
