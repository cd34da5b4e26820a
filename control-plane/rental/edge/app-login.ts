// Who may see an application or the console: whoever knows the instance's own login (specification 5).
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { RawHeaders } from './app-headers.ts';

export interface AppLogin {
  user: string;
  password: string;
}

/** Opens the endpoint and leaves Authorization to the application. */
export const SVC_AUTH_HEADER = 'x-svc-auth';

/** `__Host-`: browsers take it over TLS only, for this very host, and no neighbour below the same domain can set it. */
export const LOGIN_COOKIE = '__Host-svc-login';

/** `through`: the header, or the cookie, that opened the endpoint, which the application must not see. */
export type Entry =
  | { ok: true; through: 'authorization' | typeof SVC_AUTH_HEADER | typeof LOGIN_COOKIE }
  | { ok: false };

/**
 * `Authorization: Basic` or `Bearer <password>` opens the endpoint; so does `X-Svc-Auth`, with either value or the bare password, for
 * applications that have an Authorization of their own. WebKit sends no Authorization with a WebSocket's handshake: a page that was
 * opened with the login got a cookie, which counts for requests of that page. `host` is the Host header.
 */
export function enter(headers: IncomingHttpHeaders, login: AppLogin, host: string): Entry {
  const own = headers[SVC_AUTH_HEADER];
  if (own !== undefined) {
    const given = typeof own === 'string' ? own : '';
    return fits(given, login) || equal(given, login.password) ? { ok: true, through: SVC_AUTH_HEADER } : { ok: false };
  }
  if (fits(headers.authorization ?? '', login)) return { ok: true, through: 'authorization' };
  const cookie = cookieOf(headers);
  const isGood = cookie !== undefined && equal(cookie, cookieValue(login, host)) && isFromOwnPage(headers, host);
  return isGood ? { ok: true, through: LOGIN_COOKIE } : { ok: false };
}

/** For the answer to a browser that has opened a page with the login; empty where nobody would keep it. */
export function loginCookie(headers: IncomingHttpHeaders, login: AppLogin, host: string): RawHeaders {
  if (headers['sec-fetch-mode'] !== 'navigate') return [];
  return ['Set-Cookie', `${LOGIN_COOKIE}=${cookieValue(login, host)}; Path=/; Secure; HttpOnly; SameSite=Strict`];
}

/** Other tenants' pages are on the same site, and browsers send along what they know of ours. Programs say no origin. */
export function isFromOwnPage(headers: IncomingHttpHeaders, host: string): boolean {
  const { origin } = headers;
  if (origin !== undefined) return URL.parse(origin)?.host === host.toLowerCase();
  const site = headers['sec-fetch-site'];
  return site === undefined || site === 'same-origin' || site === 'none';
}

/** Says that somebody knew the password of this instance, and does not say the password. */
function cookieValue({ password }: AppLogin, host: string): string {
  return createHmac('sha256', password).update(`${LOGIN_COOKIE} ${host.toLowerCase()}`).digest('base64url');
}

function cookieOf({ cookie = '' }: IncomingHttpHeaders): string | undefined {
  const found = cookie.split(';').find((one) => one.trim().startsWith(`${LOGIN_COOKIE}=`));
  return found?.trim().slice(LOGIN_COOKIE.length + 1);
}

function fits(value: string, { user, password }: AppLogin): boolean {
  const [scheme = '', ...rest] = value.split(' ');
  const given = rest.join(' ').trim();
  if (scheme.toLowerCase() === 'bearer') return equal(given, password);
  if (scheme.toLowerCase() !== 'basic') return false;
  return equal(Buffer.from(given, 'base64').toString('utf8'), `${user}:${password}`);
}

/** Takes the same time wherever the two differ, and whatever their length. */
function equal(given: string, wanted: string): boolean {
  return timingSafeEqual(digest(given), digest(wanted));
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
