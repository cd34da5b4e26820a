// The declaration of one endpoint. The validation, types, checks, error codes and OpenAPI document of the endpoint all come from it.
import type { Readable } from 'node:stream';
import type { z } from 'zod';
import type { ErrorCode, ServiceError } from '../../../shared/errors.ts';
import type { Tx } from '../db/db.ts';
import type { Scope } from './scopes.ts';
import { isInferencePath } from '../../../shared/api/inference.ts';

/** Who sends a request: an API key of an organisation, or the session of a signed-in member. */
export interface Caller {
  /** Empty for a session that acts for no organisation. It has no scopes then. */
  orgId: string;
  /** The id of the API key or of the session. Idempotency, rate limits and operations belong to it. */
  principalId: string;
  scopes: readonly Scope[];
  /** Undefined for an API key. */
  session?: SessionFacts;
  /** Why the organisation may not do everything now; undefined for an organisation without restrictions. */
  restriction?: Restriction;
}

/** What a request may know about the session that sends it. */
export interface SessionFacts {
  userId: string;
  /** When the person last proved to be present: at the sign-in, or at a later step-up. */
  confirmedMs: number;
  /** An operator without a second factor may do nothing but set one up. */
  mustEnrol: boolean;
  /** The e-mail address of a person who operates this installation; undefined for everybody else. */
  operatorEmail: string | undefined;
}

/** `suspended`: by the operator. `unfunded`: it came by sign-up and has never had money. */
export type Restriction = 'suspended' | 'unfunded';

/** A value that is often there at once. A promise for it would cost more than the value. */
export type MaybePromise<T> = T | Promise<T>;

export interface Reply {
  status: number;
  /** Plain JSON data. A string is sent unchanged if `headers` has a `content-type`. */
  body?: unknown;
  /** Sent instead of a body. `headers` has its content type. Only for routes without an Idempotency-Key. */
  stream?: Readable;
  headers?: Record<string, string>;
}

/** A body that was not read yet. The handler decides how much of it to read and what it may contain. */
export interface Upload {
  /** The Content-Type header with its parameters; empty if there is none. */
  contentType: string;
  /** The Content-Length header; undefined for a chunked body. */
  bytes: number | undefined;
  stream: Readable;
}

export interface OpenCall<P, Q, B> {
  params: P;
  query: Q;
  body: B;
  /** The Range header. */
  range: string | undefined;
  /** The Accept header; empty if there is none. */
  accepts: string;
  /** The Accept-Encoding header; empty if there is none. */
  encodings: string;
  /** The Last-Event-ID header, with which a client of server-sent events continues. */
  lastEventId: string | undefined;
  requestId: string;
  clientIp: string;
  /** Aborts if the caller disconnects before its answer was sent completely. */
  gone: AbortSignal;
  /** The operator that the command names (header `Svc-Operator`), on the operator's socket. */
  actor: string;
  /** True: the body came as a form, so all its members are text. */
  isForm: boolean;
  /** What a browser sends with each request. */
  browser(): { sessionToken: string | undefined; userAgent: string };
}

export interface Call<P, Q, B> extends OpenCall<P, Q, B> {
  caller: Caller;
  /**
   * Routes with an Idempotency-Key call this inside the transaction of the effect. It stores the reply together with the effect. If another
   * request has taken the claim over, it throws, which rolls the effect back. Does nothing for a request without a key.
   */
  settle(tx: Tx, reply: Reply): Promise<void>;
}

/** The call of a person who has signed in. */
export interface SessionCall<P, Q, B> extends Call<P, Q, B> {
  caller: Caller & { session: SessionFacts };
}

/**
 * `none`: no API key is needed. `session`: only for a session, whatever its scopes. `operator`: only on the operator's unix socket, whose
 * file mode is the authentication.
 */
export type RouteScope = Scope | 'none' | 'session' | 'operator';

export interface ResponseSpec {
  description: string;
  schema?: z.ZodType;
  /** The data of each server-sent event, if the caller asks for a stream. */
  eventSchema?: z.ZodType;
  /** Another media type, which the caller may ask for. It is sent as a stream. */
  streamType?: string;
  /** The response is a stream of bytes of this media type. */
  mediaType?: string;
  /** Header name -> description. */
  headers?: Record<string, string>;
}

/** A request that we send, with retries, to a URL that the caller of a route has given. */
export interface CallbackSpec {
  name: string;
  /** The place of the URL, as an OpenAPI runtime expression. */
  url: string;
  description: string;
  /** Header name -> description. */
  headers: Record<string, string>;
  schema: z.ZodType;
  /** The response that the receiver must give. */
  answer: { status: string; description: string };
}

export interface UploadSpec {
  /** The accepted media types and the schema of each; any type if left out. */
  mediaTypes?: Record<string, z.ZodType>;
}

export interface RouteFacts {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** The path of the route, for example `/v1/instances/{id}`. */
  path: string;
  operationId: string;
  tag: string;
  summary: string;
  description?: string;
  scope: RouteScope;
  idempotency: 'required' | 'optional' | 'none';
  /** The successful responses. */
  responses: Record<number, ResponseSpec>;
  /** Codes of the handler, beyond those of every route (authentication, schema, idempotency, internal errors). */
  errors: readonly ErrorCode[];
  /** The response shows a secret once. Its stored copy for a repeated request is sealed. */
  secretReply?: boolean;
  /** Never rate-limited, for routes that load balancers call. */
  unlimited?: boolean;
  /** Limit of the body, if it is not `BODY_BYTES_MAX`. */
  bodyBytesMax?: number;
  /** The handler gets the body as a stream (`uploadRoute`). */
  upload?: UploadSpec;
  /** The body may also be multipart/form-data without files. */
  takesForm?: boolean;
  /** The path ends with `{id}`, which may contain slashes, plain or as %2F. */
  idHasSlashes?: boolean;
  callback?: CallbackSpec;
  /** The handler confirms in a transaction of its own that the API key still lives, so it may be authenticated from memory. */
  confirmsKey?: boolean;
  /** A POST that ends something, like a DELETE. It is accepted while the disk of the database is full. */
  endsSomething?: boolean;
  /** True for routes of agents and operators, which the OpenAPI document leaves out. */
  hidden?: boolean;
  /** A session must have been confirmed in the last ten minutes. API keys need nothing more. */
  stepUp?: boolean;
  /** True: the request costs money now or later, so a suspended organisation may not send it. */
  spends?: boolean;
  /** A route without authentication that sets the cookie of a session. A browser may call it only from our own pages. */
  signsIn?: boolean;
  /** Callers that send the same URL at the same moment get one answer (`sharedRoute`). */
  isShared?: boolean;
  /**
   * Each control plane answers it itself. A secondary passes all other requests on to the primary. Left out, it is true for a GET, which only
   * reads the database.
   */
  everywhere?: boolean;
}

type HandlerCall<S extends RouteScope, P, Q, B> = S extends 'none' | 'operator'
  ? OpenCall<P, Q, B>
  : S extends 'session'
    ? SessionCall<P, Q, B>
    : Call<P, Q, B>;

interface RouteSpec<
  S extends RouteScope,
  P extends z.ZodType,
  Q extends z.ZodType,
  B extends z.ZodType,
> extends RouteFacts {
  scope: S;
  /** Strict zod objects. Their `.describe()` texts go into the document. Without a schema, nothing is accepted in that part. */
  params?: P;
  query?: Q;
  body?: B;
  /** True for a body that the schema would accept and leave unchanged. The most common requests then need no run of the schema. */
  isPlain?(body: unknown): boolean;
  handler(call: HandlerCall<S, z.output<P>, z.output<Q>, z.output<B>>): Promise<Reply>;
}

/** A route without its handler types. The server parses a request with the schemas before it calls the handler. */
export interface Route extends RouteFacts {
  params?: z.ZodType;
  query?: z.ZodType;
  body?: z.ZodType;
  isPlain?(body: unknown): boolean;
  handler(call: Call<unknown, unknown, unknown>): Promise<Reply>;
}

/** Declares a route. The schemas and the scope determine the type of the handler's `call`. */
export function route<
  S extends RouteScope,
  P extends z.ZodType = z.ZodType<undefined>,
  Q extends z.ZodType = z.ZodType<undefined>,
  B extends z.ZodType = z.ZodType<undefined>,
>(spec: RouteSpec<S, P, Q, B>): Route {
  // This cast is sound because the server passes only values that these schemas have parsed.
  return spec as unknown as Route;
}

interface UploadRouteSpec<S extends RouteScope, P extends z.ZodType, Q extends z.ZodType> extends RouteFacts {
  scope: S;
  /** A repeated request is recognised by its body, and the body of an upload is not kept. */
  idempotency: 'none';
  upload: UploadSpec;
  params?: P;
  query?: Q;
  handler(call: HandlerCall<S, z.output<P>, z.output<Q>, Upload>): Promise<Reply>;
}

/** Declares a route whose handler reads the body itself, as a stream. */
export function uploadRoute<
  S extends RouteScope,
  P extends z.ZodType = z.ZodType<undefined>,
  Q extends z.ZodType = z.ZodType<undefined>,
>(spec: UploadRouteSpec<S, P, Q>): Route {
  return spec as unknown as Route;
}

interface SharedRouteSpec<P extends z.ZodType, Q extends z.ZodType> extends Omit<RouteFacts, 'isShared'> {
  method: 'GET';
  scope: 'none';
  idempotency: 'none';
  params?: P;
  query?: Q;
  /** Gets nothing that tells callers apart, because its reply is for several of them. */
  handler(call: { params: z.output<P>; query: z.output<Q> }): Promise<Omit<Reply, 'stream'>>;
}

/** Declares a route for what is public. Callers that send the same URL at the same moment get one answer. */
export function sharedRoute<P extends z.ZodType = z.ZodType<undefined>, Q extends z.ZodType = z.ZodType<undefined>>(
  spec: SharedRouteSpec<P, Q>,
): Route {
  return { ...spec, isShared: true } as unknown as Route;
}

/** A request to a model. Its response has rate headers. Polling a job is not such a request. */
export function isInference({ scope, method }: Pick<RouteFacts, 'scope' | 'method'>): boolean {
  return scope === 'serverless:write' && method === 'POST';
}

/** Whether the request may add rows to the database. */
export function storesSomething({ method, endsSomething = false }: RouteFacts): boolean {
  return method !== 'GET' && method !== 'DELETE' && !endsSomething;
}

/** The codes without duplicates, the route's own first. The OpenAPI document lists them. Strict servers refuse to send others. */
export function errorsOf(route: Route): ErrorCode[] {
  const { method, idempotency, path, body, upload } = route;
  const codes: ErrorCode[] = [...route.errors, 'invalid_request', 'validation_failed', 'rate_limit_exceeded'];
  codes.push(...refusalsOfCallers(route));
  // Every method except GET may have a body, which may be wrong.
  if (method !== 'GET') codes.push('body_too_large', 'unsupported_media_type');
  if (method !== 'GET' && upload === undefined) codes.push('malformed_json');
  if (body !== undefined && isInferencePath(path)) codes.push('unsupported_parameter');
  if (idempotency === 'required') codes.push('idempotency_key_required');
  if (idempotency !== 'none') {
    codes.push('idempotency_key_invalid', 'idempotency_key_in_use', 'idempotency_key_reused');
  }
  codes.push('internal_error', 'unavailable');
  return [...new Set(codes)];
}

function refusalsOfCallers(route: Route): ErrorCode[] {
  const { scope, method, stepUp, spends, signsIn } = route;
  if (signsIn === true) return ['origin_refused'];
  if (scope === 'none' || scope === 'operator') return [];
  const codes: ErrorCode[] = ['unauthorized', scope === 'session' ? 'session_required' : 'insufficient_scope'];
  if (scope !== 'session') codes.push('second_factor_required');
  if (method !== 'GET') codes.push('origin_refused');
  if (stepUp === true) codes.push('step_up_required');
  if (spends === true) codes.push('org_suspended');
  if (needsFunds(route)) codes.push('org_unfunded');
  return codes;
}

/**
 * The scopes of routes that do not need funds. A supplier brings machines and may never pay for anything, a deposit brings the first money,
 * and the routes of the other three scopes spend no money of an organisation.
 */
const WITHOUT_FUNDS: ReadonlySet<RouteScope> = new Set<RouteScope>([
  'none',
  'session',
  'operator',
  'supply:write',
  'deposits:write',
]);

/**
 * Whether the route is refused for an organisation that has never had money. That is every route that changes something, except those that
 * end something.
 */
export function needsFunds({ scope, method, endsSomething = false }: RouteFacts): boolean {
  return !WITHOUT_FUNDS.has(scope) && method !== 'GET' && method !== 'DELETE' && !endsSomething;
}

/** The introduction of the document names these for all routes. */
const ANY_REQUEST: readonly ErrorCode[] = ['headers_too_large', 'request_timeout'];

/** An error that reports an undeclared code of the route; undefined if the code is declared. */
export function undeclared(route: Route, error: ServiceError): Error | undefined {
  if (errorsOf(route).includes(error.code) || ANY_REQUEST.includes(error.code)) return undefined;
  return new Error(`${route.operationId} failed with ${error.code}, which it does not declare`, { cause: error });
}

/** A reply in its final form: it is sent, and stored for a repeated request. */
export interface WireReply {
  status: number;
  /** Header names are in lower case. */
  headers: Record<string, string>;
  body: string;
  /** Sent instead of the body. */
  stream?: Readable;
}

export function toWire(reply: Reply): WireReply {
  const headers: Record<string, string> = {};
  for (const name in reply.headers) headers[name.toLowerCase()] = reply.headers[name] ?? '';
  if (reply.stream !== undefined) return { status: reply.status, headers, body: '', stream: reply.stream };
  if (reply.body === undefined) return { status: reply.status, headers, body: '' };
  if (typeof reply.body === 'string' && headers['content-type'] !== undefined) {
    return { status: reply.status, headers, body: reply.body };
  }
  const contentType = headers['content-type'] ?? 'application/json; charset=utf-8';
  return {
    status: reply.status,
    headers: { ...headers, 'content-type': contentType },
    body: JSON.stringify(reply.body),
  };
}
