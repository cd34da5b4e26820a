// Sends requests to the public API. Errors have the API's own code, and requests are repeated only if that has no second effect.
import { z } from 'zod';
import type { Clock } from '../../shared/clock.ts';
import type { Ids } from '../../shared/ids.ts';
import { codeOf, messageOf } from '../../shared/errors.ts';
import { Problem } from '../../shared/api/problem.ts';
import { EXIT, interruption, SvcError } from './exit.ts';

export interface SvcRequest {
  method: string;
  /** The path below the base URL, with its query. */
  path: string;
  /** Sent as JSON. */
  body?: unknown;
  /** Sent as it is, with the media type of `headers`. */
  raw?: Uint8Array<ArrayBuffer> | FormData;
  headers?: Record<string, string>;
  /** Ends the request early, in place of the client's `interrupted`. */
  signal?: AbortSignal;
  /**
   * True if the path takes no Idempotency-Key and a second request would have a second effect. After a network error nobody knows whether the
   * request had its effect, so it is not repeated.
   */
  isOnce?: boolean;
}

export interface Client {
  /** The parsed body of the answer; null if it has none. @throws SvcError */
  json(request: SvcRequest): Promise<unknown>;
  /** The body as text if it is neither JSON nor a page, such as CSV; else as `json`. @throws SvcError */
  any(request: SvcRequest): Promise<{ text: string } | { json: unknown }>;
  /** The answer itself, with a body that is not read yet. @throws SvcError if it is a refusal */
  open(request: SvcRequest): Promise<Response>;
}

export interface ClientDeps {
  baseUrl: string;
  /** API key; undefined: requests are sent without a key. */
  key: string | undefined;
  fetch: typeof fetch;
  clock: Clock;
  ids: Pick<Ids, 'uuid'>;
  /** Ends the requests that have no signal of their own. */
  interrupted: AbortSignal;
  /** How often a request is tried at most; undefined: TRIES. */
  tries?: number | undefined;
}

/** The largest answers are images as base64, of up to 66 MiB. */
const ANSWER_BYTES_MAX = 128 * 1024 * 1024;
const REFUSAL_BYTES_MAX = 1024 * 1024;
const TRIES = 4;
const WAIT_MS = 1_000;
/** If the API asks for a longer wait than this, the caller gets the refusal at once. */
const RETRY_AFTER_MS_MAX = 30_000;
/** Statuses of refusals that mean that the request had no effect. */
const REFUSED: ReadonlySet<number> = new Set([429, 503]);
/** Statuses of a proxy that has got no answer from the API. The request may have had an effect. */
const UNANSWERED: ReadonlySet<number> = new Set([502, 504]);

/** Statuses below 500 of refusals that pass by themselves. */
const PASSING: ReadonlySet<number> = new Set([408, 429]);

/** The code of the error for a request without an answer. */
export const UNREACHABLE = 'unreachable';

const OauthError = z.looseObject({ error: z.string(), error_description: z.string() });
const InferenceError = z.looseObject({
  error: z.looseObject({ code: z.string().nullish(), message: z.string(), param: z.string().nullish() }),
});

/** @throws SvcError if the key cannot be an API key */
export function openClient(given: ClientDeps): Client {
  const deps = { ...given, key: keyOf(given.key) };
  return {
    open: (request) => send({ signal: deps.interrupted, ...request }, deps, async (response) => response),
    json: (request) =>
      send({ signal: deps.interrupted, ...request }, deps, async (response) => parsed(await bodyOf(response, deps))),
    any: (request) =>
      send({ signal: deps.interrupted, ...request }, deps, async (response) => {
        const text = await bodyOf(response, deps);
        // A network that wants a login answers with a page.
        const isText = !/json|html/.test(response.headers.get('content-type') ?? 'json');
        return isText ? { text } : { json: parsed(text) };
      }),
  };
}

/** @throws SvcError if it is too long */
async function bodyOf(response: Response, deps: ClientDeps): Promise<string> {
  const text = await textOf(response, ANSWER_BYTES_MAX);
  if (text === undefined) throw tooLarge(deps);
  return text;
}

/** Null for an empty body. @throws SyntaxError */
function parsed(text: string): unknown {
  return text === '' ? null : (JSON.parse(text) as unknown);
}

/** Undefined if the body is longer than `bytesMax`. */
async function textOf({ body }: Response, bytesMax: number): Promise<string | undefined> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of body ?? []) {
    bytes += chunk.byteLength;
    if (bytes > bytesMax) return undefined;
    chunks.push(chunk);
  }
  return new TextDecoder().decode(Buffer.concat(chunks));
}

function tooLarge({ baseUrl }: ClientDeps): SvcError {
  return new SvcError(EXIT.failed, {
    code: 'answer_too_large',
    message: `${baseUrl} answers with more than ${ANSWER_BYTES_MAX / 1024 ** 2} MiB`,
    next: 'Check whether the address is that of the API: svc doctor',
  });
}

/** Undefined if the network or the API failed: the caller asks again later. @throws SvcError for a refusal that is final */
export async function unlessAway<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (!(error instanceof SvcError) || error.refusal.isFinal === true) throw error;
    return undefined;
  }
}

/** `take` reads an answer that is no refusal. If that fails, the request counts as unanswered. */
async function send<T>(request: SvcRequest, deps: ClientDeps, take: (answer: Response) => Promise<T>): Promise<T> {
  const headers = headersOf(request, deps);
  for (let tries = 1; ; tries += 1) {
    const answer = await attempt(request, headers, deps)
      .then(async (response) => (response.ok ? { taken: await take(response) } : response))
      .catch((error: unknown) => failureOf(error, request, deps));
    if ('taken' in answer) return answer.taken;
    const waitMs = answer instanceof Response ? retryMs(answer, request, tries) : networkRetryMs(request, tries);
    if (tries === (deps.tries ?? TRIES) || waitMs === undefined || request.signal?.aborted === true)
      throw answer instanceof Response ? await refusalOf(answer, request) : answer;
    await deps.clock.sleep(waitMs, request.signal);
  }
}

/** A key with a line break inside could not be sent, and the error would print it. */
function keyOf(given: string | undefined): string | undefined {
  const key = given?.trim();
  if (key === undefined || /^[\x21-\x7e]+$/.test(key)) return key;
  throw new SvcError(EXIT.signIn, {
    code: 'key_malformed',
    message: 'the API key is not one line of visible ASCII characters',
    next: 'Check SVC_API_KEY, or sign in again: svc auth login',
  });
}

/** The same headers for each try, so that the API sees one request. */
function headersOf({ method, body, headers }: SvcRequest, { key, ids }: ClientDeps): Record<string, string> {
  return {
    ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
    ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    ...(method === 'GET' ? {} : { 'idempotency-key': ids.uuid() }),
    ...headers,
  };
}

function attempt(
  { method, path, body, raw, signal }: SvcRequest,
  headers: Record<string, string>,
  { baseUrl, fetch: request }: ClientDeps,
): Promise<Response> {
  const content = raw ?? (body === undefined ? undefined : JSON.stringify(body));
  return request(baseUrl + path, {
    method,
    headers,
    ...(content === undefined ? {} : { body: content }),
    ...(signal === undefined ? {} : { signal }),
  });
}

/** Wait before the repeat after a network error; undefined: the request is not repeated. */
function networkRetryMs({ isOnce }: SvcRequest, tries: number): number | undefined {
  return isOnce === true ? undefined : WAIT_MS * 2 ** (tries - 1);
}

/** Wait before the repeat after this answer; undefined: the answer is final. */
function retryMs({ status, headers }: Response, request: SvcRequest, tries: number): number | undefined {
  if (UNANSWERED.has(status)) return networkRetryMs(request, tries);
  if (!REFUSED.has(status)) return undefined;
  const seconds = Number(headers.get('retry-after') ?? Number.NaN);
  const waitMs = Number.isNaN(seconds) ? WAIT_MS * 2 ** (tries - 1) : seconds * 1_000;
  return waitMs <= RETRY_AFTER_MS_MAX ? waitMs : undefined;
}

/** The error for a request without an answer. It may have had its effect. @throws SvcError that says better what has failed */
function failureOf(error: unknown, { signal }: SvcRequest, { baseUrl }: ClientDeps): SvcError {
  if (error instanceof SvcError) throw error;
  if (signal?.aborted === true) return interruption();
  // A network that wants a login answers with a page of its own.
  const message =
    error instanceof SyntaxError
      ? `${baseUrl} was answered by something that is not the API`
      : unreachedWords(error, baseUrl);
  return new SvcError(EXIT.failed, {
    code: UNREACHABLE,
    message,
    next: 'Check the address and your network: svc doctor',
  });
}

/** Says why a request to `baseUrl` had no answer. `fetch` names the reason only in the cause of its error. */
export function unreachedWords(error: unknown, baseUrl: string): string {
  const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
  return `${baseUrl} could not be reached: ${codeOf(cause) ?? messageOf(cause)}`;
}

/** The status is a refusal, also if the text that explains it breaks off. */
async function refusalOf(response: Response, { signal }: SvcRequest): Promise<SvcError> {
  const { status, headers } = response;
  const text = await textOf(response, REFUSAL_BYTES_MAX).catch(() => undefined);
  if (text === undefined && signal?.aborted === true) return interruption();
  const body = jsonOf(text ?? '');
  const problem = Problem.safeParse(body).data;
  const inference = InferenceError.safeParse(body).data?.error;
  const oauth = OauthError.safeParse(body).data;
  const code = problem?.code ?? inference?.code ?? oauth?.error ?? `http_${status}`;
  const message = problem?.detail ?? inference?.message ?? oauth?.error_description ?? `the API answered ${status}`;
  const requestId = problem?.request_id ?? headers.get('x-request-id') ?? undefined;
  return new SvcError(exitOf(status), {
    code,
    message,
    isFinal: status < 500 && !PASSING.has(status),
    ...(status === 401 ? { next: 'Sign in: svc auth login' } : {}),
    ...(requestId === undefined ? {} : { requestId }),
    fields:
      problem?.errors.map(({ field }) => field) ?? (typeof inference?.param === 'string' ? [inference.param] : []),
  });
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

function exitOf(status: number): number {
  if (status === 401) return EXIT.signIn;
  return status === 404 ? EXIT.notFound : EXIT.failed;
}
