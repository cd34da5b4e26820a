// What an owner changes while an attempt, or the deletion of old deliveries, is in progress.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { forgetDeliveries, forgettable } from '../../../../control-plane/rental/webhooks/delivery-store.ts';
import { eventually } from '../../../kit/processes.ts';
import type { WebhookDelivery } from '../../../../shared/api/webhook.ts';
import { openWebhookWorld, type WebhookWorld } from './fixture.ts';

const MINUTE = 60_000;

let world: WebhookWorld;
let id: string;
let answer: PromiseWithResolvers<{ status: number }>;
beforeEach(async () => {
  world = await openWebhookWorld();
  ({ id } = await world.endpoint());
  hang();
  await world.launchOne();
});
afterEach(() => world.close());

/** The next attempts wait for `answer`. */
function hang(): void {
  answer = Promise.withResolvers();
  const { promise } = answer;
  world.outbound.answer = () => promise;
}
/** Starts the attempts that are due, and waits until this many were made. */
async function begin(count: number): Promise<void> {
  await world.rooms.webhooks.courier.run();
  await eventually('attempt', 5_000, async () => (world.outbound.requests.length >= count ? true : undefined));
}
const health = () => world.rooms.webhooks.get(world.db.read, world.who.orgId, id);
const retry = async (): Promise<WebhookDelivery> => {
  const [delivery] = await world.deliveries(id);
  const ids = { endpointId: id, deliveryId: delivery?.id ?? '' };
  return world.db.tx('test', (tx) => world.rooms.webhooks.retry(tx, world.who.orgId, ids));
};

test('an attempt to the old URL says nothing about the new one', async () => {
  await begin(1);
  const url = 'https://example.com/moved';
  await world.db.tx('test', (tx) => world.rooms.webhooks.change(tx, world.who.orgId, id, { url }));
  answer.resolve({ status: 410 });
  await world.carry();
  expect((await world.deliveries(id))[0]).toMatchObject({ status: 'retrying', attempts: 1 });
  expect(await health()).toMatchObject({ status: 'healthy' });
});

test('a retry that is asked for meanwhile follows at once if the attempt fails', async () => {
  await begin(1);
  expect(await retry()).toMatchObject({ status: 'pending', attempts: 0 });
  answer.resolve({ status: 500 });
  await begin(2);
  await world.carry();
  expect(world.outbound.requests).toHaveLength(2);
});

async function attempt(times: number): Promise<void> {
  answer.resolve({ status: 500 });
  for (let made = 0; made < times; made += 1) {
    await world.carry();
    await world.clock.advance(300 * MINUTE);
  }
}

test('a retry that is asked for meanwhile follows the last attempt too', async () => {
  await attempt(4);
  hang();
  await begin(5);
  await retry();
  answer.resolve({ status: 500 });
  await begin(6);
  await world.carry();
  expect((await world.deliveries(id))[0]).toMatchObject({ status: 'dead_lettered', attempts: 6 });
});

test('a retry of an old delivery keeps it and its attempts from the deletion that has listed it already', async () => {
  await attempt(5);
  const which = { completedUntilMs: world.clock.now() };
  const listed = (await forgettable(world.db.read, which, 10)).map((row) => row.id);
  expect(listed).toHaveLength(1);
  await retry();
  const forget = (): Promise<void> => world.db.tx('forget', (tx) => forgetDeliveries(tx, which, listed));
  await forget();
  expect((await world.deliveries(id))[0]).toMatchObject({ id: listed[0], status: 'retrying' });
  expect(await world.attempts(listed[0] ?? '')).toHaveLength(5);
  await world.carry();
  which.completedUntilMs = world.clock.now();
  await forget();
  expect([await world.deliveries(id), await world.attempts(listed[0] ?? '')]).toEqual([[], []]);
});
