// Writes the OpenAPI 3.1 document from the very schemas that check requests, so that the two cannot disagree.
//
// Chose z.toJSONSchema over @fastify/swagger: 3.1 schemas are JSON Schema 2020-12, which zod writes itself, and the problem
// documents, scopes and headers of each route would have to be put together here in any case.
import { z } from 'zod';
import { ERRORS } from '../../../shared/errors.ts';
import { Problem } from '../../../shared/api/problem.ts';
import type { ResponseSpec, Route } from './route.ts';
import { errorsOf } from './route-errors.ts';
import { SCOPES, type Scope, scopeText } from './scopes.ts';

type Json = Record<string, unknown>;

/** The document of the routes that are not hidden. `baseUrl` is the API's address with `/v1`. */
export function openapiDocument(routes: readonly Route[], baseUrl: string): Json {
  const schemas: Json = {};
  hoist(schemas, Problem, 'output');
  const paths: Record<string, Json> = {};
  for (const each of routes.filter((candidate) => candidate.hidden !== true)) {
    paths[each.path] = { ...paths[each.path], [each.method.toLowerCase()]: operation(each, schemas) };
  }
  return {
    openapi: '3.1.0',
    info: { title: 'GPU Rental and Inference Service', version: '1.1' },
    servers: [{ url: baseUrl.replace(/\/v1$/, '') }],
    paths,
    components: {
      schemas,
      securitySchemes: {
        api_key: {
          type: 'http',
          scheme: 'bearer',
          description: `An API key, \`svc_live_...\`. Scopes:\n${scopeList()}`,
        },
      },
    },
  };
}

function operation(each: Route, schemas: Json): Json {
  const description = [each.description, scopeSentence(each)].filter((part) => part !== undefined).join('\n\n');
  return {
    operationId: each.operationId,
    tags: [each.tag],
    summary: each.summary,
    ...(description === '' ? {} : { description }),
    security: each.scope === 'none' || each.scope === 'operator' ? [] : [{ api_key: [] }],
    parameters: [
      ...parameters(each.params, 'path', schemas),
      ...parameters(each.query, 'query', schemas),
      ...idempotencyParameter(each),
    ],
    ...requestBody(each, schemas),
    responses: { ...successes(each, schemas), ...refusals(each) },
  };
}

function parameters(schema: z.ZodType | undefined, place: 'path' | 'query', schemas: Json): Json[] {
  if (schema === undefined) return [];
  const { properties = {}, required = [] } = Parameters.parse(hoist(schemas, schema, 'input'));
  return Object.entries(properties).map(([name, { description, ...property }]) => ({
    name,
    in: place,
    required: place === 'path' || required.includes(name),
    ...(description === undefined ? {} : { description }),
    schema: property,
  }));
}

const Parameters = z.looseObject({
  properties: z.record(z.string(), z.looseObject({ description: z.string().optional() })).optional(),
  required: z.array(z.string()).optional(),
});

function idempotencyParameter({ idempotency }: Route): Json[] {
  if (idempotency === 'none') return [];
  return [
    {
      name: 'Idempotency-Key',
      in: 'header',
      required: idempotency === 'required',
      description: 'An equal request with the same key within 24 hours gets the same answer and has no second effect',
      schema: { type: 'string', minLength: 1, maxLength: 255 },
    },
  ];
}

function requestBody({ body }: Route, schemas: Json): Json {
  if (body === undefined) return {};
  const required = !body.safeParse(undefined).success;
  return { requestBody: { required, content: { 'application/json': { schema: hoist(schemas, body, 'input') } } } };
}

function successes({ responses, idempotency }: Route, schemas: Json): Json {
  return Object.fromEntries(
    Object.entries(responses).map(([status, response]) => [status, success(response, idempotency !== 'none', schemas)]),
  );
}

function success({ description, schema, headers = {} }: ResponseSpec, keyed: boolean, schemas: Json): Json {
  const all = {
    'X-Request-Id': 'Identifies this request in our logs',
    ...(keyed ? { 'Idempotent-Replayed': '`true` where this is the stored answer of an earlier equal request' } : {}),
    ...headers,
  };
  return {
    description,
    headers: Object.fromEntries(
      Object.entries(all).map(([name, text]) => [name, { description: text, schema: { type: 'string' } }]),
    ),
    ...(schema === undefined ? {} : { content: { 'application/json': { schema: hoist(schemas, schema, 'output') } } }),
  };
}

/** One response for each status, which lists the codes that can come with it. */
function refusals(each: Route): Json {
  const byStatus = Map.groupBy(errorsOf(each), (code): number => ERRORS[code].status);
  return Object.fromEntries(
    [...byStatus].map(([status, group]) => [
      String(status),
      {
        description: group.map((code) => `\`${code}\`: ${ERRORS[code].title}`).join('\n\n'),
        content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } },
      },
    ]),
  );
}

/** The JSON Schema of `schema`; those with an id move to the document's components and are referred to. */
function hoist(schemas: Json, schema: z.ZodType, io: 'input' | 'output'): Json {
  const id = schema.meta()?.id;
  const {
    $schema: _,
    $defs = {},
    id: __,
    ...own
  } = z.toJSONSchema(schema, {
    io,
    // A date-time's pattern is a screenful and says no more than its format.
    override: ({ jsonSchema }) => {
      if (jsonSchema.format !== undefined) delete jsonSchema.pattern;
    },
  });
  for (const [name, { id: ___, ...definition }] of Object.entries($defs)) schemas[name] = withComponentRefs(definition);
  const result = withComponentRefs(own);
  if (id === undefined) return result;
  schemas[id] = result;
  return { $ref: `#/components/schemas/${id}` };
}

function withComponentRefs(schema: object): Json {
  const text = JSON.stringify(schema).replaceAll('"#/$defs/', '"#/components/schemas/');
  return z.record(z.string(), z.unknown()).parse(JSON.parse(text));
}

function scopeSentence({ scope }: Route): string | undefined {
  return scope === 'none' || scope === 'operator' ? undefined : `Needs the scope \`${scopeText(scope)}\`.`;
}

function scopeList(): string {
  const scopes = Object.keys(SCOPES) as Scope[];
  return scopes.map((scope) => `- \`${scopeText(scope)}\`: ${SCOPES[scope]}`).join('\n');
}
