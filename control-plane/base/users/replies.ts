// What the routes of sign-ins share: who calls, and the reply that hands a session to a browser.
import { Session } from '../../../shared/api/auth.ts';
import { noSessionHeaders, sessionHeaders } from '../http/browsers.ts';
import type { OpenCall, Reply, ResponseSpec, SessionCall } from '../http/route.ts';
import { SESSION_MS } from './session-store.ts';
import type { NewSession, Sessions, Visitor } from './sessions.ts';
import type { Principal } from './sign-in.ts';

export const tag = 'Sign-in';

const COOKIE = { 'Set-Cookie': 'The session, for the browser: HttpOnly, only for this host' };

/** The response of a route that begins or renews a session. */
export const sessionResponse: ResponseSpec = { description: 'The session', schema: Session, headers: COOKIE };
/** The response of a route that ends the session of the request. */
export const signedOutResponse: ResponseSpec = { description: 'The session has ended', headers: COOKIE };

export async function sessionReply(sessions: Pick<Sessions, 'show'>, made: NewSession, status = 200): Promise<Reply> {
  return { status, headers: sessionHeaders(made.token, SESSION_MS), body: await sessions.show(made.id) };
}

export function signedOutReply(): Reply {
  return { status: 204, headers: noSessionHeaders() };
}

export function visitorOf({
  clientIp,
  browser,
}: Pick<OpenCall<unknown, unknown, unknown>, 'clientIp' | 'browser'>): Visitor {
  return { clientIp, ...browser() };
}

export function principalOf({ principalId, session }: SessionCall<unknown, unknown, unknown>['caller']): Principal {
  return { id: principalId, userId: session.userId };
}
