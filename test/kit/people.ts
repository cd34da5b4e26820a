// People who have signed in, without the work of a password, and what their browser sends.
import type { Role } from '../../shared/api/auth.ts';
import { insertMember, insertUser } from '../../control-plane/base/users/store.ts';
import type { World } from './world.ts';

export interface Person {
  userId: string;
  email: string;
  sessionId: string;
  /** The token in the cookie. */
  token: string;
}

export const ORIGIN = 'https://api.example.com';

/** What a browser sends with a request of our own page. */
export function cookieOf({ token }: Pick<Person, 'token'>): Record<string, string> {
  return { cookie: `__Host-svc_session=${token}`, origin: ORIGIN };
}

export interface PersonOptions {
  isOperator?: boolean;
  /** A second factor was shown. */
  isStrong?: boolean;
  /** The operator has given the account to the person; the person has not made it. */
  isVouched?: boolean;
}

/** A member of the organisation with a session that has just begun; without a role, of no organisation. */
export async function addPerson(
  { core, rooms }: Pick<World, 'core' | 'rooms'>,
  member: { orgId: string; role: Role } | undefined,
  { isOperator = false, isStrong = false, isVouched = true }: PersonOptions = {},
): Promise<Person> {
  const { db, clock, ids } = core;
  const [id, nowMs] = [ids.prefixed('usr'), clock.now()];
  const email = `${id}@example.com`;
  const visitor = { clientIp: '192.0.2.1', userAgent: 'test', sessionToken: undefined };
  const begun = await db.tx('test.person', async (tx) => {
    const flags = { is_operator: isOperator, is_vouched: isVouched };
    await insertUser(tx, { id, email, name: 'Ada', ...flags, created_ms: nowMs });
    if (member !== undefined)
      await insertMember(tx, { org_id: member.orgId, user_id: id, role: member.role, created_ms: nowMs });
    return rooms.users.sessions.begin(tx, { userId: id, visitor, isStrong, method: 'password' });
  });
  return { userId: id, email, sessionId: begun.id, token: begun.token };
}

/** The token of the cookie that a reply has set; undefined if it has set none. */
export function tokenIn({ headers }: { headers: Record<string, string> }): string | undefined {
  return /^__Host-svc_session=([\w-]+);/.exec(headers['set-cookie'] ?? '')?.[1];
}
