// The way of one request through its route: check, parse, claim the Idempotency-Key, call the handler, build the reply.
import type { IncomingMessage } from 'node:http';
import { ServiceError } from '../../../shared/errors.ts';
import type { Tx } from '../db/db.ts';
import { sessionTokenOf } from './browsers.ts';
import { parseRequest, readIdempotencyKey } from './checks.ts';
import type { Idempotency } from './idempotency.ts';
import { refusalReply } from './refusals.ts';
import { type Call, type Caller, type Reply, type Route, undeclared, toWire, type WireReply } from './route.ts';
import type { Sealing } from './sealing.ts';

const ACTOR_CHARS_MAX = 128;
const USER_AGENT_CHARS_MAX = 256;

export interface ReceivedRequest {
  raw: IncomingMessage;
  params: unknown;
  query: unknown;
  body: unknown;
  /** The path without the query. */
  path: string;
  /** Undefined if the route needs no API key. */
  caller: Caller | undefined;
  requestId: string;
  clientIp: string;
  gone: AbortSignal;
  isForm: boolean;
}

export interface AnswerDeps {
  idempotency: Idempotency;
  sealing: Sealing | undefined;
  strictResponses: boolean;
}

/** @throws ServiceError if a check or the handler refuses the request */
export async function answer(route: Route, request: ReceivedRequest, deps: AnswerDeps): Promise<WireReply> {
  const { caller, path, requestId, clientIp, gone, isForm } = request;
  const key = readIdempotencyKey(route, request.raw);
  const parts = parseRequest(route, request);
  const handle = async (settle: (tx: Tx, reply: Reply) => Promise<void>): Promise<Reply> => {
    // The types give `caller` only to routes with an API key, so no other route reads the missing value.
    const actor = actorOf(request.raw);
    const browser = (): ReturnType<Call<unknown, unknown, unknown>['browser']> => browserOf(request.raw);
    const own = { caller, requestId, clientIp, gone, isForm, actor, browser, settle };
    const work = route.handler({ ...parts, ...own, ...headersOf(request.raw) } as Call<unknown, unknown, unknown>);
    return deps.strictResponses ? declared(route, work) : work;
  };
  if (key === undefined || caller === undefined) return toWire(await handle(async () => undefined));
  const { query, body } = request;
  const sealing = route.secretReply === true ? deps.sealing : undefined;
  return deps.idempotency.run(
    { principalId: caller.principalId, method: route.method, path, key, query, body, sealing },
    { handle, refusal: (error) => refusalReply(error, { requestId, path }) },
  );
}

function headersOf({
  headers,
}: IncomingMessage): Pick<Call<unknown, unknown, unknown>, 'range' | 'accepts' | 'encodings' | 'lastEventId'> {
  const lastEventId = headers['last-event-id'];
  return {
    range: headers.range,
    accepts: headers.accept ?? '',
    encodings: String(headers['accept-encoding'] ?? ''),
    lastEventId: typeof lastEventId === 'string' ? lastEventId : undefined,
  };
}

/** The operator's name, reduced to characters that a terminal prints unchanged. */
function actorOf({ headers }: IncomingMessage): string {
  const given = headers['svc-operator'];
  return typeof given === 'string' ? given.replaceAll(/[^ -~]/g, '?').slice(0, ACTOR_CHARS_MAX) : 'unknown';
}

function browserOf({ headers }: IncomingMessage): { sessionToken: string | undefined; userAgent: string } {
  const userAgent = (headers['user-agent'] ?? '').replaceAll(/[^ -~]/g, '?').slice(0, USER_AGENT_CHARS_MAX);
  return { sessionToken: sessionTokenOf(headers.cookie), userAgent };
}

async function declared(route: Route, work: Promise<Reply>): Promise<Reply> {
  const reply = await work.catch((error: unknown) => {
    throw (error instanceof ServiceError ? undeclared(route, error) : undefined) ?? error;
  });
  const response = route.responses[reply.status];
  if (response === undefined)
    throw new Error(`${route.operationId} answered ${reply.status}, a status that it does not declare`);
  if (reply.stream === undefined) response.schema?.parse(reply.body);
  else if ((response.eventSchema ?? response.mediaType ?? response.streamType) === undefined)
    throw new Error(`${route.operationId} does not declare a stream`);
  return reply;
}
