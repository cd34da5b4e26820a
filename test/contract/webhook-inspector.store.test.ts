// What owners see of one delivery, and the test events that they send (specification 6.4).
import { beforeEach, describe, expect, test } from 'vitest';
import { WEBHOOK_TESTS_PER_HOUR_MAX } from '../../shared/limits.ts';
import { WebhookEvent } from '../../shared/api/webhook.ts';
import { countDeliveries } from '../../control-plane/rental/webhooks/delivery-store.ts';
import { eventually } from '../kit/processes.ts';
import { scriptedOutbound, type ScriptedOutbound } from '../kit/scripted-outbound.ts';
import { verify } from '../kit/webhook-receiver.ts';
import type { Answer } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';

const HOUR_MS = 3_600_000;
let outbound: ScriptedOutbound;
let endpoint: { id: string; secret: string };
openApiForEachTest(() => {
  outbound = scriptedOutbound();
  return { webhookOutbound: outbound };
});

const call = (method: 'GET' | 'POST' | 'PATCH' | 'DELETE', path: string, body?: unknown): Promise<Answer> =>
  api.call(method, `/v1/webhook-endpoints${path}`, { key: owner.key, ...(body === undefined ? {} : { body }) });
const sendTest = (body: object = {}): Promise<Answer> => call('POST', `/${endpoint.id}/test`, body);
/** Lets the courier work until the delivery has had the given number of attempts. */
const tried = (id: string, attempts: number): Promise<Record<string, unknown>> =>
  eventually(`${attempts} attempts`, 10_000, async () => {
    await api.world.rooms.webhooks.courier.run();
    const { json } = await call('GET', `/${endpoint.id}/deliveries/${id}`);
    return json['attempts'] === attempts ? json : undefined;
  });

async function newEndpoint(): Promise<{ id: string; secret: string }> {
  const types = ['instance.running', 'instance.failed'];
  const { json } = await call('POST', '', { url: 'https://example.com/hook', event_types: types });
  return { id: String(json['id']), secret: String(json['secret']) };
}

beforeEach(async () => {
  endpoint = await newEndpoint();
});

describe('one delivery', () => {
  test('has its body as it was sent, and of each attempt the request and the answer, without a signature', async () => {
    outbound.answer = async () => ({ status: 500, body: Buffer.from('no such table') });
    const { json: made } = await sendTest();
    const detail = await tried(String(made['id']), 1);
    const [sent] = outbound.requests;
    expect(detail).toMatchObject({
      id: made['id'],
      event_id: made['event_id'],
      status: 'dead_lettered',
      attempts: 1,
      completed_at: expect.any(String) as string,
      body: sent?.body,
    });
    const [attempt] = detail['attempt_history'] as Record<string, unknown>[];
    const seconds = /^t=(\d+),/.exec(sent?.headers?.['svc-signature'] ?? '')?.[1];
    expect(attempt).toMatchObject({
      n: 1,
      trigger: 'manual',
      response_status: 500,
      response_body_excerpt: 'no such table',
      error_code: 'http_status',
      request_url: 'https://example.com/hook',
      request_headers: { ...sent?.headers, 'svc-signature': `t=${seconds},v1=[hidden]` },
    });
    expect(JSON.stringify(detail)).not.toMatch(/v1=[0-9a-f]/);
  });

  test('names the address of each attempt, also after the endpoint has got another one', async () => {
    outbound.answer = async () => ({ status: 500 });
    const id = String((await sendTest()).json['id']);
    await tried(id, 1);
    await call('PATCH', `/${endpoint.id}`, { url: 'https://example.org/new' });
    await call('POST', `/${endpoint.id}/deliveries/${id}/retry`);
    const { attempt_history: attempts } = await tried(id, 2);
    expect(attempts).toMatchObject([
      { request_url: 'https://example.com/hook' },
      { request_url: 'https://example.org/new' },
    ]);
  });

  test('belongs to its endpoint', async () => {
    const id = String((await sendTest()).json['id']);
    const { json: other } = await call('POST', '', { url: 'https://example.com/b', event_types: ['instance.failed'] });
    expect((await call('GET', `/${String(other['id'])}/deliveries/${id}`)).status).toBe(404);
    expect((await call('GET', `/${endpoint.id}/deliveries/dlv_none`)).status).toBe(404);
  });
});

describe('a test event', () => {
  test('is an event of the documented form, signed as any other, and says that it is a test', async () => {
    const { status, json: made } = await sendTest();
    expect(status).toBe(202);
    expect(made).toMatchObject({ event_type: 'instance.running', is_test: true, status: 'pending', max_attempts: 1 });
    await tried(String(made['id']), 1);
    const [sent] = outbound.requests;
    const body = Buffer.from(String(sent?.body));
    const nowSeconds = Math.floor(api.world.clock.now() / 1000);
    expect(verify(endpoint.secret, { headers: sent?.headers ?? {}, body }, nowSeconds)).toBe(204);
    expect(WebhookEvent.parse(JSON.parse(body.toString()))).toMatchObject({ test: true, type: 'instance.running' });
  });

  test.each([
    ['instance.running', 'running'],
    ['instance.failed', 'error'],
  ])('of the type %s has an instance in the status %s', async (event_type, status) => {
    const { json: made } = await sendTest({ event_type });
    const { body } = await tried(String(made['id']), 1);
    expect(JSON.parse(String(body))).toMatchObject({ type: event_type, data: { instance: { status } } });
  });

  test('is tried once: a failure is not repeated, is no dead letter for the operator, and is not replayed', async () => {
    outbound.answer = async () => ({ status: 503 });
    const id = String((await sendTest()).json['id']);
    expect(await tried(id, 1)).toMatchObject({ status: 'dead_lettered', next_attempt_at: null });
    const nowMs = api.world.clock.now();
    expect(await countDeliveries(api.world.db.read, nowMs, nowMs - HOUR_MS)).toMatchObject({ dead: 0 });
    await call('PATCH', `/${endpoint.id}`, { replay_since: '2020-01-01T00:00:00Z' });
    expect((await call('GET', `/${endpoint.id}/deliveries/${id}`)).json['status']).toBe('dead_lettered');
  });

  test('reaches a degraded endpoint at once, and its success ends that', async () => {
    outbound.answer = async () => ({ status: 410 });
    await tried(String((await sendTest()).json['id']), 1);
    expect((await call('GET', `/${endpoint.id}`)).json['status']).toBe('degraded');
    outbound.answer = async () => ({ status: 204 });
    expect(await tried(String((await sendTest()).json['id']), 1)).toMatchObject({ status: 'succeeded' });
    expect((await call('GET', `/${endpoint.id}`)).json['status']).toBe('healthy');
  });

  test('is refused of a type that the endpoint does not receive, and for a disabled endpoint', async () => {
    const { status, json } = await sendTest({ event_type: 'instance.creating' });
    const rule = 'must be one that the endpoint receives: instance.running, instance.failed';
    expect([status, json.errors]).toEqual([422, [{ field: 'event_type', rule }]]);
    await call('PATCH', `/${endpoint.id}`, { enabled: false });
    expect(await sendTest()).toMatchObject({ status: 409, json: { code: 'conflict' } });
  });

  test(`is sent ${WEBHOOK_TESTS_PER_HOUR_MAX} times in an hour for an organisation, also to new endpoints, and no more`, async () => {
    const sendTo = (id: string): Promise<Answer> => call('POST', `/${id}/test`, {});
    for (let n = 0; n < WEBHOOK_TESTS_PER_HOUR_MAX; n += 1) {
      const { id } = await newEndpoint();
      expect((await sendTo(id)).status).toBe(202);
      await call('DELETE', `/${id}`);
    }
    expect(await sendTest()).toMatchObject({ status: 429, json: { code: 'rate_limit_exceeded' } });
    await api.world.clock.advance(HOUR_MS - 1);
    expect((await sendTest()).status).toBe(429);
    await api.world.clock.advance(1);
    expect((await sendTest()).status).toBe(202);
  });
});
