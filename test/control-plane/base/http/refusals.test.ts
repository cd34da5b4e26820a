// Refusals on inference paths: each is the envelope, with the code, field and headers that official clients use.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { type Route, route, type WireReply } from '../../../../control-plane/base/http/route.ts';
import { InferenceError } from '../../../../shared/api/inference.ts';
import { fail } from '../../../../shared/errors.ts';
import { as, type Bench, openBench } from './fixture.ts';

const BODY_BYTES_MAX = 512 * 1024;
const PATH = '/v1/chat/planted';

const planted = (): Route[] => [
  route({
    method: 'POST',
    path: PATH,
    operationId: 'plant',
    tag: 'things',
    summary: 'A planted route',
    scope: 'instances:write',
    idempotency: 'none',
    bodyBytesMax: BODY_BYTES_MAX,
    body: z.strictObject({
      refuse: z.enum(['insufficient_balance', 'bug']).optional(),
      parts: z.array(z.strictObject({ size: z.int().min(1) })).optional(),
      text: z.string().optional(),
    }),
    responses: { 200: { description: 'Done' } },
    errors: ['insufficient_balance'],
    handler: async ({ body }) => {
      if (body.refuse === 'bug') throw new Error('a planted bug');
      if (body.refuse !== undefined) fail(body.refuse, 'Add funds.');
      return { status: 200, body: {} };
    },
  }),
];

let bench: Bench;
const rateLimits = {
  perKeyPerSecond: 1,
  perIpPerSecond: 1000,
  burst: 20,
  inference: { perKeyPerSecond: 1, burst: 1, perOrgPerSecond: 1, orgBurst: 1 },
};
const options = { routes: planted, http: { rateLimits } };
beforeEach(async () => {
  bench = await openBench(options);
});
afterEach(() => bench.close());

const json = { 'content-type': 'application/json' };
const post = (payload: object | string, headers: Record<string, string> = as('all', json)): Promise<WireReply> =>
  bench.http.inject({ method: 'POST', url: PATH, headers, payload });

function errorOf(reply: WireReply): InferenceError['error'] {
  expect(reply.headers['content-type']).toBe('application/json; charset=utf-8');
  return InferenceError.parse(JSON.parse(reply.body)).error;
}

describe('the envelope', () => {
  // Specification 7.3: A missing or invalid key is 401.
  test('401 invalid_api_key without a key, as Bearer', async () => {
    const reply = await post({}, json);
    expect(reply.status).toBe(401);
    expect(reply.headers['www-authenticate']).toBe('Bearer');
    expect(errorOf(reply)).toMatchObject({ type: 'invalid_request_error', code: 'invalid_api_key', param: null });
  });

  // Specification 7.3: A key that lacks the scope is 403.
  test('403 insufficient_scope names the scope', async () => {
    const reply = await post({}, as('reader', json));
    expect(reply.status).toBe(403);
    expect(errorOf(reply)).toMatchObject({ type: 'permission_error', code: 'insufficient_scope' });
    expect(errorOf(reply).message).toContain('"instances: write"');
  });

  // Specification 7.3: insufficient balance is 402.
  test('402 insufficient_balance tells clients not to retry', async () => {
    const reply = await post({ refuse: 'insufficient_balance' });
    expect(reply.status).toBe(402);
    expect(reply.headers['x-should-retry']).toBe('false');
    expect(errorOf(reply)).toMatchObject({
      type: 'insufficient_quota',
      code: 'insufficient_balance',
      message: 'Add funds.',
    });
  });

  test('400 malformed_json', async () => {
    const reply = await post('{"a":');
    expect(reply.status).toBe(400);
    expect(errorOf(reply)).toMatchObject({ type: 'invalid_request_error', code: 'malformed_json' });
  });

  test('415 for a body that is not JSON', async () => {
    const reply = await post('a=b', as('all', { 'content-type': 'text/plain' }));
    expect(reply.status).toBe(415);
    expect(errorOf(reply)).toMatchObject({ code: 'unsupported_media_type' });
  });

  // Specification 7.3: request_too_large.
  test('413 request_too_large above the limit of the route, which it names; a body at the limit is read', async () => {
    const around = '{"text":""}'.length;
    expect((await post(`{"text":"${'x'.repeat(BODY_BYTES_MAX - around)}"}`)).status).toBe(200);
    const reply = await post(`{"text":"${'x'.repeat(BODY_BYTES_MAX - around + 1)}"}`);
    expect(reply.status).toBe(413);
    expect(errorOf(reply)).toMatchObject({ type: 'invalid_request_error', code: 'request_too_large' });
    expect(errorOf(reply).message).toContain(String(BODY_BYTES_MAX));
  });

  // Specification 7.3: unsupported_parameter is 400 invalid_request_error; param names the parameter, the message the version.
  test.each([
    [{ tools: [] }, 'tools'],
    [{ parts: [{ size: 1 }, { size: 1, name: 'x' }] }, 'parts[1].name'],
    [{ parts: [{ size: 0 }], seed: 1 }, 'seed'],
  ])('400 unsupported_parameter names the unknown member first: %j', async (body, param) => {
    const reply = await post(body);
    expect(reply.status).toBe(400);
    expect(errorOf(reply)).toMatchObject({ type: 'invalid_request_error', code: 'unsupported_parameter', param });
    expect(errorOf(reply).message).toBe(`${param} is not supported in v1.1 of the inference API. Leave it out.`);
  });

  // Specification 7.3: A request that fails validation is 422.
  test('422 validation_failed names the member by its path', async () => {
    const reply = await post({ parts: [{ size: 1 }, { size: 0 }] });
    expect(reply.status).toBe(422);
    expect(errorOf(reply)).toEqual({
      type: 'invalid_request_error',
      code: 'validation_failed',
      param: 'parts[1].size',
      message: 'parts[1].size must be at least 1.',
    });
  });

  // Specification 7.3: rate_limit_exceeded in the envelope.
  test('429 rate_limit_exceeded with Retry-After', async () => {
    const replies = await Promise.all(Array.from({ length: 21 }, () => post({})));
    const refused = replies.filter(({ status }) => status === 429);
    expect(refused).toHaveLength(1);
    for (const reply of refused) {
      expect(reply.headers['retry-after']).toBe('1');
      expect(errorOf(reply)).toMatchObject({ type: 'rate_limit_error', code: 'rate_limit_exceeded' });
    }
  });

  // Specification 7.3: An internal error is 500.
  test('500 internal_error quotes the request id and nothing of the bug', async () => {
    const reply = await post({ refuse: 'bug' });
    expect(reply.status).toBe(500);
    expect(errorOf(reply)).toMatchObject({ type: 'server_error', code: 'internal_error' });
    expect(errorOf(reply).message).toContain(`The request_id is ${reply.headers['x-request-id']}.`);
    expect(reply.body).not.toContain('planted bug');
  });
});

test('a body is refused if the route takes none, and an empty object is accepted', async () => {
  const things = await openBench();
  const ask = (payload: object) =>
    things.http.inject({ method: 'POST', url: '/v1/chat/thing', headers: as('all'), payload });
  const refused = await ask({ x: 1 });
  expect(refused.status).toBe(422);
  expect(JSON.parse(refused.body)).toMatchObject({ error: { code: 'validation_failed', param: 'x' } });
  expect((await ask({})).status).toBe(200);
  await things.close();
});
