// What failing does to an endpoint, and what the end of an endpoint, of a delivery or of the courier does to what is under way.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { countDeliveries } from '../../../../control-plane/rental/webhooks/delivery-store.ts';
import { deletedEndpoints } from '../../../../control-plane/rental/webhooks/endpoint-store.ts';
import { sql, type Tx } from '../../../../control-plane/base/db/db.ts';
import type { ChangeWebhookEndpoint } from '../../../../shared/api/webhook.ts';
import { OutboundError } from '../../../../control-plane/base/outbound/policy.ts';
import { createLog } from '../../../../shared/log.ts';
import { eventually } from '../../../kit/processes.ts';
import { dueEndpoints } from '../../../../control-plane/rental/webhooks/endpoint-store.ts';
import { openWebhookWorld, type WebhookWorld } from './fixture.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const DAY = 24 * 60 * MINUTE;

let world: WebhookWorld;
beforeEach(async () => {
  world = await openWebhookWorld();
});
afterEach(() => world.close());

const fails = async (): Promise<never> => {
  throw new OutboundError('connect', 'no connection to example.com port 443: ECONNREFUSED');
};

/** The day passes in steps of five minutes. The courier comes to rest in each of them. */
async function passDay(): Promise<void> {
  for (let passedMs = 0; passedMs <= DAY; passedMs += 5 * MINUTE) {
    await world.carry();
    await world.clock.advance(5 * MINUTE);
  }
}

describe('an endpoint that fails', () => {
  const health = async (id: string) => world.rooms.webhooks.get(world.db.read, world.who.orgId, id);

  test('is degraded after 20 failures, probed every five minutes, and gets everything once a probe succeeds', async () => {
    const { id } = await world.endpoint();
    world.outbound.answer = fails;
    for (let i = 0; i < 25; i += 1) await world.launchOne();
    await world.carry();
    expect(world.outbound.requests).toHaveLength(20);
    expect(await health(id)).toMatchObject({ status: 'degraded', enabled: true });
    await world.clock.advance(5 * MINUTE - 1);
    await world.carry();
    expect(world.outbound.requests).toHaveLength(20);
    await world.clock.advance(1);
    await world.carry();
    expect(world.outbound.requests).toHaveLength(21);
    world.outbound.answer = async () => ({ status: 204 });
    await world.clock.advance(5 * MINUTE);
    await world.carry();
    expect(await health(id)).toMatchObject({ status: 'healthy' });
    const rows = await world.deliveries(id);
    expect(new Set(rows.map((row) => row.status))).toEqual(new Set(['succeeded']));
    const triggers = (await Promise.all(rows.map((row) => world.attempts(row.id))))
      .flat()
      .map((row) => row.trigger_kind);
    expect(triggers.filter((trigger) => trigger === 'probe')).toHaveLength(2);
  });
  test('is tried at once if its owner asks: by a retry, a new URL, or enabling it', async () => {
    const { id } = await world.endpoint();
    const { webhooks } = world.rooms;
    const inTx = (body: (tx: Tx) => Promise<unknown>): Promise<unknown> => world.db.tx('test', body);
    const change = (request: ChangeWebhookEndpoint) => inTx((tx) => webhooks.change(tx, world.who.orgId, id, request));
    world.outbound.answer = fails;
    for (let i = 0; i < 22; i += 1) await world.launchOne();
    await world.carry();
    expect(world.outbound.requests).toHaveLength(20);
    const deliveryId = (await world.deliveries(id))[0]?.id ?? '';
    await inTx((tx) => webhooks.retry(tx, world.who.orgId, { endpointId: id, deliveryId }));
    await world.carry();
    expect(world.outbound.requests).toHaveLength(21);
    expect(await health(id)).toMatchObject({ status: 'degraded' });
    await change({ url: 'https://example.com/hook' });
    expect(await health(id)).toMatchObject({ status: 'degraded' });
    for (const request of [{ url: 'https://example.com/moved' }, { enabled: true }]) {
      await change(request);
      expect(await health(id)).toMatchObject({ status: 'healthy' });
      await world.clock.advance(6 * MINUTE);
      await world.carry();
      expect(await health(id)).toMatchObject({ status: 'degraded' });
    }
  });
  // Specification 6.4: 410 is retried like any failure, and the endpoint stays enabled.
  test('writes at most 30 lines a minute to the log, however often its owner lets it change', async () => {
    await world.close();
    const lines: string[] = [];
    world = await openWebhookWorld({ log: createLog('test', 'warn', { write: (line) => void lines.push(line) }) });
    const { id } = await world.endpoint();
    const { webhooks } = world.rooms;
    for (let i = 0; i < 40; i += 1) {
      world.outbound.answer = async () => ({ status: i % 2 === 0 ? 410 : 204 });
      await world.db.tx('test.test', (tx) => webhooks.test(tx, world.who.orgId, id, {}));
      await world.carry();
    }
    expect(lines.filter((line) => line.includes('changed its health'))).toHaveLength(30);
  });
  test('is degraded by 410 and stays enabled, and its deliveries are tried like any other', async () => {
    const { id } = await world.endpoint();
    world.outbound.answer = async () => ({ status: 410 });
    await world.launchOne();
    await world.carry();
    const reason = expect.stringContaining('410 Gone') as string;
    expect(await health(id)).toMatchObject({ status: 'degraded', enabled: true, status_reason: reason });
    await passDay();
    expect((await world.deliveries(id)).map(({ status, attempts }) => [status, attempts])).toEqual([
      ['dead_lettered', 5],
    ]);
    expect(await health(id)).toMatchObject({ status: 'degraded', enabled: true });
  });
  // Specification 6.4: The attempts span roughly 24 hours at most, also to an endpoint that fails again and again.
  test('gives each of its deliveries five attempts within a day, however many there are', async () => {
    const { id } = await world.endpoint();
    world.outbound.answer = fails;
    // One probe every five minutes is 288 a day, and these need 300 attempts.
    for (let i = 0; i < 60; i += 1) await world.launchOne();
    const startMs = world.clock.now();
    await passDay();
    const rows = await world.deliveries(id);
    expect(rows.map(({ status, attempts }) => [status, attempts])).toEqual(rows.map(() => ['dead_lettered', 5]));
    const last = Math.max(...rows.map((row) => row.completed_ms ?? Infinity));
    expect(last).toBeLessThan(startMs + DAY);
    // It was slowed all the same: until the attempts would not fit in any more, one was made every five minutes.
    const attempts = (await Promise.all(rows.map((row) => world.attempts(row.id)))).flat();
    const early = attempts.filter((row) => row.started_ms < startMs + 20 * 60 * MINUTE);
    expect(early.length).toBeLessThan(20 + 20 * 12 + 2);
  });
  test('is tried like any other if its name has an internal address: the name may change later', async () => {
    const { id } = await world.endpoint();
    world.outbound.answer = async () => {
      throw new OutboundError('blocked_address', 'the name example.com has no public address');
    };
    await world.launchOne();
    await passDay();
    const [delivery] = await world.deliveries(id);
    expect([delivery?.status, delivery?.attempts]).toEqual(['dead_lettered', 5]);
  });
  test('does not delay others once it is disabled, however much is due to it', async () => {
    const off = [await world.endpoint(), await world.endpoint()];
    for (const { id } of off)
      await world.db.tx('test', (tx) => world.rooms.webhooks.change(tx, world.who.orgId, id, { enabled: false }));
    await world.launchOne();
    await world.clock.advance(1);
    const { id } = await world.endpoint();
    await world.launchOne();
    // The two have waited longer, and fill the places that there are.
    const which = { nowMs: world.clock.now(), limit: 2, withoutOrgs: [] };
    expect(await dueEndpoints(world.db.read, which)).toEqual([id]);
  });
});

test('what is due is tried unless the endpoint is disabled, or rests and nothing is urgent', async () => {
  const nowMs = world.clock.now();
  const times = [null, nowMs - 1, nowMs, nowMs + 1];
  const all = ['healthy', 'degraded', 'disabled'].flatMap((status) =>
    times.flatMap((due) => times.flatMap((open) => times.map((urgent) => ({ status, due, open, urgent })))),
  );
  const isOver = (ms: number | null): boolean => ms !== null && ms <= nowMs;
  const expected = all.flatMap(({ status, due, open, urgent }, n) =>
    status !== 'disabled' && isOver(due) && (open === null || isOver(open) || isOver(urgent)) ? [`whe_${n}`] : [],
  );
  await world.db.tx('test.fill', async (tx) => {
    for (const [n, { status, due, open, urgent }] of all.entries())
      await tx.run(sql`insert into webhook_endpoints (id, org_id, url, event_types, status, secret_sealed, due_ms, open_until_ms, urgent_ms, created_ms)
        values (${`whe_${n}`}, 'o', 'https://example.com/', '[]', ${status}, 'x', ${due}, ${open}, ${urgent}, 0)`);
  });
  const found = await dueEndpoints(world.db.read, { nowMs, limit: all.length, withoutOrgs: [] });
  expect(found.toSorted()).toEqual(expected.toSorted());
});

test('deliveries that wait because their owner has disabled the endpoint are not late', async () => {
  const { id } = await world.endpoint();
  await world.launchOne();
  const lateMs = async (): Promise<number> => (await countDeliveries(world.db.read, world.clock.now(), 0)).dueForMs;
  await world.clock.advance(MINUTE);
  expect(await lateMs()).toBe(MINUTE);
  await world.db.tx('test', (tx) => world.rooms.webhooks.change(tx, world.who.orgId, id, { enabled: false }));
  expect(await lateMs()).toBe(0);
});

describe('the end', () => {
  test('of the process cuts off a hanging attempt and does not count it as a failure', async () => {
    const { id } = await world.endpoint();
    const hanging = Promise.withResolvers<never>();
    hanging.promise.catch(() => undefined);
    world.outbound.answer = () => hanging.promise;
    world.outbound.close = async () => hanging.reject(new OutboundError('connect', 'the connection was closed'));
    await world.launchOne();
    await world.rooms.webhooks.courier.run();
    await eventually('attempt', 5_000, async () => (world.outbound.requests.length === 1 ? true : undefined));
    const stopped = world.rooms.webhooks.courier.stop();
    await world.clock.advance(5 * SECOND);
    await stopped;
    expect((await world.deliveries(id))[0]).toMatchObject({ status: 'pending', attempts: 0 });
  });
  test('of an endpoint ends its deliveries, and the next purge removes its history', async () => {
    const { id } = await world.endpoint();
    await world.launchOne();
    await world.db.tx('test', (tx) => world.rooms.webhooks.remove(tx, world.who.orgId, id));
    await world.launchOne();
    await world.carry();
    expect(world.outbound.requests).toHaveLength(0);
    await world.rooms.webhooks.purge(new AbortController().signal);
    expect(await world.deliveries(id)).toEqual([]);
  });
  test('of more deleted endpoints than one query reads is removed by one purge', async () => {
    for (let i = 0; i < 101; i += 1) {
      const { id } = await world.endpoint();
      await world.db.tx('test', (tx) => world.rooms.webhooks.remove(tx, world.who.orgId, id));
    }
    await world.rooms.webhooks.purge(new AbortController().signal);
    expect(await deletedEndpoints(world.db.read, 1)).toEqual([]);
  });
  test('of a delivery is remembered for 30 days', async () => {
    const { id } = await world.endpoint();
    await world.launchOne();
    await world.carry();
    const signal = new AbortController().signal;
    await world.clock.advance(30 * DAY - 1);
    await world.rooms.webhooks.purge(signal);
    const [delivery] = await world.deliveries(id);
    expect(delivery).toBeDefined();
    await world.clock.advance(1);
    await world.rooms.webhooks.purge(signal);
    expect(await world.deliveries(id)).toEqual([]);
    expect(await world.attempts(delivery?.id ?? '')).toEqual([]);
  });
});
