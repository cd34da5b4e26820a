// Decides who may connect to an instance's endpoint at this moment. Every instance has its own user and
// password for its applications and its console (specification 5).
import type { OpenMessage } from '../../../shared/protocol/link.ts';
import type { Db, Query } from '../../base/db/db.ts';
import type { AppAddress } from '../endpoints/app-address.ts';
import { CONNECTABLE, findRental, type KeyedRow } from '../instances/store.ts';
import type { Endpoints } from '../endpoints/endpoints.ts';
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { RawHeaders } from '../../base/http/hop-headers.ts';

export interface EndpointAccess {
  machineId: string;
  workloadId: string;
  /** Public keys that may log in, one OpenSSH line each. */
  authorizedKeys: string[];
}

export interface AppAccess {
  machineId: string;
  workloadId: string;
  /** The port or the terminal on the host at which the data stream ends. */
  target: Exclude<OpenMessage['target'], { kind: 'ssh' | 'logs' }>;
  login: AppLogin;
}

/** How an application address is reached at this moment; undefined if nothing is served there. */
export async function appAccess(
  { instanceId, at }: AppAddress,
  { db, endpoints }: { db: Db; endpoints: Endpoints },
): Promise<AppAccess | undefined> {
  const instance = await findRental(db.read, instanceId);
  if (instance === undefined || !CONNECTABLE.has(instance.status)) return undefined;
  const { machine_id: machineId, workload_id: workloadId, launch } = instance;
  const served = launch?.ports.find((one) =>
    at === 'primary' ? one.primary === true : one.port === at && one.protocol === 'http',
  );
  const endpoint = await endpoints.find(db.read, instanceId);
  if (endpoint === undefined || !endpoint.open || machineId === null || workloadId === null) return undefined;
  const login = { user: endpoint.app_user, password: endpoints.appPassword(endpoint) };
  if (at === 'terminal') return { machineId, workloadId, target: { kind: 'terminal' }, login };
  return served && { machineId, workloadId, target: { kind: 'tcp', port: served.port }, login };
}

/** Keys are read for every connection, so a key that is added or deleted takes effect at the next login. */
export async function endpointAccess(
  instanceId: string,
  deps: { db: Db; endpoints: Endpoints; keysOf(query: Query, instance: KeyedRow): Promise<string[]> },
): Promise<EndpointAccess | undefined> {
  const { db, endpoints } = deps;
  const instance = await findRental(db.read, instanceId);
  const endpoint = await endpoints.find(db.read, instanceId);
  if (instance === undefined || !CONNECTABLE.has(instance.status) || endpoint === undefined || !endpoint.open)
    return undefined;
  if (instance.machine_id === null || instance.workload_id === null) return undefined;
  // The request says which keys may log in. If it cannot be read, none may.
  const { request } = instance;
  if (request === null) return undefined;
  const authorizedKeys = await deps.keysOf(db.read, { ...instance, request });
  return { machineId: instance.machine_id, workloadId: instance.workload_id, authorizedKeys };
}

export interface AppLogin {
  user: string;
  password: string;
}

/** Carries the login if the application uses Authorization itself. */
export const SVC_AUTH_HEADER = 'x-svc-auth';

/** Browsers accept the prefix `__Host-` over TLS only and for this host only, so a neighbouring host name cannot set the cookie. */
export const LOGIN_COOKIE = '__Host-svc-login';

/** `through`: the header or the cookie that carried the login. */
export type Entry =
  | { ok: true; through: 'authorization' | typeof SVC_AUTH_HEADER | typeof LOGIN_COOKIE }
  | { ok: false };

/**
 * Checks the login of a request. It accepts `Authorization: Basic`, `Authorization: Bearer <password>`, and `X-Svc-Auth` with either of
 * these values or with the bare password, for applications that use Authorization themselves. WebKit sends no Authorization with a
 * WebSocket handshake. So a page that was opened with the login gets a cookie, which counts for requests of that page. `host` is the Host header.
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

/** The headers that carry the login. The application must not see them. A client may send the login twice, and only one of them is checked. */
export function loginHeaders({ authorization = '' }: IncomingHttpHeaders, login: AppLogin): string[] {
  return fits(authorization, login) ? [SVC_AUTH_HEADER, 'authorization'] : [SVC_AUTH_HEADER];
}

/** The cookie header for a browser that has opened a page with the login; empty if the client would not keep it. */
export function loginCookie(headers: IncomingHttpHeaders, login: AppLogin, host: string): RawHeaders {
  if (headers['sec-fetch-mode'] !== 'navigate') return [];
  return ['Set-Cookie', `${LOGIN_COOKIE}=${cookieValue(login, host)}; Path=/; Secure; HttpOnly; SameSite=Strict`];
}

/** Pages of other tenants are on the same site, so browsers send our cookie with their requests too. Programs send no Origin. */
export function isFromOwnPage(headers: IncomingHttpHeaders, host: string): boolean {
  const { origin } = headers;
  if (origin !== undefined) return URL.parse(origin)?.host === host.toLowerCase();
  const site = headers['sec-fetch-site'];
  return site === undefined || site === 'same-origin' || site === 'none';
}

/** Proves knowledge of the password without revealing it. */
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

/** Compares two texts in constant time, whatever their lengths. */
function equal(given: string, wanted: string): boolean {
  return timingSafeEqual(digest(given), digest(wanted));
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
