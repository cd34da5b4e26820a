// Webhook endpoints and deliveries over the API (specification 2.9, 4.7, 6, 8): what is shown, what is refused, and what is sent.
import { inspect } from 'node:util';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { sql } from '../../control-plane/base/db/db.ts';
import { WEBHOOK_ATTEMPTS_PER_DELIVERY_MAX, WEBHOOK_ENDPOINTS_PER_ORG_MAX } from '../../shared/limits.ts';
import { eventually } from '../kit/processes.ts';
import { scriptedOutbound, type ScriptedOutbound } from '../kit/scripted-outbound.ts';
import { verify } from '../kit/webhook-receiver.ts';
import { LAUNCH } from '../kit/world.ts';
import type { Answer } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';

const ENDPOINTS = '/v1/webhook-endpoints';
const BODY = { url: 'https://example.com/hook', event_types: ['instance.creating', 'instance.running'] };
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

let outbound: ScriptedOutbound;
openApiForEachTest(() => {
  outbound = scriptedOutbound();
  return { webhookOutbound: outbound };
});

const call = (method: 'GET' | 'POST' | 'PATCH' | 'DELETE', path: string, body?: unknown): Promise<Answer> =>
  api.call(method, `${ENDPOINTS}${path}`, { key: owner.key, ...(body === undefined ? {} : { body }) });
const create = (patch: object = {}): Promise<Answer> => call('POST', '', { ...BODY, ...patch });
const createId = async (patch: object = {}): Promise<string> => String((await create(patch)).json['id']);
async function launch(): Promise<void> {
  await api.world.machine();
  expect((await api.call('POST', '/v1/instances', { key: owner.key, body: LAUNCH })).status).toBe(202);
}
async function history(id: string): Promise<Record<string, unknown>[]> {
  return (await call('GET', `/${id}/deliveries`)).json.data ?? [];
}
/** Lets the courier work until the newest delivery is as expected. */
async function until(id: string, expected: Record<string, unknown>): Promise<Record<string, unknown>> {
  return eventually(`delivery ${JSON.stringify(expected)}`, 10_000, async () => {
    await api.world.rooms.webhooks.courier.run();
    const [newest = {}] = await history(id);
    return Object.entries(expected).every(([name, value]) => newest[name] === value) ? newest : undefined;
  });
}

describe('an endpoint', () => {
  // Specification 2.9: An endpoint has id, url, event_types, enabled and created_at.
  // Specification 2.9: secret has 64 hexadecimal characters and is returned only in the creation response.
  // Specification 4.7: POST /v1/webhook-endpoints answers 201 with the endpoint and its secret, shown once.
  // Specification 4.9: GET /v1/webhook-endpoints answers a page of endpoints without their secrets.
  // Specification 6.1: An endpoint subscribes to a subset through event_types at its creation.
  test('is made with 201 and a secret of 64 hexadecimal characters that is never shown again', async () => {
    const made = await create();
    expect(made.status).toBe(201);
    const { secret, ...shown } = made.json;
    expect(secret).toMatch(/^[0-9a-f]{64}$/);
    expect(shown).toEqual({
      id: expect.stringMatching(/^whe_/) as string,
      ...BODY,
      enabled: true,
      status: 'healthy',
      created_at: expect.any(String) as string,
    });
    const id = String(shown['id']);
    const later = [await call('GET', `/${id}`), await call('GET', ''), await call('PATCH', `/${id}`, {})];
    expect(later.map(({ status }) => status)).toEqual([200, 200, 200]);
    for (const { body } of later) expect(body).not.toContain(String(secret));
    expect(later[0]?.json).toEqual(shown);
    expect(later[1]?.json.data).toEqual([shown]);
  });
  // Specification 4.7: POST /v1/webhook-endpoints requires Idempotency-Key.
  test('needs an Idempotency-Key, and an equal request makes no second one', async () => {
    const without = await api.http.inject({
      method: 'POST',
      url: ENDPOINTS,
      headers: { authorization: `Bearer ${owner.key}`, 'content-type': 'application/json' },
      payload: JSON.stringify(BODY),
    });
    expect(without.status).toBe(400);
    const twice = { key: owner.key, body: BODY, headers: { 'idempotency-key': 'k' } };
    const [first, second] = [await api.call('POST', ENDPOINTS, twice), await api.call('POST', ENDPOINTS, twice)];
    expect(second.body).toBe(first.body);
    expect((await call('GET', '')).json.data).toHaveLength(1);
  });
  // Specification 2.9: url is an HTTPS target.
  // Specification 2.9: event_types is a subset of the four event types.
  // Specification 4.7: url is https, event_types a list of the four.
  // Specification 6.1: An endpoint cannot subscribe to anything else.
  // Specification 6.2: An endpoint is an HTTPS URL at a public address.
  test.each([
    [{ url: undefined }, 'url', ''],
    [{ url: 'http://example.com/' }, 'url', 'https'],
    [{ url: 'nonsense' }, 'url', 'https'],
    [{ url: `https://example.com/${'x'.repeat(2_029)}` }, 'url', '2048'],
    [{ url: 'https://user:secret@example.com/' }, 'url', 'user name'],
    [{ url: 'https://example.com:22/' }, 'url', 'port 443 or 8443'],
    [{ url: 'https://localhost/' }, 'url', 'localhost'],
    [{ url: 'https://127.0.0.1/' }, 'url', 'not a public address'],
    [{ url: 'https://2130706433/' }, 'url', 'not a public address'],
    [{ url: 'https://0x7f.1/' }, 'url', 'not a public address'],
    [{ url: 'https://169.254.169.254/latest/meta-data' }, 'url', 'not a public address'],
    [{ url: 'https://[::1]/' }, 'url', 'not a public address'],
    [{ url: 'https://[::ffff:10.0.0.1]/' }, 'url', 'not a public address'],
    [{ event_types: [] }, 'event_types', ''],
    [{ event_types: ['instance.running', 'instance.running'] }, 'event_types', 'twice'],
    [{ event_types: ['instance.recovered'] }, 'event_types[0]', ''],
    [{ event_types: 'instance.running' }, 'event_types', ''],
    [{ secret: 'mine' }, 'secret', ''],
  ])('is refused with the field and the rule: %j', async (patch, field, rule) => {
    const refused = await create(patch);
    expect(refused).toMatchObject({ status: 422, json: { code: 'validation_failed' } });
    expect(refused.json.errors).toMatchObject([{ field, rule: expect.stringContaining(rule) as string }]);
    expect((await call('GET', '')).json.data).toEqual([]);
  });
  test('may have a URL of 2048 characters', async () => {
    expect((await create({ url: `https://example.com/${'x'.repeat(2_028)}` })).status).toBe(201);
  });
  test('can be changed in part, under the same rules', async () => {
    const id = await createId();
    const changed = await call('PATCH', `/${id}`, { url: 'https://example.org/', event_types: ['instance.failed'] });
    expect(changed).toMatchObject({
      status: 200,
      json: { url: 'https://example.org/', event_types: ['instance.failed'] },
    });
    const refused = await call('PATCH', `/${id}`, { url: 'https://10.0.0.1/' });
    expect(refused).toMatchObject({ status: 422, json: { errors: [{ field: 'url' }] } });
    expect((await call('GET', `/${id}`)).json['url']).toBe('https://example.org/');
  });
  // Specification 4.7: DELETE /v1/webhook-endpoints/{id} removes the endpoint.
  // Specification 4.9: DELETE /v1/webhook-endpoints/{id} answers 204 without a body.
  test('is deleted with 204, and then 404', async () => {
    const id = await createId();
    expect(await call('DELETE', `/${id}`)).toMatchObject({ status: 204, body: '' });
    for (const again of [
      await call('DELETE', `/${id}`),
      await call('GET', `/${id}`),
      await call('GET', `/${id}/deliveries`),
    ]) {
      expect(again).toMatchObject({ status: 404, json: { code: 'not_found' } });
    }
    expect((await call('GET', '')).json.data).toEqual([]);
  });
  // Specification 4.7: What is removed gets no events.
  test('gets nothing more after its deletion, not even waiting deliveries', async () => {
    const [gone, kept] = [await createId(), await createId({ url: 'https://example.com/kept' })];
    await launch();
    await call('DELETE', `/${gone}`);
    await launch();
    await eventually('both deliveries', 10_000, async () => {
      await api.world.rooms.webhooks.courier.run();
      return (await history(kept)).every(({ status }) => status === 'succeeded') ? true : undefined;
    });
    expect(outbound.requests.map(({ url }) => url)).toEqual(Array(2).fill('https://example.com/kept'));
  });
  test(`is one of at most ${WEBHOOK_ENDPOINTS_PER_ORG_MAX}; a deleted one makes room`, async () => {
    const ids: string[] = [];
    for (let i = 0; i < WEBHOOK_ENDPOINTS_PER_ORG_MAX; i += 1) ids.push(await createId());
    const refused = await create();
    expect(refused).toMatchObject({
      status: 409,
      json: { code: 'conflict', detail: expect.stringContaining('50') as string },
    });
    await call('DELETE', `/${ids[0]}`);
    expect((await create()).status).toBe(201);
  });
  // Specification 4.7: GET /v1/webhook-endpoints lists the endpoints.
  test('is listed in pages, newest first', async () => {
    const ids: string[] = [];
    for (let i = 0; i < 5; i += 1) {
      ids.push(await createId());
      await api.world.clock.advance(1);
    }
    const first = await call('GET', '?limit=3');
    const second = await call('GET', `?limit=3&cursor=${encodeURIComponent(String(first.json.next_cursor))}`);
    const seen = [...(first.json.data ?? []), ...(second.json.data ?? [])].map(({ id }) => id);
    expect(seen).toEqual(ids.toReversed());
    expect(second.json.next_cursor).toBeNull();
  });
});

describe('secrets', () => {
  test('are stored only sealed', async () => {
    const made = await create();
    await call('POST', `/${String(made.json['id'])}/rotate-secret`);
    const rows = [
      ...(await api.world.db.read.all(z.unknown(), sql`select * from webhook_endpoints`)),
      ...(await api.world.db.read.all(z.unknown(), sql`select * from idempotency_keys`)),
    ];
    expect(rows).toHaveLength(3);
    const inspected = inspect(rows, { depth: null, maxStringLength: null });
    expect(inspected).not.toContain(String(made.json['secret']));
    expect(inspected).toContain('https://example.com/hook');
  });
  test('overlap after a rotation: the new one signs first, and the old one beside it for 24 hours', async () => {
    const made = await create();
    const [id, old] = [String(made.json['id']), String(made.json['secret'])];
    const rotated = await call('POST', `/${id}/rotate-secret`);
    expect(rotated.status).toBe(200);
    const secret = String(rotated.json['secret']);
    expect(secret).toMatch(/^[0-9a-f]{64}$/);
    expect(secret).not.toBe(old);
    const valid = async (): Promise<boolean[]> => {
      await launch();
      await until(id, { status: 'succeeded' });
      const { headers = {}, body = '' } = outbound.requests.at(-1) ?? {};
      const now = Math.floor(api.world.clock.now() / 1000);
      return [secret, old].map((each) => verify(each, { headers, body: Buffer.from(body) }, now) === 204);
    };
    expect(await valid()).toEqual([true, true]);
    await api.world.clock.advance(DAY - 1);
    expect((await call('GET', `/${id}`)).json['previous_secret_until']).toBeDefined();
    expect(await valid()).toEqual([true, true]);
    await api.world.clock.advance(1);
    expect((await call('GET', `/${id}`)).json['previous_secret_until']).toBeUndefined();
    expect(await valid()).toEqual([true, false]);
  });
  test('are at most two: a second rotation ends the oldest', async () => {
    const made = await create();
    const id = String(made.json['id']);
    await call('POST', `/${id}/rotate-secret`);
    await call('POST', `/${id}/rotate-secret`);
    await launch();
    await until(id, { status: 'succeeded' });
    const { headers = {}, body = '' } = outbound.requests.at(-1) ?? {};
    const now = Math.floor(api.world.clock.now() / 1000);
    expect(headers['svc-signature']?.split('v1=')).toHaveLength(3);
    expect(verify(String(made.json['secret']), { headers, body: Buffer.from(body) }, now)).toBe(400);
  });
});

describe('the delivery history', () => {
  // Specification 2.9: A delivery history shows success or failure, response status and an excerpt of the answer.
  // Specification 4.7: GET /v1/webhook-endpoints/{id}/deliveries is the delivery history.
  // Specification 6.4: The delivery history shows every attempt.
  test('shows each attempt with its answer, and the status of the delivery', async () => {
    const id = await createId();
    outbound.answer = async () => ({ status: 500, body: Buffer.from('out of order'), headers: {} });
    await launch();
    const failed = await until(id, { attempts: 1 });
    expect(failed).toMatchObject({
      endpoint_id: id,
      event_type: 'instance.creating',
      status: 'retrying',
      max_attempts: 5,
      completed_at: null,
      attempt_history: [
        {
          n: 1,
          trigger: 'schedule',
          response_status: 500,
          response_body_excerpt: 'out of order',
          truncated: false,
          error_code: 'http_status',
          remote_ip: '203.0.113.7',
        },
      ],
    });
    expect(failed['event_id']).toBe(outbound.requests[0]?.headers?.['svc-event-id']);
    outbound.answer = async () => ({ status: 204 });
    await api.world.clock.advance(MINUTE);
    const done = await until(id, { status: 'succeeded' });
    expect(done).toMatchObject({ attempts: 2, next_attempt_at: null, completed_at: expect.any(String) as string });
  });
  // Specification 4.7: The delivery history is a page, newest first.
  test('is a page, newest first', async () => {
    const id = await createId();
    for (let i = 0; i < 3; i += 1) {
      await launch();
      await api.world.clock.advance(1);
    }
    const first = await call('GET', `/${id}/deliveries?limit=2`);
    const second = await call('GET', `/${id}/deliveries?limit=2&cursor=${String(first.json.next_cursor)}`);
    const times = [...(first.json.data ?? []), ...(second.json.data ?? [])].map((row) => String(row['created_at']));
    expect(times).toHaveLength(3);
    expect(times).toEqual(times.toSorted().toReversed());
  });
});

describe('a retry by hand', () => {
  // Specification 3.4: A delivery that is dead is shown as dead_lettered.
  // Specification 6.4: A delivery can be retried by hand.
  test('is one more attempt of the same delivery with the same event id, also after it was given up', async () => {
    const id = await createId();
    outbound.answer = async () => ({ status: 500 });
    await launch();
    for (const wait of [0, 40_000, 6 * MINUTE, 35 * MINUTE, 3 * HOUR]) {
      await api.world.clock.advance(wait);
      await until(id, { attempts: outbound.requests.length + 1 });
    }
    const [dead] = await history(id);
    expect(dead).toMatchObject({ status: 'dead_lettered', attempts: 5 });
    const retry = `/${id}/deliveries/${String(dead?.['id'])}/retry`;
    expect(await call('POST', retry)).toMatchObject({ status: 202, json: { id: dead?.['id'], status: 'retrying' } });
    expect(await until(id, { attempts: 6 })).toMatchObject({ status: 'dead_lettered' });
    outbound.answer = async () => ({ status: 204 });
    await call('POST', retry);
    const done = await until(id, { status: 'succeeded' });
    expect((done['attempt_history'] as { trigger: string }[]).map(({ trigger }) => trigger)).toEqual([
      ...Array<string>(5).fill('schedule'),
      'manual',
      'manual',
    ]);
    expect(new Set(outbound.requests.map(({ headers }) => headers?.['svc-event-id'])).size).toBe(1);
    expect(await call('POST', retry)).toMatchObject({ status: 409, json: { code: 'conflict' } });
  });
  test('brings the next attempt of a waiting delivery forward, and its schedule goes on after it', async () => {
    const id = await createId();
    outbound.answer = async () => ({ status: 500 });
    await launch();
    const waiting = await until(id, { attempts: 1 });
    await call('POST', `/${id}/deliveries/${String(waiting['id'])}/retry`);
    expect(await until(id, { attempts: 2 })).toMatchObject({ status: 'retrying', max_attempts: 5 });
  });
  test(`is refused after ${WEBHOOK_ATTEMPTS_PER_DELIVERY_MAX} attempts`, async () => {
    const id = await createId();
    outbound.answer = async () => ({ status: 500, body: Buffer.from('a\u0000\u0001\u0085b\t\r\n') });
    await launch();
    const [delivery] = await history(id);
    const retry = `/${id}/deliveries/${String(delivery?.['id'])}/retry`;
    for (let attempts = 1; attempts <= WEBHOOK_ATTEMPTS_PER_DELIVERY_MAX; attempts += 1) {
      expect((await call('POST', retry)).status).toBe(202);
      await until(id, { attempts });
    }
    expect(await call('POST', retry)).toMatchObject({ status: 409, json: { code: 'conflict' } });
    // A list shows the last attempts only. Control characters would make an answer many times as long.
    const excerpt = { response_body_excerpt: 'a\ufffd\ufffd\ufffdb\t\r\n' };
    const [listed] = await history(id);
    expect(listed?.['attempt_history']).toMatchObject(
      Array.from({ length: 10 }, (_, i) => ({ n: 41 + i, ...excerpt })),
    );
    const { json } = await call('GET', `/${id}/deliveries/${String(delivery?.['id'])}`);
    expect(json['attempt_history']).toHaveLength(WEBHOOK_ATTEMPTS_PER_DELIVERY_MAX);
  });
  test('does not move a delivery that is overdue behind others', async () => {
    const id = await createId();
    await call('PATCH', `/${id}`, { enabled: false });
    await launch();
    const [before] = await history(id);
    await api.world.clock.advance(HOUR);
    const retried = await call('POST', `/${id}/deliveries/${String(before?.['id'])}/retry`);
    expect(retried).toMatchObject({ status: 202, json: { next_attempt_at: before?.['next_attempt_at'] } });
  });
  test('finds only deliveries of this endpoint', async () => {
    const [id, other] = [await createId(), await createId()];
    await launch();
    const [delivery] = await history(other);
    expect((await call('POST', `/${id}/deliveries/${String(delivery?.['id'])}/retry`)).status).toBe(404);
  });
});

describe('an endpoint that is not enabled', () => {
  // Specification 2.9: enabled tells whether events are sent.
  test('gets nothing; waiting deliveries are sent once it is enabled again', async () => {
    const id = await createId();
    expect((await call('PATCH', `/${id}`, { enabled: false })).json).toMatchObject({
      enabled: false,
      status: 'disabled',
    });
    await launch();
    await api.world.rooms.webhooks.courier.run();
    expect(await history(id)).toMatchObject([{ status: 'pending' }]);
    expect((await call('PATCH', `/${id}`, { enabled: true })).json).toMatchObject({ enabled: true, status: 'healthy' });
    await until(id, { status: 'succeeded' });
  });
  test('is not enabled by a new URL alone', async () => {
    const id = await createId();
    await call('PATCH', `/${id}`, { enabled: false });
    expect((await call('PATCH', `/${id}`, { url: 'https://example.org/' })).json['enabled']).toBe(false);
  });
  test('gets everything again that was given up since replay_since', async () => {
    const id = await createId();
    await call('PATCH', `/${id}`, { enabled: false });
    await launch();
    await api.world.clock.advance(HOUR);
    const since = new Date(api.world.clock.now()).toISOString();
    await launch();
    await api.world.clock.advance(2 * DAY);
    await api.world.rooms.webhooks.courier.run();
    expect((await history(id)).map((row) => row['status'])).toEqual(['dead_lettered', 'dead_lettered']);
    await call('PATCH', `/${id}`, { enabled: true, replay_since: since });
    await until(id, { status: 'succeeded' });
    expect((await history(id)).map((row) => row['status'])).toEqual(['succeeded', 'dead_lettered']);
    expect(await call('PATCH', `/${id}`, { replay_since: 'yesterday' })).toMatchObject({
      status: 422,
      json: { errors: [{ field: 'replay_since' }] },
    });
  });
});
