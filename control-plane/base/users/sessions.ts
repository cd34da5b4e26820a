// Sessions: begun by a sign-in, found by the token of a cookie, and principals of their own with the scopes of the member's role.
import type { Session } from '../../../shared/api/auth.ts';
import { networkOf } from '../../../shared/client-network.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { hashOf, isLivingKey } from '../accounts/api-keys.ts';
import type { Accounts } from '../accounts/accounts.ts';
import { orgsOf } from '../accounts/orgs.ts';
import { countRow } from '../db/columns.ts';
import { type Db, ignoreFullDisk, type Query, type Sql, sql, type Tx } from '../db/db.ts';
import type { Events } from '../events/events.ts';
import { CONFIRMED_MS } from '../http/browsers.ts';
import { assertMay, failEndedSession, failUnknownKey } from '../http/checks.ts';
import type { Caller } from '../http/route.ts';
import { type Scope, scopeText } from '../http/scopes.ts';
import { factorsOf, hasSecond } from './credential-store.ts';
import { moveApprovals } from './device-store.ts';
import { scopesOfRole } from './roles.ts';
import * as rows from './session-store.ts';
import { findMember, findUser, homeOf, membershipsOf, noteChosen, personView } from './store.ts';

const TOKEN_BYTES = 32;
/** Step of `used_ms`: writing it for every request would cost more than the request. */
const USED_MS_STEP = 60_000;
/** Maximum number of sessions of one person, above the number of a person's devices. The oldest ones end first. */
const SESSIONS_MAX = 50;

/** The address and the browser from which somebody signs in. */
export interface Visitor {
  clientIp: string;
  userAgent: string;
  /** The session that the browser has now. It ends with the sign-in. */
  sessionToken: string | undefined;
}

export interface NewSession {
  id: string;
  /** The value of the cookie. Only its hash is stored. */
  token: string;
}

export interface Beginning {
  userId: string;
  visitor: Visitor;
  /** True: the person has used a second factor or a passkey. */
  isStrong: boolean;
  /** How the person has signed in, for the journal. */
  method: 'password' | 'password and code' | 'passkey' | 'link' | 'sign-up' | 'invitation' | 'OpenID';
  /** The first organisation of the person if left out. */
  orgId?: string;
}

export interface Sessions {
  /** Undefined for a session that is unknown or over. */
  authenticate(token: string): Promise<Caller | undefined>;
  /**
   * The caller with what it may do at this moment. A caller is let in before its body is read, and may hold the body back until it has lost its
   * rights. The transaction must have locked what the rights come from. @throws ServiceError `unauthorized`, `insufficient_scope`
   */
  present(tx: Tx, caller: Caller, scope: Scope | 'session'): Promise<Caller>;
  /** The transaction must have locked the person. @throws ServiceError `sign_in_failed` if the operator has blocked the person */
  begin(tx: Tx, beginning: Beginning): Promise<NewSession>;
  /**
   * Called when the person has proved to be present. The session continues with a new token. A session that was strong stays so.
   * @throws ServiceError `unauthorized` if it is over
   */
  confirm(tx: Tx, id: string, how: Pick<Beginning, 'isStrong'>): Promise<NewSession>;
  /** Begins a session of the same person for another organisation. It is a new principal. @throws ServiceError `not_found` */
  switchOrg(caller: Caller, orgId: string, visitor: Visitor): Promise<NewSession>;
  /** Ends one session of the person. False if there is none. */
  end(userId: string, id: string): Promise<boolean>;
  show(id: string): Promise<Session>;
}

interface Deps {
  db: Db;
  clock: Clock;
  ids: Ids;
  events: Events;
  accounts: Pick<Accounts, 'restrictionOf'>;
}

/** A condition: the API key or the session may still act. */
export function isLivingPrincipal(id: string, nowMs: number): Sql {
  return id.startsWith('ses_') ? rows.isLivingSession(id, nowMs) : isLivingKey(id, nowMs);
}

/**
 * Whether a caller who was let in before may still do what it could then. False once the key or the session has ended, or the person has another
 * role or is no member any more.
 */
export async function mayStill(query: Query, { principalId, orgId, scopes }: Caller, nowMs: number): Promise<boolean> {
  if (!principalId.startsWith('ses_'))
    return (await query.one(countRow, sql`select 1 as count where ${isLivingKey(principalId, nowMs)}`)) !== undefined;
  const role = await rows.roleInSession(query, { id: principalId, orgId }, nowMs);
  const may = role === undefined ? [] : scopesOfRole(role);
  return role !== undefined && scopes.every((scope) => may.includes(scope));
}

export function openSessions(deps: Deps): Sessions {
  const { db, clock, ids } = deps;
  const newToken = (): { token: string; tokenHash: string } => {
    const token = ids.secret(TOKEN_BYTES);
    return { token, tokenHash: hashOf(token) };
  };
  const begin: Sessions['begin'] = async (tx, beginning) => {
    const { token, tokenHash } = newToken();
    return { id: await insert(tx, beginning, tokenHash, deps), token };
  };
  return {
    authenticate: (token) => authenticate(token, deps),
    present: (tx, caller, scope) => presentOf(tx, caller, { scope, nowMs: clock.now() }),
    begin,
    confirm: async (tx, id, { isStrong }) => {
      const { token, tokenHash } = newToken();
      const confirmed = await rows.confirmSession(tx, { id, tokenHash, isStrong }, clock.now());
      if (confirmed === 0) fail('unauthorized', 'This session has ended. Sign in again.');
      return { id, token };
    },
    switchOrg: (caller, orgId, visitor) =>
      db.tx('users.switch_org', async (tx) => {
        const userId = caller.session?.userId ?? '';
        await tx.lock('user', userId);
        const old = await rows.findSession(tx, caller.principalId, clock.now());
        if (old === undefined) return fail('unauthorized', 'This session has ended. Sign in again.');
        const memberships = await membershipsOf(tx, userId);
        if (!memberships.some((member) => member.org_id === orgId))
          fail('not_found', `You are a member of no organisation ${orgId}. GET /v1/auth/session names yours.`);
        const { token, tokenHash } = newToken();
        const { org_id: _, ...kept } = old;
        await rows.deleteSession(tx, userId, old.id);
        const made = { ...kept, id: ids.prefixed('ses'), org_id: orgId, token_hash: tokenHash, ...placeOf(visitor) };
        await rows.insertSession(tx, made);
        await noteChosen(tx, userId, orgId, clock.now());
        await moveApprovals(tx, { fromId: old.id, toId: made.id });
        return { id: made.id, token };
      }),
    end: (userId, id) =>
      db.tx('users.end_session', async (tx) => {
        await tx.lock('user', userId);
        const ended = await rows.deleteSession(tx, userId, id);
        await noteEnded(tx, ended, deps);
        return ended.length > 0;
      }),
    show: (id) => show(id, deps),
  };
}

async function authenticate(token: string, { db, clock, accounts }: Deps): Promise<Caller | undefined> {
  const nowMs = clock.now();
  const found = await rows.sessionWithToken(db.read, hashOf(token), nowMs);
  if (found === undefined) return undefined;
  if (found.used_ms <= nowMs - USED_MS_STEP) {
    await db
      .tx('users.touch_session', (tx) => rows.noteUse(tx, found.id, nowMs, nowMs - USED_MS_STEP))
      .catch(ignoreFullDisk);
  }
  const mustEnrol = found.is_operator && !found.is_strong;
  const orgId = found.role === null ? '' : (found.org_id ?? '');
  const restriction = orgId === '' ? undefined : await accounts.restrictionOf(orgId);
  return {
    orgId,
    principalId: found.id,
    scopes: found.role === null || mustEnrol ? [] : scopesOfRole(found.role),
    session: {
      userId: found.user_id,
      confirmedMs: found.confirmed_ms,
      mustEnrol,
      operatorEmail: found.is_operator ? found.email : undefined,
    },
    ...(restriction === undefined ? {} : { restriction }),
  };
}

/** Does what `Sessions.present` does, for rooms above. */
export async function presentOf(
  tx: Tx,
  caller: Caller,
  { scope, nowMs }: { scope: Scope | 'session'; nowMs: number },
): Promise<Caller> {
  const now = await withPresentScopes(tx, caller, nowMs);
  assertMay(now, scope);
  return now;
}

/** @throws ServiceError `unauthorized` if the key or the session has ended */
async function withPresentScopes(tx: Tx, caller: Caller, nowMs: number): Promise<Caller> {
  const { principalId, orgId, scopes, session } = caller;
  const living = await tx.one(countRow, sql`select 1 as count where ${isLivingPrincipal(principalId, nowMs)}`);
  if (session === undefined) return living === undefined ? failUnknownKey() : caller;
  if (living === undefined) return failEndedSession();
  const member = await findMember(tx, orgId, session.userId);
  const may = member === undefined ? [] : scopesOfRole(member.role);
  return { ...caller, scopes: scopes.filter((scope) => may.includes(scope)) };
}

function placeOf({ clientIp, userAgent }: Visitor): { client_ip: string; network: string; user_agent: string } {
  return { client_ip: clientIp, network: networkOf(clientIp), user_agent: userAgent };
}

async function insert(tx: Tx, beginning: Beginning, tokenHash: string, deps: Deps): Promise<string> {
  const { userId, visitor, isStrong, method } = beginning;
  const nowMs = deps.clock.now();
  if ((await findUser(tx, userId))?.blocked_ms !== null)
    fail('sign_in_failed', 'The operator has blocked this account. Ask the operator to unblock it.');
  if (visitor.sessionToken !== undefined)
    await noteEnded(tx, await rows.deleteWithToken(tx, hashOf(visitor.sessionToken)), deps);
  const older = await rows.sessionsOf(tx, userId, nowMs);
  for (const { id } of older.slice(SESSIONS_MAX - 1))
    await noteEnded(tx, await rows.deleteSession(tx, userId, id), deps);
  const orgId = beginning.orgId ?? (await homeOf(tx, userId));
  // Whoever has a second factor is confirmed only by using it. Otherwise a stolen password or provider could add a factor of its own.
  const isConfirmed = isStrong || !hasSecond(await factorsOf(tx, userId));
  const times = {
    confirmed_ms: isConfirmed ? nowMs : 0,
    created_ms: nowMs,
    used_ms: nowMs,
    expires_ms: nowMs + rows.SESSION_MS,
  };
  const id = deps.ids.prefixed('ses');
  const place = placeOf(visitor);
  await rows.insertSession(tx, {
    id,
    user_id: userId,
    org_id: orgId,
    token_hash: tokenHash,
    is_strong: isStrong,
    ...place,
    ...times,
  });
  // Somebody who may have stolen the password or the provider must not make networks known, from which there are more tries.
  if (isConfirmed) await rows.noteNetwork(tx, userId, place.network, nowMs);
  const data = { session_id: id, method, client_ip: visitor.clientIp };
  await deps.events.append(tx, { type: 'session.created', subjectId: userId, orgId, data });
  return id;
}

/** Records in the journal that these sessions have ended, for the organisation that each of them acted for. */
export async function noteEnded(
  tx: Tx,
  ended: readonly rows.EndedSession[],
  { events }: Pick<Deps, 'events'>,
): Promise<void> {
  for (const { id, user_id: subjectId, org_id: orgId } of ended)
    await events.append(tx, { type: 'session.ended', subjectId, orgId, data: { session_id: id } });
}

async function show(id: string, { db, clock }: Deps): Promise<Session> {
  const session = await rows.findSession(db.read, id, clock.now());
  const user = session === undefined ? undefined : await findUser(db.read, session.user_id);
  if (session === undefined || user === undefined)
    return fail('unauthorized', 'This session has ended. Sign in again.');
  const memberships = await membershipsOf(db.read, user.id);
  const factors = await factorsOf(db.read, user.id);
  const named = await orgsOf(
    db.read,
    memberships.map((member) => member.org_id),
  );
  const orgs = named.flatMap((org) => {
    const member = memberships.find((each) => each.org_id === org.id);
    return member === undefined ? [] : [{ id: org.id, name: org.name, role: member.role }];
  });
  const org = orgs.find((each) => each.id === session.org_id) ?? null;
  const mustEnrol = user.is_operator && !session.is_strong;
  return {
    id: session.id,
    user: personView(user),
    org,
    orgs,
    scopes: org === null || mustEnrol ? [] : scopesOfRole(org.role).map(scopeText),
    has_password: factors.password > 0,
    has_totp: factors.totp > 0,
    passkeys: factors.passkey,
    recovery_codes_left: factors.codes,
    must_enrol: mustEnrol,
    mail_notices: user.mail_notices,
    created_at: isoTime(session.created_ms),
    confirmed_until: isoTime(session.confirmed_ms + CONFIRMED_MS),
    expires_at: isoTime(session.expires_ms),
  };
}
