// Events become deliveries in their own transaction, and deliveries are carried: in order, again after failures, never lost.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Db } from '../../../../control-plane/base/db/db.ts';
import { WebhookEvent } from '../../../../shared/api/webhook.ts';
import { OutboundError } from '../../../../control-plane/base/outbound/policy.ts';
import type { OutboundRequest } from '../../../../control-plane/base/outbound/outbound.ts';
import { type Courier, openCourier } from '../../../../control-plane/rental/webhooks/courier.ts';
import { createLog } from '../../../../shared/log.ts';
import { seededRng } from '../../../../shared/rng.ts';
import { verify } from '../../../kit/webhook-receiver.ts';
import { eventually } from '../../../kit/processes.ts';
import { openWebhookWorld, type WebhookWorld } from './fixture.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

let world: WebhookWorld;
beforeEach(async () => {
  world = await openWebhookWorld();
});
afterEach(() => world.close());

const eventOf = (request: OutboundRequest): WebhookEvent => WebhookEvent.parse(JSON.parse(String(request.body)));
const sent = (): string[] => world.outbound.requests.map((request) => eventOf(request).type);
const ids = (): (string | undefined)[] => world.outbound.requests.map(({ headers }) => headers?.['svc-event-id']);
const fails = async (): Promise<never> => {
  throw new OutboundError('connect', 'no connection to example.com port 443: ECONNREFUSED');
};

async function live(): Promise<string> {
  await world.machine();
  return world.run(world.who);
}

describe('the outbox', () => {
  // Specification 6.1: Four lifecycle events are sent and no others.
  test('holds the four public events and no others', async () => {
    const { id: endpointId } = await world.endpoint();
    const instanceId = await live();
    await world.end(world.who, instanceId);
    const journal = await world.rooms.events.ofSubject(world.db.read, instanceId, { count: 100 });
    expect(journal.map(({ type }) => type)).toContain('instance.starting');
    const types = (await world.deliveries(endpointId)).map((row) => row.event_type);
    expect(types).toEqual(['instance.creating', 'instance.running', 'instance.terminated']);
    const failed = await world.launchOne();
    for (let tries = 0; tries < 5; tries += 1) {
      await world.clock.advance(20 * MINUTE);
      await world.drive();
    }
    const last = (await world.deliveries(endpointId)).filter((row) => row.instance_id === failed);
    expect(last.map((row) => row.event_type)).toEqual(['instance.creating', 'instance.failed']);
  });
  // Specification 6.1: An endpoint gets the types that it subscribed to.
  test('has a row for each endpoint that subscribes to the type, and none for another organisation', async () => {
    const [all, some] = [await world.endpoint(), await world.endpoint(['instance.running'])];
    const stranger = await world.db.tx('test', (tx) =>
      world.rooms.webhooks.create(tx, 'org_other', { url: 'https://example.com', event_types: ['instance.creating'] }),
    );
    await world.launchOne();
    const counts = [all, some, stranger].map(async ({ id }) => (await world.deliveries(id)).length);
    expect(await Promise.all(counts)).toEqual([1, 0, 0]);
  });
  test('is written with the event or not at all', async () => {
    const { id } = await world.endpoint();
    const event = {
      type: 'instance.creating',
      subjectId: await world.launchOne(),
      orgId: world.who.orgId,
      data: {},
    } as const;
    const before = (await world.deliveries(id)).length;
    const broken = world.db.tx('test', async (tx) => {
      await world.rooms.events.append(tx, event);
      throw new Error('rolled back');
    });
    await expect(broken).rejects.toThrow('rolled back');
    expect(await world.deliveries(id)).toHaveLength(before);
  });
  // Specification 6.1: instance.creating: the operation is accepted and placement in flight.
  // Specification 6.2: Body: id, type, created_at and data.instance, as it was at the event.
  test('freezes the body: a later attempt sends the instance as it was then', async () => {
    await world.endpoint();
    const id = await live();
    await world.db.tx('test', (tx) => world.rooms.instances.rename(tx, world.who.orgId, id, 'renamed'));
    await world.end(world.who, id);
    await world.carry();
    const instances = world.outbound.requests.map((request) => eventOf(request).data.instance);
    expect(instances.map(({ status, name }) => [status, name])).toEqual([
      ['allocating', null],
      ['running', null],
      ['terminated', 'renamed'],
    ]);
    expect(instances[1]).toMatchObject({
      id,
      gpu_type: 'H100_SXM',
      region: 'eu-west',
      tier: 'on_demand',
      terminated_at: null,
    });
    expect(instances[1]?.ready_at).not.toBeNull();
  });
  test('raises the version with every event of an instance', async () => {
    await world.endpoint();
    await world.end(world.who, await live());
    await world.carry();
    const versions = world.outbound.requests.map((request) => eventOf(request).data.instance.version);
    expect(versions.toSorted((a, b) => a - b)).toEqual(versions);
    expect(new Set(versions).size).toBe(3);
  });
});

describe('an attempt', () => {
  // Specification 6.2: One POST of one JSON event with Svc-Signature, Svc-Event-Id and Content-Type.
  test('carries the event, its id and a signature that the specification verifies, within its time limits', async () => {
    const { secret, id } = await world.endpoint();
    await world.launchOne();
    await world.carry();
    const [request] = world.outbound.requests;
    if (request === undefined) throw new Error('nothing was sent');
    expect(request).toMatchObject({
      method: 'POST',
      url: 'https://example.com/hook',
      statusMs: 10_000,
      totalMs: 30_000,
      bodyBytesMax: 1024,
    });
    const now = Math.floor(world.clock.now() / 1000);
    expect(verify(secret, { headers: request.headers ?? {}, body: Buffer.from(String(request.body)) }, now)).toBe(204);
    const [delivery] = await world.deliveries(id);
    expect(delivery).toMatchObject({
      status: 'succeeded',
      attempts: 1,
      next_attempt_ms: null,
      completed_ms: world.clock.now(),
    });
  });
  // Specification 3.4: After the final failed attempt a webhook delivery is dead_lettered and no longer retried.
  // Specification 6.2: Svc-Event-Id is stable over retries.
  // Specification 6.4: After the final failure the delivery is dead_lettered and retrying stops.
  test('is repeated with the same id and body, and a fresh time, after 30 s, 5 min, 30 min and 2 h', async () => {
    const { id, secret } = await world.endpoint();
    world.outbound.answer = async () => ({ status: 500 });
    await world.launchOne();
    const startMs = world.clock.now();
    for (const waitMs of [0, 30 * SECOND, 5 * MINUTE, 30 * MINUTE, 2 * HOUR]) {
      const before = world.outbound.requests.length;
      await world.clock.advance(Math.max(0, waitMs - 1));
      await world.carry();
      expect(world.outbound.requests.length - before).toBe(waitMs === 0 ? 1 : 0);
      await world.clock.advance(1 + waitMs / 10);
      await world.carry();
    }
    expect(new Set(ids()).size).toBe(1);
    expect(new Set(world.outbound.requests.map(({ body }) => body)).size).toBe(1);
    expect(new Set(world.outbound.requests.map(({ headers }) => headers?.['svc-signature'])).size).toBe(5);
    for (const { headers = {}, body } of world.outbound.requests.slice(-1)) {
      const now = Math.floor(world.clock.now() / 1000);
      expect(verify(secret, { headers, body: Buffer.from(String(body)) }, now)).toBe(204);
    }
    const [delivery] = await world.deliveries(id);
    expect(delivery).toMatchObject({ status: 'dead_lettered', attempts: 5, next_attempt_ms: null });
    expect((await world.attempts(delivery?.id ?? '')).map((row) => row.n)).toEqual([1, 2, 3, 4, 5]);
    await world.clock.advance(DAY);
    await world.carry();
    expect(world.outbound.requests).toHaveLength(5);
    expect(world.clock.now() - startMs).toBeGreaterThan(2 * HOUR);
  });
  // Specification 6.2: Any 2xx status is a success; any other status and a timeout trigger a retry.
  test('fails by any answer but 2xx, redirects and timeouts too, and its record says why', async () => {
    const { id } = await world.endpoint();
    const answers = [
      { status: 204, body: Buffer.alloc(0), truncated: false },
      { status: 299, body: Buffer.from('a\u0000b'), truncated: true },
      { status: 302, body: Buffer.from('see there'), truncated: false },
      { status: 404, body: Buffer.from('ä'), truncated: false },
    ];
    for (const answer of answers) {
      world.outbound.answer = async () => answer;
      await world.launchOne();
      await world.carry();
      await world.clock.advance(1);
    }
    const remoteAddress = '203.0.113.7';
    for (const failure of [
      new OutboundError('connect', 'no answer'),
      new OutboundError('timeout', 'no answer'),
      // The body does not end in time, or breaks off.
      new OutboundError('timeout', 'no whole answer', { status: 200 }),
      new OutboundError('protocol', 'no whole answer', { status: 200, remoteAddress }),
      new OutboundError('protocol', 'no whole answer', { status: 500, remoteAddress }),
    ]) {
      world.outbound.answer = async () => {
        throw failure;
      };
      await world.launchOne();
      await world.carry();
      await world.clock.advance(1);
    }
    const rows = await world.deliveries(id);
    const [done, again] = ['succeeded', 'retrying'];
    expect(rows.map((row) => row.status)).toEqual([done, done, again, again, again, again, again, done, again]);
    const records = (await Promise.all(rows.map((row) => world.attempts(row.id)))).flat();
    expect(
      records.map((row) => [row.response_status, row.response_body_excerpt, row.truncated, row.error_code]),
    ).toEqual([
      [204, '', false, null],
      [299, 'a\ufffdb', true, null],
      [302, 'see there', false, 'http_status'],
      [404, 'ä', false, 'http_status'],
      [null, null, false, 'connect'],
      [null, null, false, 'timeout'],
      [null, null, false, 'timeout'],
      [200, '', true, null],
      [500, '', true, 'http_status'],
    ]);
    const [ip, none] = [remoteAddress, null];
    expect(records.map((row) => row.remote_ip)).toEqual([ip, ip, ip, ip, none, none, none, ip, ip]);
  });
  test.each([
    ['seconds', 429, () => '120', 2 * MINUTE],
    ['a date', 503, () => new Date(world.clock.now() + 2 * MINUTE).toUTCString(), 2 * MINUTE],
    ['more than the next step of the schedule', 503, () => '86400', 5 * MINUTE],
    ['nonsense', 503, () => 'soon', 30 * SECOND],
    ['another status', 500, () => '3600', 30 * SECOND],
  ])('honours Retry-After with 429 and 503: %s', async (_what, status, value, expectedMs) => {
    const { id } = await world.endpoint();
    world.outbound.answer = async () => ({ status, headers: { 'retry-after': value() } });
    await world.launchOne();
    await world.carry();
    const waitMs = ((await world.deliveries(id))[0]?.next_attempt_ms ?? 0) - world.clock.now();
    expect(waitMs).toBeGreaterThanOrEqual(expectedMs - SECOND);
    expect(waitMs).toBeLessThanOrEqual(expectedMs * 1.1);
  });
  test('is repeated with the same id if its record was lost', async () => {
    await world.endpoint();
    await world.launchOne();
    // The process dies between the attempt and its record: nothing of it is in the database.
    const lost = Promise.withResolvers<never>();
    lost.promise.catch(() => undefined);
    world.outbound.answer = () => lost.promise;
    await world.rooms.webhooks.courier.run();
    await eventually('attempt', 5_000, async () => (world.outbound.requests.length === 1 ? true : undefined));
    const next = openNextProcess(world);
    await eventually('second attempt', 5_000, async () => {
      await next.run();
      return world.outbound.requests.length === 2 ? true : undefined;
    });
    expect(new Set(ids()).size).toBe(1);
    lost.reject(new OutboundError('connect', 'cut'));
    await next.stop();
  });
  test('is repeated if it cannot be recorded, but not in a hot loop', async () => {
    const { id } = await world.endpoint();
    await world.launchOne();
    let broken = true;
    const tx: Db['tx'] = (name, body) => {
      if (broken && name === 'webhooks.record') return Promise.reject(new Error('the disk is full'));
      return world.db.tx(name, body);
    };
    const courier = openNextProcess({ ...world, db: { ...world.db, tx } });
    await courier.run();
    await eventually('attempt', 5_000, async () => (world.outbound.requests.length === 1 ? true : undefined));
    await world.clock.advance(30 * SECOND - 1);
    await courier.run();
    await courier.run();
    expect(world.outbound.requests).toHaveLength(1);
    broken = false;
    await world.clock.advance(1);
    await eventually('success', 5_000, async () => {
      await courier.run();
      return (await world.deliveries(id))[0]?.status === 'succeeded' ? true : undefined;
    });
    expect(world.outbound.requests).toHaveLength(2);
    expect((await world.deliveries(id))[0]?.attempts).toBe(1);
    await courier.stop();
  });
  test('changes nothing if it ends after another process has recorded one', async () => {
    const { id } = await world.endpoint();
    await world.launchOne();
    const slow = Promise.withResolvers<{ status: number }>();
    world.outbound.answer = () => slow.promise;
    await world.rooms.webhooks.courier.run();
    await eventually('attempt', 5_000, async () => (world.outbound.requests.length === 1 ? true : undefined));
    world.outbound.answer = async () => ({ status: 204 });
    const next = openNextProcess(world);
    await eventually('success', 5_000, async () => {
      await next.run();
      return (await world.deliveries(id))[0]?.status === 'succeeded' ? true : undefined;
    });
    slow.resolve({ status: 500 });
    await world.carry();
    const [delivery] = await world.deliveries(id);
    expect([delivery?.status, delivery?.attempts, (await world.attempts(delivery?.id ?? '')).length]).toEqual([
      'succeeded',
      1,
      1,
    ]);
    await next.stop();
  });
});

/** The courier of a process that starts on the same rows. */
function openNextProcess({ db, clock, outbound }: WebhookWorld): Courier {
  const secrets = { make: () => '', seal: () => '', inUse: () => ['0'.repeat(64)] };
  return openCourier({
    maxAttempts: 5,
    db,
    clock,
    outbound,
    secrets,
    rng: seededRng(9),
    log: createLog('test', 'silent'),
  });
}

describe('order and fairness', () => {
  test('one event of an instance waits for the one before, other instances do not', async () => {
    await world.endpoint();
    const first = Promise.withResolvers<{ status: number }>();
    const id = await live();
    world.outbound.answer = (request) =>
      eventOf(request).data.instance.id === id && eventOf(request).type === 'instance.creating'
        ? first.promise
        : Promise.resolve({ status: 204 });
    await world.launchOne();
    await world.rooms.webhooks.courier.run();
    await eventually('two attempts', 5_000, async () => (sent().length === 2 ? true : undefined));
    await world.rooms.webhooks.courier.run();
    expect(sent()).toEqual(['instance.creating', 'instance.creating']);
    first.resolve({ status: 204 });
    await world.carry();
    expect(sent()).toEqual(['instance.creating', 'instance.creating', 'instance.running']);
  });
  test('an event that failed does not hold up the next one of its instance', async () => {
    await world.endpoint();
    world.outbound.answer = async (request) => ({ status: eventOf(request).type === 'instance.creating' ? 500 : 204 });
    await live();
    await world.carry();
    expect(sent()).toEqual(['instance.creating', 'instance.running']);
  });
  test('an endpoint that hangs holds up nobody else, and has four attempts under way at most', async () => {
    const [hanging, fast] = [await world.endpoint(undefined, 'hangs'), await world.endpoint(undefined, 'fast')];
    const never = Promise.withResolvers<{ status: number }>();
    world.outbound.answer = ({ url }) => (url.endsWith('hangs') ? never.promise : Promise.resolve({ status: 204 }));
    for (let i = 0; i < 6; i += 1) await world.launchOne();
    await eventually('six fast deliveries', 5_000, async () => {
      await world.rooms.webhooks.courier.run();
      const done = (await world.deliveries(fast.id)).filter((row) => row.status === 'succeeded');
      return done.length === 6 ? true : undefined;
    });
    expect(world.outbound.requests.filter(({ url }) => url.endsWith('hangs'))).toHaveLength(4);
    never.resolve({ status: 204 });
    await world.carry();
    expect((await world.deliveries(hanging.id)).map((row) => row.status)).toEqual(Array<string>(6).fill('succeeded'));
  });
  test('after a failure an endpoint gets one delivery at a time until one succeeds', async () => {
    await world.endpoint();
    world.outbound.answer = fails;
    await world.launchOne();
    await world.carry();
    const never = Promise.withResolvers<{ status: number }>();
    world.outbound.answer = () => never.promise;
    for (let i = 0; i < 3; i += 1) await world.launchOne();
    await world.rooms.webhooks.courier.run();
    await eventually('attempt', 5_000, async () => (world.outbound.requests.length > 1 ? true : undefined));
    await world.rooms.webhooks.courier.run();
    expect(world.outbound.requests).toHaveLength(2);
    never.resolve({ status: 204 });
    await world.carry();
    expect(world.outbound.requests).toHaveLength(4);
  });
});
