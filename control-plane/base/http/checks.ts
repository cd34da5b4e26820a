// The checks of every request before its handler runs: its head, the API key and its scope, the schemas, the Idempotency-Key.
import type { IncomingMessage } from 'node:http';
import { z } from 'zod';
import { fail, type FieldError, failFields } from '../../../shared/errors.ts';
import { IDEMPOTENCY_KEY_CHARS_MAX, HEADER_BYTES_MAX } from '../../../shared/limits.ts';
import { fieldErrors, fieldPath, textErrors } from '../../../shared/api/problem.ts';
import { isInferencePath } from '../../../shared/api/inference.ts';
import { type Caller, needsFunds, type Route, type SessionCall } from './route.ts';
import { type Scope, scopeText } from './scopes.ts';
import { ADDED_BYTES_MAX, PASSED_ON } from './peers.ts';
import { headersTooLarge } from './problems.ts';

/**
 * `close` marks the connection to be closed after the refusal. @throws ServiceError `invalid_request` (RFC 9112, section 3.2),
 * `headers_too_large`
 */
export function assertHead({ httpVersion, headers, rawHeaders, url = '' }: IncomingMessage, close: () => void): void {
  if (httpVersion === '1.1' && headers.host === undefined) fail('invalid_request', 'The Host header is missing.');
  const bytes = rawHeaders.reduce((sum, text) => sum + text.length, url.length);
  // A secondary has counted the bytes of the client. A stranger who claims to be one gets no more than a refusal of another kind.
  const bytesMax = headers[PASSED_ON] === undefined ? HEADER_BYTES_MAX : HEADER_BYTES_MAX + ADDED_BYTES_MAX;
  if (bytes <= bytesMax) return;
  close();
  throw headersTooLarge();
}

const Nothing = z.strictObject({});

function isEmpty(input: unknown): boolean {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) return false;
  for (const _name in input) return false;
  return true;
}

/** @throws ServiceError `unauthorized` */
export function tokenOf(authorization: string | undefined): string {
  const token = /^bearer +([\x21-\x7e]{1,512})$/i.exec(authorization ?? '')?.[1];
  return token ?? fail('unauthorized', 'Send the API key as "Authorization: Bearer svc_live_...".');
}

export function failEndedSession(): never {
  return fail('unauthorized', 'This session has ended. Sign in again with POST /v1/auth/sign-in.');
}

export function failUnknownKey(): never {
  return fail(
    'unauthorized',
    'This API key is unknown, revoked or expired. Check that the whole key was sent, or use another.',
  );
}

/** @throws ServiceError `unauthorized`, `session_required`, `second_factor_required`, `insufficient_scope` */
export function assertMay(caller: Caller | undefined, scope: Scope | 'session'): asserts caller is Caller {
  if (caller === undefined) return failUnknownKey();
  if (scope === 'session') return assertSession(caller);
  if (caller.scopes.includes(scope)) return;
  if (caller.session?.mustEnrol === true) {
    fail(
      'second_factor_required',
      'Operators need a second factor. Confirm with POST /v1/auth/step-up, or set one up with POST /v1/auth/totp or POST /v1/auth/passkeys.',
    );
  }
  const [what, next] =
    caller.session === undefined
      ? ['This API key lacks', 'Use one that has it']
      : ['Your role in this organisation lacks', 'Ask an owner for another role'];
  fail('insufficient_scope', {
    detail: `${what} the scope "${scopeText(scope)}". ${next}.`,
    extra: { required_scope: scopeText(scope) },
  });
}

function assertSession(caller: Caller): asserts caller is SessionCall<unknown, unknown, unknown>['caller'] {
  if (caller.session !== undefined) return;
  fail(
    'session_required',
    'An API key cannot do this. Sign in with POST /v1/auth/sign-in, and send the cookie of the session.',
  );
}

/** @throws ServiceError `org_suspended`, `org_unfunded` */
export function assertUnrestricted({ restriction }: Caller, route: Route): void {
  if (restriction === 'suspended' && route.spends === true) {
    fail(
      'org_suspended',
      'The operator has suspended this organisation. It can read, export and delete, but start nothing that costs money. GET /v1/organisation says why. Ask the operator.',
    );
  }
  if (restriction === 'unfunded' && needsFunds(route)) {
    fail(
      'org_unfunded',
      'This organisation can only read until money has been added to its balance for the first time. Add some, and send this again.',
    );
  }
}

/**
 * Parses the parts of the request with the schemas of the route. @throws ServiceError `validation_failed` with every broken rule;
 * `unsupported_parameter` with the first unknown member of a body on inference paths (specification 1 and 7.3)
 */
export function parseRequest(
  route: Route,
  request: { params: unknown; query: unknown; body: unknown },
): { params: unknown; query: unknown; body: unknown } {
  const errors: FieldError[] = [];
  const takesParameters = isInferencePath(route.path) && route.body !== undefined;
  const parse = (schema: z.ZodType | undefined, input: unknown, whole: string): unknown => {
    if (schema === undefined && isEmpty(input)) return undefined;
    if (whole === 'body' && route.isPlain?.(input) === true) {
      errors.push(...textErrors(input, whole));
      return input;
    }
    const parsed = (schema ?? Nothing).safeParse(input);
    if (!parsed.success && whole === 'body' && takesParameters) refuseUnsupported(parsed.error);
    if (!parsed.success) errors.push(...fieldErrors(parsed.error, input, whole));
    // Input of a wrong shape is refused anyway.
    const isShaped = parsed.success || parsed.error.issues.every(({ code }) => code === 'custom');
    if (isShaped) errors.push(...textErrors(input, whole));
    if (parsed.success) return schema === undefined ? undefined : parsed.data;
    return undefined;
  };
  const parts = {
    params: parse(route.params, request.params, 'path'),
    query: parse(route.query, request.query, 'query'),
    // Some clients always send `{}`, also to routes without a body.
    body:
      route.upload === undefined
        ? parse(route.body, route.body === undefined ? (request.body ?? {}) : request.body, 'body')
        : request.body,
  };
  if (errors.length > 0) failFields(errors);
  return parts;
}

/** This check comes first: a client that uses an unsupported parameter cannot fix its request otherwise. */
function refuseUnsupported(error: z.ZodError): void {
  const [path] = unknownMembers(error.issues);
  if (path === undefined) return;
  const field = fieldPath(path);
  fail('unsupported_parameter', {
    detail: `${field} is not supported in v1.1 of the inference API. Leave it out.`,
    errors: [{ field, rule: 'is not supported' }],
  });
}

/** The paths of unknown members, also of those in a value that may be of several kinds. */
function unknownMembers(issues: readonly z.core.$ZodIssue[]): PropertyKey[][] {
  return issues.flatMap((issue) => {
    if (issue.code === 'unrecognized_keys') return issue.keys.map((key) => [...issue.path, key]);
    if (issue.code !== 'invalid_union') return [];
    return issue.errors.flatMap(unknownMembers).map((inner) => [...issue.path, ...inner]);
  });
}

/** @throws ServiceError `idempotency_key_required`, `idempotency_key_invalid` */
export function readIdempotencyKey(route: Route, request: IncomingMessage): string | undefined {
  if (route.idempotency === 'none') return undefined;
  const keys = headerValues(request, 'idempotency-key');
  const [key] = keys;
  if (key === undefined) {
    if (route.idempotency === 'optional') return undefined;
    fail('idempotency_key_required', {
      detail: 'Send an Idempotency-Key header with a value that is new for each new request, for example a UUID.',
      errors: [{ field: 'Idempotency-Key', rule: 'is required' }],
    });
  }
  const rule = brokenKeyRule(keys.length, key);
  if (rule === undefined) return key;
  fail('idempotency_key_invalid', { detail: `Idempotency-Key ${rule}.`, errors: [{ field: 'Idempotency-Key', rule }] });
}

function brokenKeyRule(count: number, key: string): string | undefined {
  if (count > 1) return 'must be sent once';
  if (key === '') return 'must not be empty';
  if (key.length > IDEMPOTENCY_KEY_CHARS_MAX) return `must have at most ${IDEMPOTENCY_KEY_CHARS_MAX} characters`;
  return /\p{Cc}/u.test(key) ? 'must not contain control characters' : undefined;
}

/** Every occurrence of a header. `request.headers` joins repeated headers with a comma. */
function headerValues({ rawHeaders }: IncomingMessage, name: string): string[] {
  return rawHeaders.filter((_, i) => i % 2 === 1 && rawHeaders[i - 1]?.toLowerCase() === name);
}
