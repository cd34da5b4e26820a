// Sends all requests of the console to the API. A refusal is an `ApiError` with the API's own code. If the API asks for a confirmation,
// the person is asked, and the request is sent once more. If it refuses the session, the session is read again.
//
// Each request names the session that the page shows. All tabs share the cookie, so another tab may have replaced the session.
import { type ReceivedEvent, eventsOf } from '../../../../shared/event-reader.ts';
import type { Problem } from '../../../../shared/api/problem.ts';
import { hearTime } from './clock.ts';

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

/** A refusal of the API, or a network that does not answer (status 0). */
export class ApiError extends Error {
  readonly status: number;
  /** The API's own code; `unreachable` if there was no answer. */
  readonly code: string;
  readonly requestId: string | undefined;
  /** Each broken rule with its field; empty if the refusal is not about fields. */
  readonly errors: readonly { field: string; rule: string }[];
  /** Members of the refusal beyond those of every problem, like `current_price_per_hour`. */
  readonly extra: Readonly<Record<string, unknown>>;

  constructor(
    status: number,
    code: string,
    detail: string,
    more: Partial<Pick<ApiError, 'requestId' | 'errors' | 'extra'>> = {},
  ) {
    super(detail);
    this.status = status;
    this.code = code;
    this.requestId = more.requestId;
    this.errors = more.errors ?? [];
    this.extra = more.extra ?? {};
  }
}

/** What a form says below its fields: the text of the refusal, unless the fields `shown` show all of its rules. */
export function messageBelow({ errors, message }: ApiError, shown: ReadonlySet<string>): string {
  const isShown = errors.length > 0 && errors.every(({ field }) => shown.has(field));
  return isShown ? 'Correct the fields that are marked.' : message;
}

export interface CallOptions {
  /** Repeats of a request for the same decision of the person must use the same key. If it is left out, the call makes a new key. */
  idempotencyKey?: string;
  signal?: AbortSignal;
  /** Further headers. */
  headers?: Readonly<Record<string, string>>;
}

/** The path at which the page reads who has signed in. */
export const SESSION_PATH = '/v1/auth/session';

/** What the page does when the API refuses a request for a reason that may pass. */
interface Asked {
  /** The id of the session that the page shows; undefined if it shows none. */
  sessionId(): string | undefined;
  /** Called if the API has not taken the session. Resolves to true if it takes the session now; else the person signs in again. */
  checkSession(): Promise<boolean>;
  /** Resolves to true once the person has confirmed with a code, a passkey or the password. */
  confirm(): Promise<boolean>;
}

const asked: Asked = {
  sessionId: () => undefined,
  checkSession: async () => false,
  confirm: async () => false,
};

export function onAsked(next: Partial<Asked>): void {
  Object.assign(asked, next);
}

/** What was thrown, if it is an `ApiError`. Anything else is a fault of the console and is thrown again. */
export function asApiError(failure: unknown): ApiError {
  if (failure instanceof ApiError) return failure;
  throw failure;
}

/** The parsed answer; undefined if it has no body. @throws ApiError */
export async function call<T>(method: Method, path: string, body?: unknown, options: CallOptions = {}): Promise<T> {
  const { idempotencyKey = crypto.randomUUID() } = options;
  return parsed<T>(await send(method, path, body, { ...options, idempotencyKey }));
}

/** The parsed body; undefined if it is empty. If it breaks off, or is no JSON, it is not the answer of the service. @throws ApiError */
export async function parsed<T>(response: Response): Promise<T> {
  try {
    const text = await response.text();
    return (text === '' ? undefined : JSON.parse(text)) as T;
  } catch (error) {
    return unreachable(error);
  }
}

export const get = <T>(path: string, options?: CallOptions): Promise<T> => call('GET', path, undefined, options);
export const post = <T>(path: string, body?: unknown, options?: CallOptions): Promise<T> =>
  call('POST', path, body, options);

/** The answer itself, for streams, files and headers. @throws ApiError */
export async function send(method: Method, path: string, body: unknown, options: CallOptions = {}): Promise<Response> {
  const decidedIn = asked.sessionId();
  const response = await attempt(method, path, body, options);
  if (response.ok) return response;
  const refusal = await refusalOf(response);
  if (!(await mayRepeat(refusal, method, path))) throw refusal;
  // While a confirmation was awaited, another person may have signed in. The decision is not theirs.
  if (asked.sessionId() !== decidedIn) throw refusal;
  const again = await attempt(method, path, body, options);
  if (again.ok) return again;
  throw await refusalOf(again);
}

/** Whether the same request is likely to be taken now. It may ask the person. */
async function mayRepeat({ status, code }: ApiError, method: Method, path: string): Promise<boolean> {
  if (code === 'step_up_required') return asked.confirm();
  // A wrong password is no matter of the session.
  if (status !== 401 || code === 'sign_in_failed' || path === SESSION_PATH) return false;
  return (await asked.checkSession()) && method === 'GET';
}

/** Server-sent events of an answer. @throws ApiError if it breaks off */
export async function* eventsIn(response: Response): AsyncGenerator<ReceivedEvent> {
  try {
    yield* eventsOf(response);
  } catch (error) {
    unreachable(error);
  }
}

/** Server-sent events of a path, until it ends or `signal` aborts. @throws ApiError */
export async function* events(
  path: string,
  { signal, lastEventId }: { signal: AbortSignal; lastEventId?: string | undefined },
): AsyncGenerator<ReceivedEvent> {
  const headers: Record<string, string> = { accept: 'text/event-stream' };
  if (lastEventId !== undefined) headers['last-event-id'] = lastEventId;
  yield* eventsOf(await send('GET', path, undefined, { headers, signal }));
}

async function attempt(
  method: Method,
  path: string,
  body: unknown,
  { idempotencyKey, signal, headers: further }: CallOptions,
): Promise<Response> {
  const headers: Record<string, string> = { ...further };
  const shown = path === SESSION_PATH ? undefined : asked.sessionId();
  if (shown !== undefined) headers['svc-session'] = shown;
  if (method === 'POST' && idempotencyKey !== undefined) headers['idempotency-key'] = idempotencyKey;
  const request: RequestInit = { method, headers, ...(signal === undefined ? {} : { signal }) };
  if (body instanceof FormData) request.body = body;
  else if (body !== undefined) {
    headers['content-type'] = 'application/json';
    request.body = JSON.stringify(body);
  }
  const response = await fetch(path, request).catch(unreachable);
  hearTime(response);
  return response;
}

function unreachable(error: unknown): never {
  if (error instanceof DOMException && error.name === 'AbortError') throw error;
  throw new ApiError(
    0,
    'unreachable',
    'The service does not answer. Check your network; nothing is known about what you sent.',
  );
}

async function refusalOf(response: Response): Promise<ApiError> {
  const body = jsonOf(await response.text().catch(unreachable));
  const problem = body as Partial<Problem> & {
    error?: InferenceRefusal | string;
    error_description?: string;
  };
  const inference = typeof problem.error === 'object' ? problem.error : undefined;
  const code =
    problem.code ?? inference?.code ?? (typeof problem.error === 'string' ? problem.error : `http_${response.status}`);
  const detail =
    problem.detail ?? inference?.message ?? problem.error_description ?? `The service answered ${response.status}.`;
  const requestId = problem.request_id ?? response.headers.get('x-request-id') ?? undefined;
  return new ApiError(response.status, code, detail, {
    ...(requestId === undefined ? {} : { requestId }),
    errors: problem.errors ?? brokenBy(inference),
    extra: body as Record<string, unknown>,
  });
}

/** The refusal of a route for models. */
interface InferenceRefusal {
  code?: string;
  message?: string;
  /** Name of the first field that breaks a rule; null if the refusal is not about a field. */
  param?: string | null;
}

/** The field and its rule, taken from the message, which begins with the field and continues with the rule. Empty for any other refusal. */
function brokenBy({ message = '', param }: InferenceRefusal = {}): { field: string; rule: string }[] {
  if (param === undefined || param === null || !message.startsWith(`${param} `)) return [];
  return [{ field: param, rule: message.slice(param.length + 1).replace(/\.$/, '') }];
}

function jsonOf(text: string): object {
  try {
    const parsed: unknown = JSON.parse(text);
    return typeof parsed === 'object' && parsed !== null ? parsed : {};
  } catch {
    return {};
  }
}
