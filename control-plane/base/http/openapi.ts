// Writes the OpenAPI 3.1 document from the same schemas that check requests, so that document and checks cannot disagree.
//
// We use z.toJSONSchema instead of @fastify/swagger. Schemas of OpenAPI 3.1 are JSON Schema 2020-12, which zod writes itself. The problem
// documents, scopes and headers of each route would need our own code in any case.
import { z } from 'zod';
import { type ErrorCode, ERRORS } from '../../../shared/errors.ts';
import { inferenceCode, InferenceError, INSTEAD, isInferencePath } from '../../../shared/api/inference.ts';
import { isOauthPath, OauthError } from '../../../shared/api/device-login.ts';
import { Problem } from '../../../shared/api/problem.ts';
import { RATE_HEADERS } from './rate-limits.ts';
import { isInference, type ResponseSpec, type Route, errorsOf } from './route.ts';
import { SCOPES, type Scope, scopeText } from './scopes.ts';

type Json = Record<string, unknown>;

const INTRODUCTION = `Rent GPU instances: priced by the hour, billed by the second.

Requests and answers are JSON in UTF-8. Times are ISO 8601 in UTC. Lists are pages: send \`next_cursor\` of a page as \`cursor\` to get the next page.

Every refusal is a problem document (RFC 9457) of the type \`application/problem+json\`. Programs should branch on its \`code\`. People should read
its \`detail\`. On the paths of inference (models, chat, embeddings, images, videos, files, uploads, fine_tuning) a refusal is
\`{"error": {"message", "type", "param", "code"}}\` instead.
Clients of the chat-completion wire format also call these paths, which are 404 \`not_found\` here in the same form:

${Object.entries(INSTEAD)
  .map(([path, next]) => `- \`${path}\`: ${next}.`)
  .join('\n')}

Any request can also be refused with 404 \`not_found\`, 405 \`method_not_allowed\`, 408 \`request_timeout\` or 431 \`headers_too_large\`.

Requests that create something accept an \`Idempotency-Key\`. If you send a request again with the same key, nothing happens twice.`;

/** The description of each tag. */
const TAGS: Readonly<Record<string, string>> = {
  'API keys': 'Keys of the organisation, and what each may do',
  Billing: 'The balance, the usage of instances, and the receipts of requests to models',
  Catalog: 'What is on offer: GPU types, prices, templates and environments',
  'Community supply': 'For suppliers: machines, what they earn, and payouts',
  Events: 'What happened to the resources of the organisation, and what happens now',
  Metrics: 'Figures of GPUs, containers and machines, for Prometheus',
  Deposits: 'Stablecoin deposits, which add to the balance',
  Files: 'Files for fine-tuning',
  'Fine-tuning': 'Jobs that train adapters on your files, within a budget',
  Inference: 'Models, and requests to them',
  Instances: 'GPU instances, from the launch to the end, with their logs and events',
  Operations: 'Progress and result of a launch or a termination',
  'Registry credentials': 'Logins for private container images',
  Reservations: 'Contracts for reserved capacity',
  'SSH keys': 'Public keys that log in to instances',
  Organisation: 'The organisation that a key or a session acts for',
  Members: 'The people of an organisation, their roles, and invitations',
  'Sign-in': 'Sessions of people, their second factors, and the login of programs on their machines',
  Webhooks: 'Events of instances, sent to your own endpoints',
};

/** The document of all routes that are not hidden. `baseUrl` is the address of the API with `/v1`. */
export function openapiDocument(routes: readonly Route[], baseUrl: string): Json {
  const schemas: Json = {};
  hoist(schemas, Problem, 'output');
  hoist(schemas, InferenceError, 'output');
  hoist(schemas, OauthError, 'output');
  const paths: Record<string, Json> = {};
  const shown = routes.filter((each) => each.hidden !== true);
  for (const each of shown) {
    paths[each.path] = { ...paths[each.path], [each.method.toLowerCase()]: operation(each, schemas) };
  }
  return {
    openapi: '3.1.0',
    info: { title: 'GPU Rental and Inference Service', version: '1.1', description: INTRODUCTION },
    servers: [{ url: baseUrl.replace(/\/v1$/, '') }],
    tags: [...new Set(shown.map(({ tag }) => tag))].map((name) => ({ name, description: TAGS[name] ?? '' })),
    paths,
    components: {
      schemas,
      securitySchemes: {
        api_key: {
          type: 'http',
          scheme: 'bearer',
          description: `An API key, \`svc_live_...\`. Scopes:\n${scopeList()}`,
        },
        session: {
          type: 'apiKey',
          in: 'cookie',
          name: '__Host-svc_session',
          description:
            'The session of a signed-in person. It has the scopes of the role of the person. A request that changes something is accepted only with the `Origin` of this service. A page can name the id of the session that it shows in the header `Svc-Session`: the request is then refused with `unauthorized` if the cookie is of another session',
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
    security: security(each),
    parameters: [
      ...parameters(each.params, 'path', schemas),
      ...parameters(each.query, 'query', schemas),
      ...idempotencyParameter(each),
    ],
    ...requestBody(each, schemas),
    responses: { ...successes(each, schemas), ...refusals(each) },
    ...callbacks(each, schemas),
  };
}

function security({ scope }: Route): Json[] {
  if (scope === 'none' || scope === 'operator') return [];
  return scope === 'session' ? [{ session: [] }] : [{ api_key: [] }, { session: [] }];
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
      description:
        'If an equal request with the same key follows within 24 hours, it gets the same answer and has no second effect',
      schema: { type: 'string', minLength: 1, maxLength: 255 },
    },
  ];
}

function requestBody({ body, takesForm, upload }: Route, schemas: Json): Json {
  if (upload !== undefined) {
    const types = Object.entries(upload.mediaTypes ?? {});
    const content = types.map(([type, schema]) => [type, { schema: hoist(schemas, schema, 'input') }]);
    return { requestBody: { required: true, content: Object.fromEntries(content) } };
  }
  if (body === undefined) return {};
  const required = !body.safeParse(undefined).success;
  const media = { schema: hoist(schemas, body, 'input') };
  const content = { 'application/json': media, ...(takesForm === true ? { 'multipart/form-data': media } : {}) };
  return { requestBody: { required, content } };
}

function successes(each: Route, schemas: Json): Json {
  return Object.fromEntries(
    Object.entries(each.responses).map(([status, response]) => [status, success(response, each, schemas)]),
  );
}

function success(response: ResponseSpec, each: Route, schemas: Json): Json {
  const { description, headers = {} } = response;
  const keyed = each.idempotency !== 'none';
  const all = {
    'X-Request-Id': 'Identifies this request in our logs',
    ...(keyed ? { 'Idempotent-Replayed': '`true` if this is the stored answer of an earlier equal request' } : {}),
    ...(isInference(each) ? RATE_HEADERS : {}),
    ...headers,
  };
  return {
    description,
    headers: headerObjects(all),
    ...successContent(response, schemas),
  };
}

function successContent({ schema, eventSchema, mediaType, streamType }: ResponseSpec, schemas: Json): Json {
  if (mediaType !== undefined) return { content: { [mediaType]: { schema: { type: 'string', format: 'binary' } } } };
  if (schema === undefined) return {};
  const content: Json = { 'application/json': { schema: hoist(schemas, schema, 'output') } };
  if (streamType !== undefined) content[streamType] = { schema: { type: 'string' } };
  if (eventSchema !== undefined) {
    const data = { contentMediaType: 'application/json', contentSchema: hoist(schemas, eventSchema, 'output') };
    content['text/event-stream'] = { schema: { type: 'string', description: 'Server-sent events', ...data } };
  }
  return { content };
}

/** One response per status. It lists the error codes that can occur with it. */
function refusals(each: Route): Json {
  const byStatus = Map.groupBy(errorsOf(each), (code): number => ERRORS[code].status);
  return Object.fromEntries([...byStatus].map(([status, codes]) => [String(status), refusal(status, codes, each)]));
}

function refusal(status: number, codes: ErrorCode[], each: Route): Json {
  const { path } = each;
  const headers: Record<string, string> = { 'X-Request-Id': 'Identifies this request in our logs' };
  if (status === 401) headers['WWW-Authenticate'] = '`Bearer`';
  if (status === 403 && codes.includes('insufficient_scope')) {
    headers['WWW-Authenticate'] = '`Bearer error="insufficient_scope"` if the API key lacks a scope';
  }
  if (RETRY_STATUSES.has(status)) {
    headers['Retry-After'] = 'Number of whole seconds, at least 1, after which to try again. Absent if it is not known';
  }
  if (status === 429 && isInference(each)) Object.assign(headers, RATE_HEADERS);
  const spelled = isInferencePath(path) ? inferenceCode : (code: ErrorCode): string => code;
  return {
    description: codes.map((code) => `\`${spelled(code)}\`: ${ERRORS[code].title}`).join('\n\n'),
    headers: headerObjects(headers),
    content: refusalContent(codes, path),
  };
}

function refusalContent(codes: ErrorCode[], path: string): Json {
  const narrowed = (name: string, properties: Json): Json => ({
    schema: { allOf: [{ $ref: `#/components/schemas/${name}` }, { type: 'object', properties }] },
  });
  const description = 'The codes of this status';
  if (isOauthPath(path)) {
    return { 'application/json': narrowed('OauthError', { error: { description, enum: codes } }) };
  }
  if (!isInferencePath(path)) {
    return { 'application/problem+json': narrowed('Problem', { code: { description, enum: codes } }) };
  }
  const error = { description, type: 'object', properties: { code: { description, enum: codes.map(inferenceCode) } } };
  return { 'application/json': narrowed('InferenceError', { error }) };
}

function callbacks({ callback }: Route, schemas: Json): Json {
  if (callback === undefined) return {};
  const { name, url, description, schema, headers, answer } = callback;
  const parameters = Object.entries(headers).map(([header, text]) => ({
    name: header,
    in: 'header',
    required: true,
    description: text,
    schema: { type: 'string' },
  }));
  const content = { 'application/json': { schema: hoist(schemas, schema, 'output') } };
  const responses = {
    [answer.status]: { description: answer.description },
    '4XX': { description: 'The event is sent again later, as after any other answer' },
  };
  return {
    callbacks: {
      [name]: {
        [url]: {
          post: { summary: description, security: [], parameters, requestBody: { required: true, content }, responses },
        },
      },
    },
  };
}

/** Statuses after which a retry may succeed. */
const RETRY_STATUSES = new Set([409, 429, 503]);

function headerObjects(headers: Record<string, string>): Json {
  return Object.fromEntries(
    Object.entries(headers).map(([name, description]) => [name, { description, schema: { type: 'string' } }]),
  );
}

/** The JSON Schema of `schema`. Schemas with an id move to the components of the document and are referred to. */
function hoist(schemas: Json, schema: z.ZodType, io: 'input' | 'output'): Json {
  const id = schema.meta()?.id;
  const {
    $schema: _,
    $defs = {},
    id: __,
    ...own
  } = z.toJSONSchema(schema, {
    io,
    // The pattern of a date-time is long and says no more than its format.
    override: ({ jsonSchema }) => {
      if (jsonSchema.format !== undefined) delete jsonSchema.pattern;
    },
  });
  for (const [name, { id: ___, ...definition }] of Object.entries($defs)) schemas[name] = withComponentRefs(definition);
  const result = withComponentRefs(own);
  if (id === undefined) return result;
  // If zod has moved the schema itself into the definitions, this is only a reference to it.
  if (result['$ref'] === undefined) schemas[id] = result;
  return { $ref: `#/components/schemas/${id}` };
}

function withComponentRefs(schema: object): Json {
  const text = JSON.stringify(schema).replaceAll('"#/$defs/', '"#/components/schemas/');
  return z.record(z.string(), z.unknown()).parse(JSON.parse(text));
}

function scopeSentence({ scope, stepUp }: Route): string | undefined {
  if (scope === 'none' || scope === 'operator') return undefined;
  const needs = scope === 'session' ? 'Only for a signed-in person.' : `Needs the scope \`${scopeText(scope)}\`.`;
  return stepUp === true ? `${needs} A session must have been confirmed in the last ten minutes.` : needs;
}

function scopeList(): string {
  const scopes = Object.keys(SCOPES) as Scope[];
  return scopes.map((scope) => `- \`${scopeText(scope)}\`: ${SCOPES[scope]}`).join('\n');
}
