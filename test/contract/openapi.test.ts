// The OpenAPI document of the whole API: complete, well formed, described to the last field; and the page made of it.
import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Route } from '../../control-plane/base/http/route.ts';
import { type Scope, scopeText } from '../../control-plane/base/http/scopes.ts';
import { CHAT_DEFAULTS, CHAT_NOTHINGS } from '../../shared/api/nothings.ts';
import { isOauthPath } from '../../shared/api/device-login.ts';
import { inferenceCode, isInferencePath } from '../../shared/api/inference.ts';
import { type ErrorCode, ERRORS } from '../../shared/errors.ts';
import { type Api, openApi } from './api.ts';
import { makeAll } from './resources.ts';

type Json = { [name: string]: unknown };
interface Operation {
  operationId: string;
  tags: string[];
  summary: string;
  description?: string;
  security: Json[];
  parameters: { name: string; in: string; required: boolean; description?: string; schema: Json }[];
  requestBody?: { content: Json };
  responses: Record<string, { description: string; headers: Json; content?: Json }>;
  callbacks?: Record<string, Json>;
}
interface Document {
  openapi: string;
  info: Json;
  tags: { name: string; description: string }[];
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, Json> };
}

let api: Api;
let document: Document;
let operations: (Operation & { path: string; method: string })[];
beforeAll(async () => {
  api = await openApi();
  document = JSON.parse((await api.call('GET', '/v1/openapi.json')).body) as Document;
  operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ ...operation, path, method })),
  );
});
afterAll(() => api.close());

const needsKey = ({ hidden, scope }: Route): boolean => hidden !== true && scope !== 'none' && scope !== 'session';

/** Every value below `value`, with its path. */
function walk(value: unknown, path = ''): { path: string; value: unknown }[] {
  const inner = typeof value === 'object' && value !== null ? Object.entries(value) : [];
  return [{ path, value }, ...inner.flatMap(([name, child]) => walk(child, `${path}/${name}`))];
}

/** The HTTP statuses by the codes, as a path spells them. */
function statuses(path: string): Map<string, number> {
  const codes = Object.keys(ERRORS) as ErrorCode[];
  const spelled = isInferencePath(path) ? inferenceCode : (code: string) => code;
  return new Map(codes.map((code) => [spelled(code), ERRORS[code].status]));
}

describe('the document', () => {
  test('has every route that is for customers, and nothing else', () => {
    const shown = operations.map(({ method, path }) => `${method.toUpperCase()} ${path}`);
    const hidden = api.routes.filter((route) => route.hidden === true).map(({ path }) => path);
    const registered = api.routes.filter((route) => route.hidden !== true);
    expect(shown.toSorted()).toEqual(registered.map(({ method, path }) => `${method} ${path}`).toSorted());
    const manual = ['/', '/docs', '/llms.txt', '/docs/{page}'];
    const entrances = ['/device', '/welcome', '/invitation', '/oidc'];
    const pages = ['/console', ...entrances, '/console/{id}', '/console/assets/{name}'];
    expect(hidden).toEqual(['/v1/blobs/{key}', '/v1/blobs/{key}', '/agent/v1/enroll', ...manual, ...pages]);
  });

  test('describes the event that a webhook endpoint is sent, with its headers', () => {
    const create = operations.find(({ operationId }) => operationId === 'createWebhookEndpoint');
    expect(create?.callbacks?.['event']?.['{$request.body#/url}']).toMatchObject({
      post: {
        parameters: [{ name: 'Svc-Event-Id' }, { name: 'Svc-Signature' }],
        requestBody: { content: { 'application/json': { schema: { $ref: '#/components/schemas/WebhookEvent' } } } },
      },
    });
    expect(document.components.schemas['WebhookEvent']).toMatchObject({
      required: ['id', 'type', 'created_at', 'data'],
    });
  });

  // Specification 4.5: The suggested polling backoff is 1, 2, 4, 8, 16, then 30 seconds.
  test('says how often to ask about an operation', () => {
    const follow = document.paths['/v1/operations/{id}']?.['get'];
    expect(follow).toMatchObject({ description: expect.stringContaining('1, 2, 4, 8, 16, then every 30 seconds') });
  });

  // Specification 9: All endpoints live under /v1.
  test('is OpenAPI 3.1 with the required members', () => {
    expect(document.openapi).toMatch(/^3\.1\.\d+$/);
    expect(document.info).toMatchObject({ title: expect.any(String), version: expect.any(String) });
    for (const operation of operations) {
      expect(operation.path).toMatch(/^\/v1\//);
      expect(Object.keys(operation.responses).length).toBeGreaterThan(0);
      expect(document.tags.map(({ name }) => name)).toEqual(expect.arrayContaining(operation.tags));
      for (const [status, response] of Object.entries(operation.responses)) {
        expect(status).toMatch(/^[1-5]\d\d$/);
        expect(response.description).not.toBe('');
      }
    }
  });

  test('describes each tag, and gives every operation, what is sent to endpoints too, what linters ask for', () => {
    for (const { name, description } of document.tags)
      expect([name, description]).toEqual([name, expect.stringMatching(/\w/)]);
    const sent = operations.flatMap(({ callbacks = {} }) =>
      Object.values(callbacks).flatMap((urls) =>
        Object.values(urls).flatMap((methods) => Object.values(methods as Json)),
      ),
    ) as Operation[];
    expect(sent).toHaveLength(1);
    for (const { summary, security, responses } of [...operations, ...sent]) {
      expect(summary).toMatch(/\w/);
      expect(Array.isArray(security)).toBe(true);
      expect(Object.keys(responses).filter((status) => status.startsWith('4')).length).toBeGreaterThan(0);
      expect(Object.keys(responses).filter((status) => status.startsWith('2')).length).toBeGreaterThan(0);
    }
  });

  test('has operation ids that are unique and fit to be names', () => {
    const ids = operations.map(({ operationId }) => operationId);
    expect(new Set(ids).size).toBe(ids.length);
    for (const id of ids) expect(id).toMatch(/^[a-z][A-Za-z]+$/);
  });

  test('declares exactly the parameters that a path has, and no parameter twice', () => {
    for (const { path, parameters } of operations) {
      const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
      expect(parameters.filter((each) => each.in === 'path').map(({ name }) => name)).toEqual(inPath);
      expect(parameters.filter((each) => each.in === 'path').every(({ required }) => required)).toBe(true);
      expect(new Set(parameters.map((each) => `${each.in} ${each.name}`)).size).toBe(parameters.length);
    }
  });

  test('has references that all lead to a schema which is more than a reference', () => {
    const references = walk(document).filter(({ path }) => path.endsWith('/$ref'));
    expect(references.length).toBeGreaterThan(20);
    for (const { value } of references) {
      const name = /^#\/components\/schemas\/(\w+)$/.exec(String(value))?.[1] ?? '';
      expect(Object.keys(document.components.schemas[name] ?? {})).toContain('properties');
    }
  });

  // Specification 2.1: A list answers pages of data and next_cursor, and takes cursor and limit.
  test('gives every page the same members, and every list of pages the same cursor and limit', () => {
    const schemaOf = ({ responses }: Operation): Json =>
      ((responses['200']?.content?.['application/json'] as Json | undefined)?.['schema'] ?? {}) as Json;
    const lists = operations.filter(
      (operation) => 'next_cursor' in ((schemaOf(operation)['properties'] ?? {}) as Json),
    );
    expect(lists.map(({ operationId }) => operationId)).toEqual(
      expect.arrayContaining([
        'listGpuTypes',
        'listPricing',
        'listSshKeys',
        'listInstances',
        'listUsage',
        'listWebhookEndpoints',
        'listWebhookDeliveries',
        'listRegistryCredentials',
      ]),
    );
    for (const list of lists) {
      expect(schemaOf(list)).toMatchObject({
        properties: { data: { type: 'array' }, next_cursor: { type: ['string', 'null'] } },
        required: expect.arrayContaining(['data', 'next_cursor']),
      });
      const parameter = (name: string): unknown => list.parameters.find((each) => each.name === name);
      expect(parameter('cursor')).toMatchObject({ in: 'query', required: false, schema: { type: 'string' } });
      expect(parameter('limit')).toMatchObject({
        in: 'query',
        required: false,
        schema: { type: 'integer', minimum: 1, maximum: 200, default: 50 },
      });
    }
  });

  // Specification 2.1: Inference resources use Unix-second integers, platform resources date-time strings.
  // Specification 2.1: Timestamps are ISO 8601 UTC strings.
  test('calls every time a date-time, and answers it in UTC', async () => {
    const isTime = (path: string): boolean => /\/\w+_(at|since|until|start)$/.test(path);
    const documented = walk(document.components.schemas).filter(({ path }) => isTime(path) && /properties/.test(path));
    expect(documented.length).toBeGreaterThan(20);
    // Those of inference are what its clients expect.
    const otherwise = documented.filter(
      ({ value }) => !/"format":"date-time"|Unix seconds/.test(JSON.stringify(value)),
    );
    expect(otherwise.map(({ path }) => path)).toEqual([]);
    const owner = await api.account();
    await makeAll(api, owner);
    const lists = api.routes.filter(({ method, path, hidden }) => method === 'GET' && !/\{/.test(path) && !hidden);
    const answers = await Promise.all(lists.map(({ path }) => api.call('GET', path, { key: owner.key })));
    const times = walk(answers.map(({ json }) => json)).filter(({ path, value }) => isTime(path) && value !== null);
    expect(times.length).toBeGreaterThan(10);
    const unixSeconds = times.filter(({ value }) => typeof value === 'number');
    expect(new Set(unixSeconds.map(({ value }) => value))).toEqual(new Set([Math.floor(api.world.clock.now() / 1000)]));
    for (const { value } of times.filter((each) => !unixSeconds.includes(each)))
      expect(value).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  });

  test('describes every field, parameter and header', () => {
    const silent = walk(document)
      .filter(({ path }) => /\/(properties|headers)\/[^/]+$|\/parameters\/\d+$/.test(path))
      .filter(({ value }) => !(value as Json)['description'])
      .map(({ path }) => path);
    expect(silent).toEqual([]);
  });

  test('lists the values without an effect, each with its member', () => {
    const text = document.paths['/v1/chat/completions']?.['post']?.description ?? '';
    for (const [member, values] of Object.entries({ ...CHAT_NOTHINGS, ...CHAT_DEFAULTS })) {
      const line = text.split('\n').find((each) => each.startsWith(`- \`${member}\`:`)) ?? '';
      for (const value of values) expect(line).toContain(`\`${JSON.stringify(value)}\``);
    }
    expect(text).toContain('- any member that is not required: `null`');
  });

  // Specification 7.1: No message and no part of the document recommends a value that is refused.
  test('recommends no value that is refused', () => {
    const bodyOf = (path: string): Json => {
      const { requestBody } = operations.find((each) => each.path === path && each.method === 'post') ?? {};
      const { schema } = (requestBody?.content['application/json'] ?? {}) as { schema?: { properties?: Json } };
      return schema?.properties ?? {};
    };
    expect(bodyOf('/v1/embeddings')['encoding_format']).toMatchObject({ enum: ['float'] });
    expect(bodyOf('/v1/images/generations')['response_format']).toMatchObject({ enum: ['b64_json'] });
    const asked = operations.map(({ requestBody, parameters, description }) => ({
      requestBody,
      parameters,
      description,
    }));
    const texts = walk([asked, document.components.schemas['CreateInstance']])
      .filter(({ path }) => path.endsWith('/description'))
      .map(({ value }) => String(value));
    expect(texts.length).toBeGreaterThan(50);
    expect(texts.filter((text) => /base64(?!_)|raw_vm/.test(text))).toEqual([]);
  });

  test('closes every object, so that nothing undocumented is sent or taken', () => {
    const open = walk(document.components.schemas)
      .filter(({ value }) => typeof value === 'object' && value !== null && 'properties' in value && 'type' in value)
      .filter(({ value }) => (value as Json)['additionalProperties'] !== false)
      .map(({ path }) => path);
    // Some problems carry members of their own.
    expect(open).toEqual(['/Problem']);
  });

  // Specification 7.2: Every code is documented with its status.
  test('lists every error code of a route under its status, with Retry-After where waiting helps', () => {
    for (const { path, responses, security } of operations) {
      for (const [status, { content = {}, headers }] of Object.entries(responses)) {
        if (Number(status) < 400) continue;
        const form = isInferencePath(path) || isOauthPath(path) ? 'application/json' : 'application/problem+json';
        expect(Object.keys(content)).toEqual([form]);
        const codes = walk(content[form]).find((each) => /\/(code|error)\/enum$/.test(each.path))?.value as string[];
        expect(codes.map((code) => statuses(path).get(code))).toEqual(codes.map(() => Number(status)));
        expect(Object.keys(headers)).toEqual(expect.arrayContaining(status === '429' ? ['Retry-After'] : []));
      }
      const always = ['422', '429', '500', ...(security.length > 0 ? ['401', '403'] : [])];
      expect(Object.keys(responses)).toEqual(expect.arrayContaining(always));
    }
  });

  test('names the scope of every route that needs a key', () => {
    for (const route of api.routes.filter(needsKey)) {
      const operation = document.paths[route.path]?.[route.method.toLowerCase()];
      expect(JSON.stringify(operation)).toContain(`\`${scopeText(route.scope as Scope)}\``);
      expect(operation?.security).toEqual([{ api_key: [] }, { session: [] }]);
    }
  });

  test('says which routes are for signed-in people only', () => {
    for (const route of api.routes.filter(({ scope }) => scope === 'session')) {
      const operation = document.paths[route.path]?.[route.method.toLowerCase()];
      expect(operation?.description).toContain('Only for a signed-in person.');
      expect(operation?.security).toEqual([{ session: [] }]);
    }
  });
});

describe('the page', () => {
  test('shows every operation, field and error of the document', async () => {
    const { status, headers, body } = await api.call('GET', '/docs/api');
    expect(status).toBe(200);
    expect(headers['content-type']).toBe('text/html; charset=utf-8');
    for (const { operationId, path } of operations) {
      expect(body).toContain(`<section id="${operationId}">`);
      expect(body).toContain(`<code>${path}</code>`);
    }
    for (const name of Object.keys(document.components.schemas)) expect(body).toContain(`<h3 id="schema-${name}">`);
    const text = body.replaceAll(/<[^>]*>/g, '\n');
    for (const { path } of walk(document).filter((each) => /\/properties\/[^/]+$/.test(each.path))) {
      expect(text).toMatch(new RegExp(`[\\n.]${path.split('/').at(-1)}\\n`));
    }
  });

  test('links only to what is there, and loads nothing from anywhere', async () => {
    const { headers, body } = await api.call('GET', '/docs/api');
    const anchors = [...body.matchAll(/href="#([^"]+)"/g)].map(([, id]) => id);
    for (const id of anchors) expect(body).toContain(`id="${id}"`);
    expect(body.match(/href="(?!#)[^"]*"/g)).toEqual(['href="/v1/openapi.json"', 'href="/docs"']);
    expect(body).not.toMatch(/<(script|link|img|iframe)|src=|@import|url\(| on\w+=/);
    const style = /<style>([^]*)<\/style>/.exec(body)?.[1] ?? '';
    const digest = createHash('sha256').update(style).digest('base64');
    expect(headers['content-security-policy']).toContain(`default-src 'none'; style-src 'sha256-${digest}'`);
  });
});
