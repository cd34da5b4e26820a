// The endpoints of a session (our own paths): what it is, other sessions of the person, confirming, and the password.
import { z } from 'zod';
import { ChangeNotices, ChangePassword, Session, SessionEntry, StepUp, SwitchOrg } from '../../../shared/api/auth.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Db } from '../db/db.ts';
import { type Route, route } from '../http/route.ts';
import {
  principalOf,
  sessionReply,
  sessionResponse,
  signedOutReply,
  signedOutResponse,
  tag,
  visitorOf,
} from './replies.ts';
import { type SessionRow, sessionsOf } from './session-store.ts';
import type { Users } from './users.ts';

interface Deps {
  db: Db;
  clock: Clock;
  users: Users;
}

const own = { tag, scope: 'session', idempotency: 'none' } as const;

export function sessionRoutes(deps: Deps): Route[] {
  return [...currentRoutes(deps), ...listRoutes(deps), ...confirmRoutes(deps)];
}

function currentRoutes({ users: { sessions, people } }: Deps): Route[] {
  return [
    route({
      ...own,
      method: 'GET',
      path: '/v1/auth/session',
      operationId: 'getSession',
      summary: 'Show who is signed in, for which organisation, and what the session may do',
      responses: { 200: { description: 'The session', schema: Session } },
      errors: [],
      handler: async ({ caller }) => ({ status: 200, body: await sessions.show(caller.principalId) }),
    }),
    route({
      ...own,
      method: 'POST',
      path: '/v1/auth/session/org',
      operationId: 'switchOrg',
      summary: 'Act for another organisation of the person',
      description: 'The session continues with a new id.',
      body: SwitchOrg,
      responses: { 200: sessionResponse },
      errors: ['not_found'],
      handler: async (call) =>
        sessionReply(sessions, await sessions.switchOrg(call.caller, call.body.org_id, visitorOf(call))),
    }),
    route({
      ...own,
      method: 'POST',
      path: '/v1/auth/notices',
      operationId: 'setMailNotices',
      summary: 'Turn mails about what happens in the organisations of the person on or off',
      description: 'Mails are sent only if the operator has a mail server. Invitations are mailed in any case.',
      body: ChangeNotices,
      responses: { 200: { description: 'The session', schema: Session } },
      errors: [],
      handler: async ({ caller, body }) => {
        await people.setMailNotices(caller.session.userId, body.mail_notices);
        return { status: 200, body: await sessions.show(caller.principalId) };
      },
    }),
    route({
      ...own,
      method: 'POST',
      path: '/v1/auth/sign-out',
      operationId: 'signOut',
      summary: 'End this session',
      endsSomething: true,
      responses: { 204: signedOutResponse },
      errors: [],
      handler: async ({ caller }) => {
        const { id, userId } = principalOf(caller);
        await sessions.end(userId, id);
        return signedOutReply();
      },
    }),
  ];
}

function listRoutes({ db, clock, users: { sessions } }: Deps): Route[] {
  return [
    route({
      ...own,
      method: 'GET',
      path: '/v1/auth/sessions',
      operationId: 'listSessions',
      summary: 'List the sessions of the person, newest first',
      responses: {
        200: {
          description: 'All of them',
          schema: z.strictObject({ data: z.array(SessionEntry).describe('The sessions') }),
        },
      },
      errors: [],
      handler: async ({ caller }) => {
        const found = await sessionsOf(db.read, caller.session.userId, clock.now());
        return { status: 200, body: { data: found.map((row) => entryView(row, caller.principalId)) } };
      },
    }),
    route({
      ...own,
      method: 'DELETE',
      path: '/v1/auth/sessions/{id}',
      operationId: 'endSession',
      summary: 'End a session of the person',
      description: 'The session is refused from the next request on.',
      params: z.strictObject({ id: z.string().describe('The id of the session') }),
      responses: { 204: { description: 'It is over' } },
      errors: ['not_found'],
      handler: async ({ caller, params }) => {
        const gone = await sessions.end(caller.session.userId, params.id);
        return gone ? { status: 204 } : fail('not_found', `You have no session ${params.id}.`);
      },
    }),
  ];
}

function confirmRoutes({ users: { sessions, signIn, passkeys } }: Deps): Route[] {
  return [
    route({
      ...own,
      method: 'POST',
      path: '/v1/auth/step-up',
      operationId: 'stepUp',
      summary: 'Confirm the identity of the signed-in person again',
      description:
        'After this, the session may change API keys and members, and approve programs, for ten minutes. A person with a second factor sends a code or the answer of a passkey. A person without one sends the password.',
      body: StepUp,
      responses: { 200: sessionResponse },
      errors: ['sign_in_failed', 'second_factor_required', 'unavailable'],
      handler: async ({ caller, body: { passkey, ...typed }, clientIp }) => {
        const principal = principalOf(caller);
        const confirmed =
          passkey === undefined
            ? await signIn.confirm(principal, typed, clientIp)
            : await passkeys.confirm(principal, passkey);
        return sessionReply(sessions, confirmed);
      },
    }),
    route({
      ...own,
      method: 'POST',
      path: '/v1/auth/password',
      operationId: 'changePassword',
      summary: 'Change the password',
      description: 'All other sessions of the person end.',
      stepUp: true,
      body: ChangePassword,
      responses: { 200: sessionResponse },
      errors: ['sign_in_failed', 'unavailable'],
      handler: async ({ caller, body, clientIp }) => {
        const change = { current: body.current_password, next: body.new_password };
        return sessionReply(sessions, await signIn.changePassword(principalOf(caller), change, clientIp));
      },
    }),
  ];
}

function entryView(row: SessionRow, currentId: string): SessionEntry {
  return {
    id: row.id,
    client_ip: row.client_ip,
    user_agent: row.user_agent,
    is_current: row.id === currentId,
    created_at: isoTime(row.created_ms),
    last_used_at: isoTime(row.used_ms),
    expires_at: isoTime(row.expires_ms),
  };
}
