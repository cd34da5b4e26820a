// What a room says about one endpoint. Validation, types, the OpenAPI document and the checks of a request all come from this.
import type { Readable } from 'node:stream';
import type { z } from 'zod';
import type { ErrorCode } from '../../../shared/errors.ts';
import type { Tx } from '../db/db.ts';
import type { Scope } from './scopes.ts';

/** Who asks: an API key of an organisation. */
export interface Caller {
  orgId: string;
  apiKeyId: string;
  scopes: readonly Scope[];
}

export interface Reply {
  status: number;
  /** Plain JSON data. A string is sent as it is where `headers` names its `content-type`. */
  body?: unknown;
  /** Instead of a body: sent as it comes; `headers` names its content type. Only where no Idempotency-Key is taken. */
  stream?: Readable;
  headers?: Record<string, string>;
}

/** A body that nobody has read yet. How much of it is read, and what it may be, is the handler's to say. */
export interface Upload {
  /** The Content-Type header with its parameters; empty where there is none. */
  contentType: string;
  /** From the Content-Length header; undefined where its end shows its length. */
  bytes: number | undefined;
  stream: Readable;
}

export interface OpenCall<P, Q, B> {
  params: P;
  query: Q;
  body: B;
  /** The Range header. */
  range: string | undefined;
  requestId: string;
  clientIp: string;
  /** Aborts where the caller is gone before its answer was sent whole. */
  gone: AbortSignal;
  /** On the operator's socket: who the command says it is (header `Svc-Operator`). */
  actor: string;
  /** The body came as a form: its members are texts. */
  isForm: boolean;
}

export interface Call<P, Q, B> extends OpenCall<P, Q, B> {
  caller: Caller;
  /**
   * Routes with an Idempotency-Key call this inside the effect's transaction: it stores the reply with the effect, or throws
   * (and so rolls the effect back) where another request has taken the claim over. Does nothing for a request without a key.
   */
  settle(tx: Tx, reply: Reply): Promise<void>;
}

/** `none`: no API key is asked for. `operator`: only on the operator's unix socket, whose file mode is the authentication. */
export type RouteScope = Scope | 'none' | 'operator';

export interface ResponseSpec {
  description: string;
  schema?: z.ZodType;
  /** What comes where the caller asks for a stream: the data of each server-sent event. */
  eventSchema?: z.ZodType;
  /** Bytes of this media type come, as a stream. */
  mediaType?: string;
  /** Header name -> description. */
  headers?: Record<string, string>;
}

/** What we send, later and again and again, to a URL that the caller of a route has named. */
export interface CallbackSpec {
  name: string;
  /** Where the URL stands, as an OpenAPI runtime expression. */
  url: string;
  description: string;
  /** Header name -> description. */
  headers: Record<string, string>;
  schema: z.ZodType;
  /** What the receiver has to answer. */
  answer: { status: string; description: string };
}

export interface UploadSpec {
  /** Of the bodies that are taken, with what such a body holds; left out, any. */
  mediaTypes?: Record<string, z.ZodType>;
}

export interface RouteFacts {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** `/v1/instances/{id}` */
  path: string;
  operationId: string;
  tag: string;
  summary: string;
  description?: string;
  scope: RouteScope;
  idempotency: 'required' | 'optional' | 'none';
  /** The successful answers. */
  responses: Record<number, ResponseSpec>;
  /** What the handler may fail with, beyond what every route can (authentication, schema, idempotency, internal errors). */
  errors: readonly ErrorCode[];
  /** The answer shows a secret once: what is kept of it for an equal request is sealed. */
  secretReply?: boolean;
  /** Load balancers ask it: it is never refused because of too many requests. */
  unlimited?: boolean;
  /** Of the body, where it is not `BODY_BYTES_MAX`. */
  bodyBytesMax?: number;
  /** The handler gets the body as it comes (`uploadRoute`). */
  upload?: UploadSpec;
  /** The body may come as multipart/form-data too, without files. */
  takesForm?: boolean;
  /** The path ends with `{id}`, and that may hold slashes, as they are or as %2F. */
  idHasSlashes?: boolean;
  callback?: CallbackSpec;
  /** A POST that ends something, as a DELETE does: it is taken in while the disk of the database is full. */
  endsSomething?: boolean;
  /** Agents' and operators' routes: not in the OpenAPI document. */
  hidden?: boolean;
}

type HandlerCall<S extends RouteScope, P, Q, B> = S extends 'none' | 'operator' ? OpenCall<P, Q, B> : Call<P, Q, B>;

interface RouteSpec<
  S extends RouteScope,
  P extends z.ZodType,
  Q extends z.ZodType,
  B extends z.ZodType,
> extends RouteFacts {
  scope: S;
  /** Strict zod objects; their `.describe()` texts go into the document. Left out: nothing is accepted there. */
  params?: P;
  query?: Q;
  body?: B;
  handler(call: HandlerCall<S, z.output<P>, z.output<Q>, z.output<B>>): Promise<Reply>;
}

/** A route whose types have done their work: the server parses by the schemas before it calls the handler. */
export interface Route extends RouteFacts {
  params?: z.ZodType;
  query?: z.ZodType;
  body?: z.ZodType;
  handler(call: Call<unknown, unknown, unknown>): Promise<Reply>;
}

/** Declares a route; the type of the handler's `call` follows from the schemas and the scope. */
export function route<
  S extends RouteScope,
  P extends z.ZodType = z.ZodType<undefined>,
  Q extends z.ZodType = z.ZodType<undefined>,
  B extends z.ZodType = z.ZodType<undefined>,
>(spec: RouteSpec<S, P, Q, B>): Route {
  // Sound because the server hands over what these very schemas have parsed.
  return spec as unknown as Route;
}

interface UploadRouteSpec<S extends RouteScope, P extends z.ZodType, Q extends z.ZodType> extends RouteFacts {
  scope: S;
  /** What a request with an Idempotency-Key would be compared by is its body, which nobody keeps. */
  idempotency: 'none';
  upload: UploadSpec;
  params?: P;
  query?: Q;
  handler(call: HandlerCall<S, z.output<P>, z.output<Q>, Upload>): Promise<Reply>;
}

/** The same for a route whose handler reads the body itself, piece by piece. */
export function uploadRoute<
  S extends RouteScope,
  P extends z.ZodType = z.ZodType<undefined>,
  Q extends z.ZodType = z.ZodType<undefined>,
>(spec: UploadRouteSpec<S, P, Q>): Route {
  return spec as unknown as Route;
}

/** A request to a model: what limits the rate of those is told in the headers of the answer. Whoever follows a job asks no model. */
export function isInference({ scope, method }: Pick<RouteFacts, 'scope' | 'method'>): boolean {
  return scope === 'serverless:write' && method === 'POST';
}

/** Whether more is kept after the request than before it. */
export function storesSomething({ method, endsSomething = false }: RouteFacts): boolean {
  return method !== 'GET' && method !== 'DELETE' && !endsSomething;
}
