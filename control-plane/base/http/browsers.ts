// Requests of browsers: the cookie of a session, and the checks that keep other sites from sending requests with it.
import type { IncomingMessage } from 'node:http';
import { fail } from '../../../shared/errors.ts';
import { unsupportedMediaType } from './problems.ts';
import type { Caller, Route } from './route.ts';

/** `__Host-` makes browsers refuse the cookie without Secure and Path=/, or with a Domain, so no other host can set it. */
const COOKIE = '__Host-svc_session';
const ATTRIBUTES = 'Path=/; Secure; HttpOnly; SameSite=Lax';
/** The header in which a page names the session that it shows, as Node spells it. */
const SHOWN = 'svc-session';
/** How long a confirmation counts. */
export const CONFIRMED_MS = 10 * 60_000;

/** The value of the cookie; undefined if there is none that could be a token. */
export function sessionTokenOf(cookies: string | undefined): string | undefined {
  if (cookies === undefined) return undefined;
  for (const pair of cookies.split(';')) {
    const [name = '', value = ''] = pair.trim().split('=', 2);
    if (name === COOKIE && /^[\w-]{20,128}$/.test(value)) return value;
  }
  return undefined;
}

/** Headers of a reply that hands a session to a browser. The cookie ends with the session at the latest. */
export function sessionHeaders(token: string, maxAgeMs: number): Record<string, string> {
  const age = Math.floor(maxAgeMs / 1000);
  return { 'set-cookie': `${COOKIE}=${token}; ${ATTRIBUTES}; Max-Age=${age}`, 'cache-control': 'no-store' };
}

/** Headers of a reply after which the browser has no session. */
export function noSessionHeaders(): Record<string, string> {
  return { 'set-cookie': `${COOKIE}=; ${ATTRIBUTES}; Max-Age=0`, 'cache-control': 'no-store' };
}

/**
 * A browser names the page that a request comes from. Programs name none, and may sign in. @throws ServiceError `origin_refused`
 */
export function assertOwnPage({ headers }: IncomingMessage, origin: string): void {
  if (headers.origin !== undefined && headers.origin !== origin) refuseOrigin(origin);
}

/**
 * A browser adds the cookie to requests of other sites too. So a request that changes something must name our own page, and its body must
 * be of a type that a form of another site cannot send. @throws ServiceError `origin_refused`, `unsupported_media_type`
 */
export function assertOwnChange(route: Route, { method, headers }: IncomingMessage, origin: string): void {
  if (method === 'GET' || method === 'HEAD') return;
  if (headers.origin !== origin) refuseOrigin(origin);
  if (route.upload !== undefined) return;
  const hasBody = headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
  const isJson = /^application\/json\s*(;|$)/i.test(headers['content-type'] ?? '');
  if (hasBody && !isJson) throw unsupportedMediaType();
}

/**
 * All tabs of a browser share the cookie. So a tab that was opened before a sign-in or a change of the organisation would act for somebody else than
 * it shows. A request without the header is not checked. @throws ServiceError `unauthorized`
 */
export function assertShown({ principalId }: Caller, { headers }: IncomingMessage): void {
  const shown = headers[SHOWN];
  if (shown === undefined || shown === principalId) return;
  fail('unauthorized', 'This page shows another session than the browser has now. Load the page again.');
}

/**
 * A session must have been confirmed lately. API keys need no confirmation, because they were made for what they do. @throws ServiceError
 * `step_up_required`
 */
export function assertConfirmed({ session }: Caller, nowMs: number): void {
  if (session === undefined || nowMs - session.confirmedMs < CONFIRMED_MS) return;
  fail(
    'step_up_required',
    'Confirm that it is you with POST /v1/auth/step-up, and send this again within ten minutes.',
  );
}

function refuseOrigin(origin: string): never {
  fail('origin_refused', `A browser may send this only from ${origin}. Programs use an API key instead of a cookie.`);
}
