// Who may see an application: whoever knows the instance's own login (specification 5).
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';

export interface AppLogin {
  user: string;
  password: string;
}

/** Opens the door and leaves Authorization to the application. */
export const SVC_AUTH_HEADER = 'x-svc-auth';

/** `through`: the header that opened the door, which the application must not see. */
export type Entry = { ok: true; through: 'authorization' | typeof SVC_AUTH_HEADER } | { ok: false };

/**
 * `Authorization: Basic` or `Bearer <password>` opens the door; so does `X-Svc-Auth`, with either value or the bare password, for
 * applications that have an Authorization of their own.
 */
export function enter(headers: IncomingHttpHeaders, login: AppLogin): Entry {
  const own = headers[SVC_AUTH_HEADER];
  if (own !== undefined) {
    const given = typeof own === 'string' ? own : '';
    return fits(given, login) || equal(given, login.password) ? { ok: true, through: SVC_AUTH_HEADER } : { ok: false };
  }
  return fits(headers.authorization ?? '', login) ? { ok: true, through: 'authorization' } : { ok: false };
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
