// What the server does before and after a handler: authentication, validation, problem documents, headers, closing.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { route } from '../../../../control-plane/base/http/route.ts';
import { createLog } from '../../../../shared/log.ts';
import { BODY_BYTES_MAX, JSON_VALUES_MAX } from '../../../../shared/limits.ts';
import { as, type Bench, openBench, problemOf } from './fixture.ts';

let bench: Bench;
beforeAll(async () => {
  bench = await openBench();
});
afterAll(() => bench.close());

const post = (payload: object | string, headers: Record<string, string> = {}) =>
  bench.http.inject({
    method: 'POST',
    url: '/v1/things',
    headers: as('all', { 'content-type': 'application/json', 'idempotency-key': `k-${Math.random()}`, ...headers }),
    payload,
  });

describe('authentication', () => {
  // Specification 5: Keys are sent as Authorization: Bearer.
  test.each([
    ['no header', {}],
    ['another scheme', { authorization: 'Basic all' }],
    ['no token', { authorization: 'Bearer ' }],
    ['two tokens', { authorization: 'Bearer all all' }],
    ['an unknown token', { authorization: 'Bearer nobody' }],
    ['a token that is too long', { authorization: `Bearer ${'a'.repeat(513)}` }],
  ])('answers 401 for %s', async (_what, headers) => {
    const reply = await bench.http.inject({ method: 'GET', url: '/v1/things/x', headers });
    expect(reply.status).toBe(401);
    expect(reply.headers['www-authenticate']).toBe('Bearer');
    expect(problemOf(reply)).toMatchObject({ code: 'unauthorized', status: 401, instance: '/v1/things/x', errors: [] });
  });
  // Specification 5: Platform scopes are written with a space after the colon.
  test('answers 403 with the missing scope as the specification writes it', async () => {
    const reply = await bench.http.inject({ method: 'POST', url: '/v1/things', headers: as('reader'), payload: {} });
    expect(reply.status).toBe(403);
    expect(problemOf(reply)).toMatchObject({ code: 'insufficient_scope', required_scope: 'instances: write' });
    expect(problemOf(reply).detail).toContain('instances: write');
  });
  test('accepts the scheme in any case', async () => {
    const reply = await bench.http.inject({
      method: 'GET',
      url: '/v1/things/x',
      headers: { authorization: 'bEaReR all' },
    });
    expect(reply.status).toBe(200);
  });
  test('refuses a stranger before the body is read', async () => {
    const reply = await bench.http.inject({
      method: 'POST',
      url: '/v1/things',
      headers: { 'content-type': 'application/json' },
      payload: '{'.repeat(BODY_BYTES_MAX + 1),
    });
    expect(reply.status).toBe(401);
  });
});

describe('bad input', () => {
  test('malformed JSON is refused', async () => {
    const reply = await post('{"name": ');
    expect(reply.status).toBe(400);
    expect(problemOf(reply).code).toBe('malformed_json');
  });
  test('JSON with too many values is refused as a request, because it is valid JSON', async () => {
    const reply = await post(`[${'100,'.repeat(JSON_VALUES_MAX)}0]`);
    expect([reply.status, problemOf(reply).code]).toEqual([400, 'invalid_request']);
    expect(problemOf(reply).detail).toContain('send less in one request');
  });
  test('JSON of too many levels is refused as a request, whether its text is long or short', async () => {
    for (const levels of [101, 30_000]) {
      const reply = await post(`{"name":"a","parts":${'['.repeat(levels)}${']'.repeat(levels)}}`);
      expect([reply.status, problemOf(reply).code]).toEqual([400, 'invalid_request']);
      expect(problemOf(reply).detail).toContain('more than 100 levels of arrays and objects');
    }
  });
  // Specification 7.2: validation_failed names the fields, unknown ones too.
  test('unknown fields are named at every depth', async () => {
    const reply = await post({ name: 'a', colour: 'red', parts: [{ port: 1, speed: 2 }] });
    expect(reply.status).toBe(422);
    expect(problemOf(reply)).toMatchObject({
      code: 'validation_failed',
      errors: [
        { field: 'parts[0].speed', rule: 'is not a known field' },
        { field: 'colour', rule: 'is not a known field' },
      ],
    });
  });
  test('__proto__ is refused like any unknown field', async () => {
    const reply = await post('{"name": "a", "__proto__": {"size": 3}}');
    expect(problemOf(reply).errors).toEqual([{ field: '__proto__', rule: 'is not a known field' }]);
  });
  test('wrong types are refused', async () => {
    const reply = await post({ name: 3, size: 1.5, parts: {} });
    expect(problemOf(reply).errors).toEqual([
      { field: 'name', rule: 'must be a string' },
      { field: 'size', rule: 'must be a whole number' },
      { field: 'parts', rule: 'must be an array' },
    ]);
  });
  test('U+0000 is refused in every text: PostgreSQL could not store it', async () => {
    const reply = await post({ name: 'a\0b' });
    expect(reply.status).toBe(422);
    expect(problemOf(reply).errors).toEqual([{ field: 'name', rule: 'must not contain the character U+0000' }]);
    const path = await bench.http.inject({ method: 'GET', url: '/v1/things/a%00', headers: as('all') });
    expect(problemOf(path).errors).toMatchObject([{ field: 'id' }]);
  });
  test('half a surrogate pair is refused in every text: it is no character', async () => {
    const rule = 'must not contain a half of a surrogate pair: an emoji was cut in two';
    for (const name of ['cut \ud83d', '\ude00 cut']) {
      const reply = await post({ name });
      expect(reply.status).toBe(422);
      expect(problemOf(reply).errors).toEqual([{ field: 'name', rule }]);
    }
    expect((await post({ name: 'whole \ud83d\ude00' })).status).toBe(202);
  });
  test.each([
    ['null', 'null'],
    ['an array', '[]'],
    ['a string', '"x"'],
  ])('a body that is %s is refused', async (_what, payload) => {
    expect(problemOf(await post(payload)).errors).toEqual([{ field: 'body', rule: 'must be an object' }]);
  });
  test('a missing body is refused', async () => {
    expect(problemOf(await post('')).errors).toEqual([{ field: 'body', rule: 'is required' }]);
  });
  test('a length and a number are accepted at both limits and refused beyond them', async () => {
    expect((await post({ name: 'a', size: 1 })).status).toBe(202);
    expect((await post({ name: 'a'.repeat(8), size: 8 })).status).toBe(202);
    expect(problemOf(await post({ name: '', size: 0 })).errors).toEqual([
      { field: 'name', rule: 'must have at least 1 character' },
      { field: 'size', rule: 'must be at least 1' },
    ]);
    expect(problemOf(await post({ name: 'a'.repeat(9), size: 9 })).errors).toEqual([
      { field: 'name', rule: 'must have at most 8 characters' },
      { field: 'size', rule: 'must be at most 8' },
    ]);
  });
  // Specification 8: Request bodies have a largest size.
  test('a body of the largest size is read, and one more byte is answered with 413', async () => {
    const padded = (bytes: number): string => `{"name": "a"${' '.repeat(bytes - 13)}}`;
    expect((await post(padded(BODY_BYTES_MAX))).status).toBe(202);
    const reply = await post(padded(BODY_BYTES_MAX + 1));
    expect(reply.status).toBe(413);
    expect(problemOf(reply).code).toBe('body_too_large');
  });
  // Specification 4: Bodies are JSON.
  test.each(['text/plain', 'application/x-www-form-urlencoded', 'application/xml', 'nonsense'])(
    '415 for a body of type %s',
    async (type) => {
      const reply = await post('{"name": "a"}', { 'content-type': type });
      expect(reply.status).toBe(415);
      expect(problemOf(reply).code).toBe('unsupported_media_type');
    },
  );
  test('a charset in the content type is accepted', async () => {
    expect((await post('{"name": "a"}', { 'content-type': 'application/json; charset=UTF-8' })).status).toBe(202);
  });
  test('unknown query parameters are named', async () => {
    const reply = await bench.http.inject({ method: 'GET', url: '/v1/things/x?includes=all', headers: as('all') });
    expect(reply.status).toBe(422);
    expect(problemOf(reply).errors).toEqual([{ field: 'includes', rule: 'is not a known field' }]);
  });
  test('a repeated query parameter is refused, because it is not a string', async () => {
    const reply = await bench.http.inject({
      method: 'GET',
      url: '/v1/things/x?include=all&include=all',
      headers: as('all'),
    });
    expect(problemOf(reply).errors).toEqual([{ field: 'include', rule: 'must be all' }]);
  });
  test('a path that is not valid percent-encoding is refused', async () => {
    const reply = await bench.http.inject({ method: 'GET', url: '/v1/things/%zz', headers: as('all') });
    expect(reply.status).toBe(400);
    expect(problemOf(reply)).toMatchObject({ code: 'invalid_request' });
    expect(reply.headers['x-request-id']).toBe(problemOf(reply)['request_id']);
  });
  test('an id that is far too long is refused', async () => {
    const reply = await bench.http.inject({ method: 'GET', url: `/v1/things/${'a'.repeat(300)}`, headers: as('all') });
    expect(reply.status).toBe(404);
    expect(problemOf(reply).code).toBe('not_found');
  });
});

test('a slash at the end of a path is ignored and is not an empty id', async () => {
  const reply = await bench.http.inject({ method: 'GET', url: '/v1/ip/' });
  expect(reply.status).toBe(200);
  const empty = await bench.http.inject({ method: 'DELETE', url: '/v1/things/', headers: as('all') });
  expect(empty).toMatchObject({ status: 405, headers: { allow: expect.stringContaining('POST') } });
});

describe('unknown places', () => {
  // Specification 7.1: A problem document has type, title, status, detail, instance, code, request_id and errors; unknown paths have one too.
  test('404 for an unknown path', async () => {
    const reply = await bench.http.inject({ method: 'GET', url: '/v1/nowhere?x=1' });
    expect(reply.status).toBe(404);
    expect(problemOf(reply)).toEqual({
      type: 'urn:svc:error:not_found',
      title: 'Not found',
      status: 404,
      detail: 'There is nothing at /v1/nowhere. GET /v1/openapi.json names all that there is.',
      instance: '/v1/nowhere',
      code: 'not_found',
      request_id: reply.headers['x-request-id'],
      errors: [],
    });
  });
  test('405 for a known path, with the methods that it accepts', async () => {
    const reply = await bench.http.inject({ method: 'DELETE', url: '/v1/things/x' });
    expect(reply.status).toBe(405);
    expect(reply.headers['allow']).toBe('GET');
    expect(problemOf(reply).code).toBe('method_not_allowed');
  });
});

describe('request ids', () => {
  test('are created by the server and repeated in the problem document', async () => {
    const reply = await bench.http.inject({ method: 'GET', url: '/v1/nowhere' });
    expect(reply.headers['x-request-id']).toMatch(/^req_/);
    expect(problemOf(reply)['request_id']).toBe(reply.headers['x-request-id']);
  });
  test.each([
    ['a sane one is kept', 'trace-1.a_B', true],
    ['the longest is kept', 'a'.repeat(128), true],
    ['one too long is replaced', 'a'.repeat(129), false],
    ['one with odd characters is replaced', 'a b', false],
  ])('%s', async (_what, given, kept) => {
    const reply = await bench.http.inject({ method: 'GET', url: '/v1/ip', headers: { 'x-request-id': given } });
    expect(reply.headers['x-request-id'] === given).toBe(kept);
  });
});

describe('a refusal', () => {
  const logged = async (...refused: object[]): Promise<Record<string, unknown>[]> => {
    const lines: string[] = [];
    const own = await openBench({ log: createLog('test', 'info', { write: (line) => void lines.push(line) }) });
    for (const request of refused)
      await own.http.inject({ method: 'POST', url: '/v1/things', headers: as('all'), ...request });
    await own.close();
    return lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  };
  const keyed = { headers: as('all', { 'idempotency-key': 'k', 'x-request-id': 'asked-about' }) };

  test('of a change is logged with the id of the request, whose it was and why, and without what was sent', async () => {
    const lines = await logged({ ...keyed, payload: { name: 'a secret name', size: 9 } });
    expect(lines).toMatchObject([
      {
        request_id: 'asked-about',
        org_id: 'org_a',
        method: 'POST',
        path: '/v1/things',
        status: 422,
        code: 'validation_failed',
        fields: ['name', 'size'],
        msg: 'a request was refused',
      },
    ]);
    expect(JSON.stringify(lines)).not.toContain('secret');
  });

  test('is not logged if it passes by itself, if nobody has authenticated, of a read, or of a call to a model', async () => {
    const passing = { ...keyed, payload: { name: 'a', refuse: 'rate_limit_exceeded' } };
    const read = { method: 'GET', url: '/v1/things/nowhere/at/all' };
    const model = { url: '/v1/chat/thing', headers: as('all', { 'content-type': 'text/csv' }), payload: 'x' };
    expect(await logged(passing, { headers: {} }, read, model)).toEqual([]);
  });
});

describe('an error on our side', () => {
  test('a bug is 500 without its message, and is logged once with the request id', async () => {
    const lines: string[] = [];
    const log = createLog('test', 'error', { write: (line) => void lines.push(line) });
    const own = await openBench({ log });
    const reply = await own.http.inject({
      method: 'POST',
      url: '/v1/things',
      headers: as('all', { 'idempotency-key': 'bug' }),
      payload: { name: 'a', refuse: 'bug' },
    });
    expect(reply.status).toBe(500);
    expect(problemOf(reply).code).toBe('internal_error');
    expect(reply.body).not.toContain('planted');
    expect(lines).toHaveLength(1);
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({ request_id: reply.headers['x-request-id'] });
    expect(await own.effects()).toBe(0);
    await own.close();
  });
  test.each(['wrong', 'undeclared'])('under strict responses, a %s response is a bug', async (id) => {
    const reply = await bench.http.inject({ method: 'GET', url: `/v1/things/${id}`, headers: as('all') });
    expect(reply.status).toBe(500);
  });
  // Specification 7.1: Retry-After is at least 1.
  test('Retry-After is in whole seconds and at least one', async () => {
    const reply = await post({ name: 'a', refuse: 'rate_limit_exceeded' });
    expect(reply.status).toBe(429);
    expect(reply.headers['retry-after']).toBe('1');
  });
  test('readyz runs the checks, healthz does not', async () => {
    const own = await openBench({ ready: async () => ['the database does not answer'] });
    expect((await own.http.inject({ method: 'GET', url: '/healthz' })).status).toBe(200);
    const reply = await own.http.inject({ method: 'GET', url: '/readyz' });
    expect(reply.status).toBe(503);
    expect(problemOf(reply)).toMatchObject({ code: 'unavailable', detail: 'the database does not answer' });
    expect((await bench.http.inject({ method: 'GET', url: '/readyz' })).body).toBe('{"status":"ok"}');
    await own.close();
  });
});

describe('registration', () => {
  const operators = route({
    method: 'GET',
    path: '/secrets',
    operationId: 'secrets',
    tag: 'x',
    summary: 'x',
    scope: 'operator',
    idempotency: 'none',
    responses: { 200: { description: 'x' } },
    errors: [],
    handler: async () => ({ status: 200, body: [] }),
  });
  test("an operator's route cannot reach the public listener", async () => {
    await expect(openBench({ routes: () => [operators] })).rejects.toThrow('public listener');
    const own = await openBench({ routes: () => [operators], http: { audience: 'operator' } });
    expect((await own.http.inject({ method: 'GET', url: '/secrets' })).status).toBe(200);
    await own.close();
  });
  test('a route without an API key cannot take an Idempotency-Key', async () => {
    await expect(
      openBench({ routes: () => [{ ...operators, scope: 'none', idempotency: 'required' }] }),
    ).rejects.toThrow('Idempotency-Key');
  });
});
