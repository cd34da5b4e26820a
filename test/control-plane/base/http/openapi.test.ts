// The OpenAPI document: complete, consistent, and built from the same schemas that check requests.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { as, type Bench, openBench } from './fixture.ts';

interface Content {
  [type: string]: { schema: unknown };
}
interface Operation {
  operationId: string;
  description: string;
  security: unknown;
  parameters: unknown;
  requestBody: { required: boolean; content: Content };
  responses: Record<string, { description: string; headers?: object; content?: Content }>;
}
interface Document {
  openapi: string;
  servers: unknown;
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: object; securitySchemes: { api_key: { scheme: string } } };
}

let bench: Bench;
let document: Document;
beforeAll(async () => {
  bench = await openBench();
  const reply = await bench.http.inject({ method: 'GET', url: '/v1/openapi.json' });
  document = JSON.parse(reply.body) as Document;
});
afterAll(() => bench.close());

test('is OpenAPI 3.1 and names the server without the version', () => {
  expect(document.openapi).toBe('3.1.0');
  expect(document.servers).toEqual([{ url: 'https://api.example.com' }]);
  expect(document.components.securitySchemes.api_key.scheme).toBe('bearer');
});

test('hides routes that are not for customers', () => {
  const paths = ['/v1/things', '/v1/things/{id}', '/v1/ip', '/v1/things/{id}/touch', '/v1/chat/thing'];
  expect(Object.keys(document.paths)).toEqual(paths);
});

test('describes a route from its schemas', () => {
  const create = document.paths['/v1/things']?.['post'];
  expect(create?.operationId).toBe('createThing');
  expect(create?.description).toContain('`instances: write`');
  expect(create?.security).toEqual([{ api_key: [] }, { session: [] }]);
  expect(create?.parameters).toEqual([
    expect.objectContaining({ name: 'Idempotency-Key', in: 'header', required: true }),
  ]);
  expect(create?.requestBody.required).toBe(true);
  expect(create?.requestBody.content['application/json']?.schema).toMatchObject({
    type: 'object',
    additionalProperties: false,
    required: ['name'],
    properties: { size: { type: 'integer', minimum: 1, maximum: 8, default: 1, description: 'How large' } },
  });
  expect(create?.responses['202']?.content?.['application/json']?.schema).toEqual({
    $ref: '#/components/schemas/Thing',
  });
  expect(Object.keys(create?.responses['202']?.headers ?? {})).toEqual([
    'X-Request-Id',
    'Idempotent-Replayed',
    'Operation-Id',
  ]);
  expect(Object.keys(create?.responses ?? {})).toEqual(
    expect.arrayContaining(['400', '401', '402', '403', '409', '413', '415', '422', '429', '500']),
  );
  expect(create?.responses['409']?.description).toContain('`conflict`');
  expect(create?.responses['409']?.description).toContain('`idempotency_key_in_use`');
});

test('describes path and query parameters', () => {
  expect(document.paths['/v1/things/{id}']?.['get']?.parameters).toEqual([
    { name: 'id', in: 'path', required: true, schema: { type: 'string', maxLength: 36 } },
    { name: 'include', in: 'query', required: false, schema: { type: 'string', enum: ['all'] } },
  ]);
});

test('describes the rate headers for inference only, in successful responses and in 429', () => {
  const tellsOf = (path: string, method: string, status: string): string[] =>
    Object.keys(document.paths[path]?.[method]?.responses[status]?.headers ?? {}).filter((name) => /rate/i.test(name));
  const all = ['Limit', 'Remaining', 'Reset'].map((what) => `X-Ratelimit-${what}-Requests`);
  expect([tellsOf('/v1/chat/thing', 'post', '200'), tellsOf('/v1/chat/thing', 'post', '429')]).toEqual([all, all]);
  expect([tellsOf('/v1/things', 'post', '202'), tellsOf('/v1/things', 'post', '429')]).toEqual([[], []]);
});

test('every reference has a target', () => {
  const references = [...JSON.stringify(document).matchAll(/"\$ref":"#\/components\/schemas\/(\w+)"/g)].map(
    ([, name]) => name,
  );
  expect(references.length).toBeGreaterThan(0);
  expect(Object.keys(document.components.schemas)).toEqual(expect.arrayContaining([...new Set(references)]));
});

test.each(['/v1/openapi.json', '/docs/api'])('%s is made once, and the same text is sent each time', async (url) => {
  const own = await openBench();
  const first = await own.http.inject({ method: 'GET', url });
  Object.assign(own.http.openapi(), { tags: [], paths: {} });
  const again = await own.http.inject({ method: 'GET', url });
  expect(again.body === first.body).toBe(true);
  expect(again.headers['content-type']).toBe(first.headers['content-type']);
  await own.close();
});

test('needs no API key and cannot be posted to', async () => {
  expect((await bench.http.inject({ method: 'POST', url: '/v1/openapi.json', headers: as('all') })).status).toBe(405);
});
