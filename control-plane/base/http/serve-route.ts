// One route in fastify: admits a request before its body is read, lets the route answer it, and sends the reply or the refusal.
//
// What runs for each request avoids promises: a key in memory, a check and a header are there at once.
import type { ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import { ERRORS, type ServiceError } from '../../../shared/errors.ts';
import { DbError } from '../db/db.ts';
import { answer, type AnswerDeps } from './answer.ts';
import { assertConfirmed, assertOwnChange, assertOwnPage, assertShown, sessionTokenOf } from './browsers.ts';
import { assertMay, assertUnrestricted, failEndedSession, tokenOf } from './checks.ts';
import { isForm } from './multipart.ts';
import { wholeBody } from './bodies.ts';
import { abandonedRequest, internalError, knownError } from './problems.ts';
import type { RateLimits } from './rate-limits.ts';
import { refusalReply } from './refusals.ts';
import { type Caller, isInference, type MaybePromise, type Route, undeclared, type WireReply } from './route.ts';
import type { Scope } from './scopes.ts';
import type { Unsent } from './unsent.ts';
import { openSharedAnswers } from './shared-answers.ts';
import { assertMediaType, uploadOf } from './uploads.ts';

/** A body that comes this long after its head is late. Most clients send both at once. On a slow line a late body costs one more read of its key. */
const LATE_MS = 1_000;

export interface RouteDeps {
  log: Log;
  /** Undefined for a key that is unknown, revoked or expired. With `confirmsKey`, the handler confirms the key once more. */
  authenticate(token: string, how: { confirmsKey: boolean }): MaybePromise<Caller | undefined>;
  /** Undefined for a session that is unknown or over. */
  authenticateSession(token: string): Promise<Caller | undefined>;
  /** The only origin whose pages may use the cookie of a session. */
  origin: string;
  clock: Clock;
  /** False while the disk of the database is full. Then only requests that end things are accepted. */
  hasRoom(): boolean;
  limits: RateLimits | undefined;
  unsent: Unsent;
  /** True: requests to this route are refused while the disk of the database is full. */
  mayWait: boolean;
}

export function serveRoute(app: FastifyInstance, each: Route, deps: RouteDeps, answerDeps: AnswerDeps): void {
  const share = openSharedAnswers<WireReply>(deps.clock);
  app.route({
    method: each.method,
    url: urlPattern(each),
    ...(each.bodyBytesMax === undefined ? {} : { bodyLimit: each.bodyBytesMax }),
    config: {
      isUpload: each.upload !== undefined,
      takesForm: each.takesForm === true,
      everywhere: each.everywhere ?? each.method === 'GET',
    },
    // Runs before the body is read, so that strangers cannot send one.
    onRequest: (request, reply, done) => finish(() => admit(each, { request, reply }, deps), done),
    errorHandler: (error, request, reply) => {
      const known = knownError(error);
      if (known !== undefined && !isInference(each)) noteRefusal(known, request, deps.log);
      const strict = answerDeps.strictResponses ? known : undefined;
      void sendError((strict && undeclared(each, strict)) ?? error, request, reply, deps.log);
    },
    handler: async (request, reply) => {
      // Before the first wait, because a caller that leaves is noticed only from here on.
      const gone = goneSignal(reply.raw);
      const admitted = request.getDecorator<Admitted | undefined>('admitted');
      const isLate = admitted !== undefined && deps.clock.monotonicMs() - admitted.atMs >= LATE_MS;
      const make = async (): Promise<WireReply> =>
        answer(
          each,
          {
            raw: request.raw,
            params: paramsOf(each, request.params),
            query: request.query,
            body: each.upload === undefined ? wholeBody(request) : uploadOf(request.raw),
            path: pathOf(request),
            caller: isLate ? await admitAgain(admitted.scope, each, request, deps) : admitted?.caller,
            requestId: request.id,
            clientIp: request.ip,
            gone,
            isForm: isForm(request),
          },
          answerDeps,
        );
      const wire = await (each.isShared === true ? share(request.url, make) : make());
      deps.unsent.hold(reply.raw, wire.body.length);
      return send(reply, wire);
    },
  });
}

interface Admitted {
  caller: Caller;
  scope: Scope | 'session';
  atMs: number;
}

/** Calls `done` when the work has ended, with what it threw: at once, unless the work returns a promise. fastify does not catch errors here. */
export function finish(work: () => MaybePromise<void>, done: (error?: Error) => void): void {
  try {
    const working = work();
    if (working instanceof Promise) void settle(working, done);
    else done();
  } catch (error) {
    done(errorOf(error));
  }
}

async function settle(working: Promise<void>, done: (error?: Error) => void): Promise<void> {
  done(await working.then(() => undefined, errorOf));
}

function errorOf(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(`a check threw ${typeof thrown}`);
}

/** @throws ServiceError if the request may not be read; DbError `disk_full` */
function admit(
  each: Route,
  { request, reply }: { request: FastifyRequest; reply: FastifyReply },
  deps: RouteDeps,
): MaybePromise<void> {
  const { scope, unlimited = false } = each;
  const limits = unlimited ? undefined : deps.limits;
  limits?.takeForIp(request.ip);
  if (scope === 'none' || scope === 'operator') {
    if (each.signsIn === true) assertOwnPage(request.raw, deps.origin);
    return refuseIfFull(deps);
  }
  const allow = (caller: Caller | undefined): void => {
    assertMay(caller, scope);
    if (isInference(each)) limits?.takeForInference(caller, (headers) => void reply.headers(headers));
    else limits?.takeForKey(caller.principalId);
    assertAllowed(caller, each, deps);
    refuseIfFull(deps);
    request.setDecorator('admitted', { caller, scope, atMs: deps.clock.monotonicMs() } satisfies Admitted);
    assertMediaType(each, request.raw);
  };
  const caller = callerOf(each, request, deps);
  return caller instanceof Promise ? caller.then(allow) : allow(caller);
}

/** A caller may hold its body back until its key or session has ended. So a late body is answered with what the caller may do now. */
async function admitAgain(
  scope: Admitted['scope'],
  each: Route,
  request: FastifyRequest,
  deps: RouteDeps,
): Promise<Caller> {
  const caller = await callerOf(each, request, deps);
  assertMay(caller, scope);
  assertAllowed(caller, each, deps);
  return caller;
}

/** @throws ServiceError `org_suspended`, `org_unfunded`, `step_up_required` */
function assertAllowed(caller: Caller, each: Route, { clock }: RouteDeps): void {
  if (caller.restriction !== undefined) assertUnrestricted(caller, each);
  if (each.stepUp === true) assertConfirmed(caller, clock.now());
}

/** An API key in the header wins over a cookie. @throws ServiceError `unauthorized`, `origin_refused` */
function callerOf(each: Route, request: FastifyRequest, deps: RouteDeps): MaybePromise<Caller | undefined> {
  const { authorization, cookie } = request.headers;
  const sessionToken = authorization === undefined ? sessionTokenOf(cookie) : undefined;
  if (sessionToken === undefined)
    return deps.authenticate(tokenOf(authorization), { confirmsKey: each.confirmsKey ?? false });
  assertOwnChange(each, request.raw, deps.origin);
  return deps.authenticateSession(sessionToken).then((caller) => {
    if (caller === undefined) return failEndedSession();
    assertShown(caller, request.raw);
    return caller;
  });
}

/** @throws DbError `disk_full` */
function refuseIfFull({ mayWait, hasRoom }: RouteDeps): void {
  if (mayWait && !hasRoom()) throw new DbError('disk_full', 'the disk of the database is full');
}

function goneSignal(response: ServerResponse): AbortSignal {
  const gone = new AbortController();
  // The caller may have left while it was authenticated. The `close` does not come again.
  if (response.destroyed) gone.abort();
  response.once('close', () => {
    if (!response.writableFinished) gone.abort();
  });
  return gone.signal;
}

export function sendError(error: unknown, request: FastifyRequest, reply: FastifyReply, log: Log): FastifyReply {
  const known = request.raw.readableAborted ? abandonedRequest() : knownError(error);
  if (known === undefined)
    log.error(
      { request_id: request.id, method: request.method, path: pathOf(request), err: error },
      'a request failed',
    );
  return send(reply, refusalReply(known ?? internalError(), { requestId: request.id, path: pathOf(request) }));
}

/** Statuses that pass by themselves. Clients repeat such requests, so they would fill the log. */
const PASSING: ReadonlySet<number> = new Set([429, 503]);

/** A customer who asks why a change was refused names the id of the request. The rates of the caller bound how many lines there are. */
function noteRefusal({ code, details }: ServiceError, request: FastifyRequest, log: Log): void {
  const admitted = request.getDecorator<Admitted | undefined>('admitted');
  const { status } = ERRORS[code];
  if (admitted === undefined || request.method === 'GET' || PASSING.has(status)) return;
  const { orgId, principalId } = admitted.caller;
  const about = { request_id: request.id, org_id: orgId, principal_id: principalId, method: request.method };
  const fields = details.errors?.map(({ field }) => field) ?? [];
  log.info({ ...about, path: pathOf(request), status, code, fields }, 'a request was refused');
}

function send(reply: FastifyReply, wire: WireReply): FastifyReply {
  reply.code(wire.status).headers(wire.headers).header('x-request-id', reply.request.id);
  if (wire.stream !== undefined) {
    if (reply.request.method !== 'HEAD') return reply.send(wire.stream);
    // The stream is destroyed, because fastify would read all of it for an answer without a body.
    wire.stream.destroy();
    return reply.send(Readable.from([]));
  }
  if (wire.body === '') return reply.send();
  // A string goes out in one write with its headers. fastify would add a charset to a string without one; a buffer avoids that.
  const hasCharset = wire.headers['content-type']?.includes('charset=') === true;
  return reply.send(hasCharset ? wire.body : Buffer.from(wire.body));
}

/** The pattern for the router. A last id that may contain slashes is the router's wildcard, which has no name. */
function urlPattern({ path, idHasSlashes }: Route): string {
  return idHasSlashes === true ? path.replace(/\{id\}$/, '*') : path.replaceAll(/\{(\w+)\}/g, ':$1');
}

function paramsOf({ idHasSlashes }: Route, params: unknown): unknown {
  return idHasSlashes === true && typeof params === 'object' ? { id: Reflect.get(params ?? {}, '*') } : params;
}

export function pathOf(request: FastifyRequest): string {
  return request.url.split('?', 1)[0] ?? '';
}
