// The endpoints of passkeys (our own paths): setting them up, listing and removing them, and signing in with one.
import { z } from 'zod';
import { AddPasskey, NewPasskey, Passkey, PasskeyOptions, PasskeySignIn } from '../../../shared/api/second-factor.ts';
import { isoTime } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Db } from '../db/db.ts';
import { sessionHeaders } from '../http/browsers.ts';
import { type Route, route } from '../http/route.ts';
import { credentialsOf, type CredentialRow, deletePasskey } from './credential-store.ts';
import { assertFactorsLeft } from './factor-routes.ts';
import { principalOf, sessionReply, sessionResponse, tag, visitorOf } from './replies.ts';
import { SESSION_MS } from './session-store.ts';
import type { Users } from './users.ts';

interface Deps {
  db: Db;
  users: Users;
}

const own = { tag, scope: 'session', idempotency: 'none' } as const;
const open = { method: 'POST', tag, scope: 'none', idempotency: 'none', signsIn: true } as const;
const optionsResponse = { description: 'Options for the browser', schema: PasskeyOptions };

export function passkeyRoutes(deps: Deps): Route[] {
  return [...signInRoutes(deps), ...registrationRoutes(deps), ...listRoutes(deps)];
}

function signInRoutes({ users: { passkeys, sessions } }: Deps): Route[] {
  return [
    route({
      ...open,
      path: '/v1/auth/passkeys/options',
      operationId: 'beginPasskeySignIn',
      summary: 'Begin to sign in or to confirm with a passkey',
      description: 'The answer goes to `navigator.credentials.get`. It is the same for everybody.',
      responses: { 200: optionsResponse },
      errors: [],
      handler: async () => ({ status: 200, body: await passkeys.signInOptions() }),
    }),
    route({
      ...open,
      path: '/v1/auth/passkeys/sign-in',
      operationId: 'signInWithPasskey',
      summary: 'Sign in with a passkey',
      body: PasskeySignIn,
      responses: { 201: sessionResponse },
      errors: ['sign_in_failed'],
      handler: async (call) => sessionReply(sessions, await passkeys.signIn(call.body.passkey, visitorOf(call)), 201),
    }),
  ];
}

function registrationRoutes({ users: { passkeys } }: Deps): Route[] {
  return [
    route({
      ...own,
      method: 'POST',
      path: '/v1/auth/passkeys/registration',
      operationId: 'beginPasskey',
      summary: 'Begin to set up a passkey',
      description: 'The answer goes to `navigator.credentials.create`.',
      stepUp: true,
      responses: { 200: optionsResponse },
      errors: [],
      handler: async ({ caller }) => ({
        status: 200,
        body: await passkeys.registrationOptions(caller.session.userId),
      }),
    }),
    route({
      ...own,
      method: 'POST',
      path: '/v1/auth/passkeys',
      operationId: 'addPasskey',
      summary: 'Set up a passkey',
      stepUp: true,
      body: AddPasskey,
      responses: {
        201: {
          description: 'The passkey',
          schema: NewPasskey,
          headers: { 'Set-Cookie': 'The session under a new token' },
        },
      },
      errors: ['sign_in_failed', 'conflict'],
      handler: async ({ caller, body }) => {
        const passkey = { name: body.name, answer: body.passkey };
        const { row, recoveryCodes, session } = await passkeys.register(principalOf(caller), passkey);
        const shown = { ...passkeyView(row), recovery_codes: recoveryCodes };
        return { status: 201, headers: sessionHeaders(session.token, SESSION_MS), body: shown };
      },
    }),
  ];
}

function listRoutes({ db, users: { sessions } }: Deps): Route[] {
  const page = z.strictObject({ data: z.array(Passkey).describe('The passkeys') });
  return [
    route({
      ...own,
      method: 'GET',
      path: '/v1/auth/passkeys',
      operationId: 'listPasskeys',
      summary: 'List the passkeys of the person, oldest first',
      responses: { 200: { description: 'All of them', schema: page } },
      errors: [],
      handler: async ({ caller }) => {
        const found = await credentialsOf(db.read, caller.session.userId, 'passkey');
        return { status: 200, body: { data: found.map(passkeyView) } };
      },
    }),
    route({
      ...own,
      method: 'DELETE',
      path: '/v1/auth/passkeys/{id}',
      operationId: 'removePasskey',
      summary: 'Remove a passkey',
      stepUp: true,
      params: z.strictObject({ id: z.string().describe('The id of the passkey') }),
      responses: { 204: { description: 'It is gone' } },
      errors: ['not_found', 'conflict'],
      handler: async ({ caller, params }) => {
        const { userId } = caller.session;
        await db.tx('users.remove_passkey', async (tx) => {
          await tx.lock('user', userId);
          await sessions.present(tx, caller, 'session');
          if (!(await deletePasskey(tx, userId, params.id))) fail('not_found', `You have no passkey ${params.id}.`);
          await assertFactorsLeft(tx, userId);
        });
        return { status: 204 };
      },
    }),
  ];
}

function passkeyView(row: CredentialRow): Passkey {
  const usedAt = row.used_ms === null ? null : isoTime(row.used_ms);
  return { id: row.id, name: row.name, created_at: isoTime(row.created_ms), last_used_at: usedAt };
}
