// The HTTP server: turns requests into handler calls, and what handlers return or throw into responses.
import type { IncomingMessage, ServerOptions } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Server as TlsServer } from 'node:tls';
import { fastify, type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import type { Clock } from '../../../shared/clock.ts';
import { insteadOf } from '../../../shared/api/inference.ts';
import { fail, type ServiceError } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { throttledLog } from '../../../shared/log.ts';
import { BODY_BYTES_MAX, HEADER_BYTES_READ_MAX } from '../../../shared/limits.ts';
import type { Db } from '../db/db.ts';
import { logAcceptErrors } from '../../../shared/accept-errors.ts';
import { type AddressLimit, openAddressLimit } from './address-limit.ts';
import type { AnswerDeps } from './answer.ts';
import { takeBodies } from './bodies.ts';
import { assertHead } from './checks.ts';
import { type Documents, openDocuments } from './documents.ts';
import { openIdempotency } from './idempotency.ts';
import type { Metrics } from './metrics.ts';
import { openapiDocument } from './openapi.ts';
import { openRateLimits, type RateLimitOptions } from './rate-limits.ts';
import { type Route, storesSomething, type WireReply } from './route.ts';
import { finish, pathOf, type RouteDeps, sendError, serveRoute } from './serve-route.ts';
import type { Sealing } from './sealing.ts';
import { listenOn, type ListenAddress, silentConnections } from './listen.ts';
import { afterRest, leaveUnread, limitArrival, REQUEST_MS_MAX, UPLOAD_MS_MAX } from './uploads.ts';
import { openPassOn, type Primary } from './pass-on.ts';
import { openUnsent, type Unsent } from './unsent.ts';
import { systemRoutes } from './system-routes.ts';
import type { Tls } from './tls.ts';
import { answerUnusual, endWith, refuseUnread } from './unread-requests.ts';
import { openUpgrades, type UpgradeListener, type Upgrades } from './upgrades.ts';

/** Time limit for requests in progress when the server closes. */
const CLOSE_MS_MAX = 10_000;
/** Without `includeSubDomains`, because hosts below this one may be of others. */
const STRICT_TRANSPORT = 'max-age=31536000';
/** The longest id of ours has 36 characters, but a path may also contain registry names and file names. */
const PATH_PARAMETER_CHARS_MAX = 256;

export interface HttpDeps extends Pick<RouteDeps, 'log' | 'authenticate' | 'hasRoom'> {
  /** Undefined for listeners that browsers do not reach. */
  authenticateSession?: RouteDeps['authenticateSession'];
  clock: Clock;
  ids: Ids;
  db: Db;
  metrics: Metrics;
  /** Reasons why this process cannot serve now; empty if it is ready. */
  ready(): Promise<string[]>;
}

export interface HttpOptions {
  /** Grows with every start of the control plane (the epoch of the lease `primary`). Asked at each claim: a secondary may become the primary. */
  epoch(): number;
  /** `operator`: only for the unix socket, the only listener that accepts routes with the scope `operator`. */
  audience: 'public' | 'operator';
  /** The public address of the API with `/v1`, for the OpenAPI document. */
  baseUrl: string;
  /** Addresses or networks of proxies whose X-Forwarded-For is trusted. */
  trustProxy: string[];
  /** No limits if left out, for listeners that only the operator can reach. */
  rateLimits?: RateLimitOptions;
  /** Limit of open connections per address; none if left out. */
  connectionsPerAddressMax?: number;
  /** Asked at each request and upgrade: who serves what is not `everywhere`. This process does if it is left out. */
  primary?: () => Primary;
  /** The id of this process among the control planes of its database; without it, nothing is passed on to this listener. */
  member?: string;
  /** The server's secret, for listeners whose routes take an Idempotency-Key, and for `member` and `primary`. */
  sealing?: Sealing;
  /** Plain HTTP if left out: on a unix socket, or behind a proxy that terminates TLS. */
  tls?: Tls;
  /**
   * With `tls`, browsers are told to speak nothing but TLS to this host name for a year, at whatever port. It must be left out if the host name has
   * ports of somebody else.
   */
  isOnlyTls?: boolean;
  /** Tests set it: an undeclared reply or refusal becomes an internal error. */
  strictResponses?: boolean;
}

export interface InjectedRequest {
  method: Route['method'];
  url: string;
  headers?: Record<string, string>;
  /** Sent as JSON; a string is sent unchanged. */
  payload?: object | string;
}

export interface Http {
  /** Must be called before the first `listen` or `inject`. */
  register(routes: Route[]): void;
  /** The port is 0 for a unix socket. */
  listen(address: ListenAddress): Promise<{ port: number }>;
  /** Passes upgrade requests on paths that begin with `pathPrefix` to the listener, which authenticates them. */
  onUpgrade(pathPrefix: string, listener: UpgradeListener): void;
  /** Applies from the next request on. */
  setRateLimits(next: RateLimitOptions): void;
  /** The OpenAPI 3.1 document of the public routes. */
  openapi(): object;
  /** Deletes replies older than 24 hours and returns their number. */
  purgeIdempotencyKeys(signal: AbortSignal): Promise<number>;
  /** Handles a request without a network, as if it had arrived over one. */
  inject(request: InjectedRequest): Promise<WireReply>;
  /** Stops accepting, lets requests in progress finish, then closes the rest. */
  close(): Promise<void>;
}

export function openHttp(deps: HttpDeps, options: HttpOptions): Http {
  const { clock } = deps;
  const routes: Route[] = [];
  // Anyone can ask and not read, so the log lines of an address are limited.
  const unsent = openUnsent(throttledLog(deps.log, clock));
  const app = createServer({ ...deps, unsent }, options, (path) => upgrades.takes(path));
  const idempotency = openIdempotency({ ...deps, epoch: options.epoch });
  const { sealing, strictResponses = false } = options;
  const answerDeps: AnswerDeps = { idempotency, sealing, strictResponses };
  const limits = options.rateLimits === undefined ? undefined : openRateLimits(options.rateLimits, clock);
  const connections = limitConnections(app, options, deps);
  const { trustProxy, primary = () => 'self', member } = options;
  const passOn = openPassOn(app, { ...deps, primary, member, sealing, limits, trustProxy });
  const refuse = (refusal: ServiceError, socket: Duplex): void => endWith(refusal, socket, deps);
  const upgrades: Upgrades = openUpgrades({ trustProxy, limits, connections, passOn, refuse });
  const { authenticateSession = async (): Promise<undefined> => undefined } = deps;
  const routeDeps = { ...deps, authenticateSession, limits, unsent, origin: new URL(options.baseUrl).origin };
  let known: Documents | undefined;
  const documents = (): Documents => (known ??= openDocuments(openapiDocument(routes, options.baseUrl)));

  const register = (more: Route[]): void => {
    known = undefined;
    for (const each of more) {
      assertPlaced(each, options);
      routes.push(each);
      const mayWait = options.audience === 'public' && storesSomething(each);
      const add = (to: FastifyInstance): void => serveRoute(to, each, { ...routeDeps, mayWait }, answerDeps);
      if (each.upload === undefined) add(app);
      else void app.register(async (scope) => (leaveUnread(scope), add(scope)));
    }
  };

  upgrades.serve(app.server);
  // The hook runs before the body is read: a body of any type and size is refused for its path.
  app.addHook('onRequest', (request, reply, done) => {
    if (!request.is404) return done();
    finish(() => {
      limits?.takeForIp(request.ip);
      refuseUnknown(routes, request, reply);
    }, done);
  });
  answerUnusual(app.server, deps);
  register(systemRoutes({ ready: deps.ready, documents }));

  return {
    register,
    openapi: () => documents().openapi,
    onUpgrade: upgrades.add,
    setRateLimits: (next) => limits?.change(next),
    purgeIdempotencyKeys: idempotency.purge,
    listen: (address) => listen(app, address, deps),
    inject: async (request) => {
      const response = await app.inject(request);
      const named = Object.entries(response.headers).map(([name, value]): [string, string] => [name, String(value)]);
      return { status: response.statusCode, headers: Object.fromEntries(named), body: response.body };
    },
    close: async () => {
      const cancel = clock.after(CLOSE_MS_MAX, () => {
        app.server.closeAllConnections();
        upgrades.cut();
      });
      await app.close();
      passOn.close();
      cancel();
    },
  };
}

async function listen(
  app: FastifyInstance,
  address: ListenAddress,
  deps: Pick<HttpDeps, 'log' | 'clock'>,
): Promise<{ port: number }> {
  await listenOn(app, address);
  const bound: AddressInfo | string | null = app.server.address();
  const port = typeof bound === 'object' && bound !== null ? bound.port : 0;
  logAcceptErrors(app.server, { port }, deps);
  return { port };
}

function limitConnections(
  app: FastifyInstance,
  options: HttpOptions,
  deps: Pick<HttpDeps, 'log' | 'clock'>,
): AddressLimit | undefined {
  const { connectionsPerAddressMax: max, trustProxy: trusted } = options;
  if (max === undefined) return undefined;
  const limit = openAddressLimit({ max, trusted }, deps);
  app.server.on('connection', (socket: Socket) => void limit.admit(socket));
  return limit;
}

function createServer(
  deps: HttpDeps & { unsent: Unsent },
  options: HttpOptions,
  takesUpgrade: (path: string) => boolean,
): FastifyInstance {
  const { ids, log, metrics } = deps;
  const isOnlyTls = options.tls !== undefined && options.isOnlyTls === true;
  let closing = false;
  /** The path of the last request of each connection. */
  const paths = new WeakMap<Duplex, string>();
  const app: FastifyInstance = fastify({
    ...nodeOptions(options.tls, takesUpgrade),
    logger: false,
    bodyLimit: BODY_BYTES_MAX,
    requestTimeout: UPLOAD_MS_MAX,
    requestIdHeader: false,
    genReqId: (request) => requestIdOf(request) ?? ids.prefixed('req'),
    trustProxy: options.trustProxy.length > 0 ? options.trustProxy : false,
    forceCloseConnections: 'idle',
    return503OnClosing: false,
    routerOptions: { maxParamLength: PATH_PARAMETER_CHARS_MAX, ignoreTrailingSlash: true },
    frameworkErrors: (error, request, reply) => void sendError(error, request, reply, log),
    clientErrorHandler: (error, socket) => refuseUnread(error, socket, { ...deps, path: paths.get(socket) }),
  });
  options.tls?.serve(app.server as unknown as TlsServer);
  app.removeAllContentTypeParsers();
  takeBodies(app);
  app.decorateRequest('admitted', undefined);
  app.addHook('onRequest', (request, reply, done) => {
    finish(() => {
      paths.set(request.raw.socket, pathOf(request));
      deps.unsent.watch(reply.raw);
      if (isOnlyTls) reply.header('strict-transport-security', STRICT_TRANSPORT);
      const { isUpload = false } = request.routeOptions.config;
      limitArrival({ request: request.raw, response: reply.raw, isUpload }, deps.clock, () => {
        const late = Object.assign(new Error('the body is late'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' });
        app.server.emit('clientError', late, request.raw.socket);
      });
      assertHead(request.raw, () => void reply.header('connection', 'close'));
    }, done);
  });
  const silent = silentConnections(app.server, options.tls);
  app.addHook('preClose', async () => {
    closing = true;
    // A request that has arrived with its connection is read first.
    await deps.clock.nextTurn();
    for (const socket of silent) socket.destroy();
  });
  app.addHook('onSend', (request, reply, _payload, done) => {
    // Node would keep the connection open after the last response, and the close would wait for it.
    if (closing) reply.header('connection', 'close');
    afterRest({ request: request.raw, response: reply.raw }, deps.clock, () => done());
  });
  app.addHook('onResponse', (request, reply, done) => {
    const labels = { method: request.method, route: request.routeOptions.url ?? 'unmatched', status: reply.statusCode };
    metrics.observeRequest(labels, reply.elapsedTime / 1000);
    log.debug({ request_id: request.id, ...labels, duration_ms: Math.round(reply.elapsedTime) }, 'request');
    // The head of an answer that began before the end has promised that its connection stays.
    if (closing) app.server.closeIdleConnections();
    done();
  });
  app.setErrorHandler((error, request, reply) => sendError(error, request, reply, log));
  return app;
}

/** Options for Node's own server. The types of fastify distinguish http and https servers, our code does not. */
function nodeOptions(tls: Tls | undefined, takesUpgrade: (path: string) => boolean): { http?: ServerOptions } {
  const options: ServerOptions = {
    // Larger than our own limit. The parser does not know the path, so it could not choose the form of the refusal. `assertHead` refuses
    // long headers instead.
    maxHeaderSize: HEADER_BYTES_READ_MAX,
    headersTimeout: REQUEST_MS_MAX,
    // Node would answer with a bare status; `assertHead` gives the reason.
    requireHostHeader: false,
    // If this were missing, a client that offers h2c on a plain request would get no response.
    shouldUpgradeCallback: (request) => takesUpgrade(request.url ?? ''),
  };
  if (tls === undefined) return { http: options };
  return { https: { ...options, ...tls.options() } } as { http?: ServerOptions };
}

declare module 'fastify' {
  interface FastifyContextConfig {
    isUpload?: boolean;
  }
}

function assertPlaced(each: Route, { audience, sealing }: HttpOptions): void {
  if (each.scope === 'operator' && audience !== 'operator') {
    throw new Error(`${each.operationId} is an operator's route: it must not be reachable by the public listener`);
  }
  if (each.idempotency !== 'none' && (each.scope === 'none' || each.scope === 'operator')) {
    throw new Error(`${each.operationId} has no API key to keep an Idempotency-Key under`);
  }
  if (each.secretReply === true && each.idempotency !== 'none' && sealing === undefined) {
    throw new Error(`${each.operationId} answers with a secret: this listener needs a sealing to store it`);
  }
}

/** @throws ServiceError `not_found`, `method_not_allowed` */
function refuseUnknown(routes: Route[], request: FastifyRequest, reply: FastifyReply): never {
  const path = pathOf(request).replace(/(?<=.)\/$/, '');
  const allowed = routes.filter((each) => pathPattern(each).test(path)).map((each) => each.method);
  if (allowed.length === 0) {
    const next = insteadOf(path) ?? 'GET /v1/openapi.json names all that there is';
    fail('not_found', `There is nothing at ${path}. ${next}.`);
  }
  reply.header('allow', allowed.join(', '));
  fail('method_not_allowed', `${path} does not take ${request.method}, only ${allowed.join(', ')}.`);
}

function pathPattern({ path, idHasSlashes }: Route): RegExp {
  const parameter = idHasSlashes === true ? '.+' : '[^/]+';
  return new RegExp(`^${path.replaceAll('.', '\\.').replaceAll(/\{\w+\}/g, parameter)}$`);
}

function requestIdOf(request: IncomingMessage): string | undefined {
  const given = request.headers['x-request-id'];
  return typeof given === 'string' && /^[\w.-]{1,128}$/.test(given) ? given : undefined;
}
