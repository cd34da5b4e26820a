// The endpoints of second factors (our own paths): the authenticator app and recovery codes.
import { ConfirmTotp, NewTotp, RecoveryCodes } from '../../../shared/api/second-factor.ts';
import { fail } from '../../../shared/errors.ts';
import type { Db, Tx } from '../db/db.ts';
import { sessionHeaders } from '../http/browsers.ts';
import { type Route, route } from '../http/route.ts';
import { deleteCredentials, deleteRecoveryCodes, factorsOf, hasSecond } from './credential-store.ts';
import { principalOf, tag } from './replies.ts';
import { SESSION_MS } from './session-store.ts';
import { findUser } from './store.ts';
import type { Users } from './users.ts';

interface Deps {
  db: Db;
  users: Users;
}

const own = { tag, scope: 'session', idempotency: 'none', stepUp: true } as const;
const NO_STORE = { 'cache-control': 'no-store' };

export function factorRoutes(deps: Deps): Route[] {
  return [...totpRoutes(deps), recoveryRoute(deps)];
}

function totpRoutes({ db, users: { sessions, secondFactors } }: Deps): Route[] {
  const begin = route({
    ...own,
    method: 'POST',
    path: '/v1/auth/totp',
    operationId: 'enrolTotp',
    summary: 'Begin to set up an authenticator app',
    description: 'The app is in use only after its first code was sent to POST /v1/auth/totp/confirm.',
    responses: { 201: { description: 'The secret for the app, shown once', schema: NewTotp } },
    errors: ['conflict'],
    handler: async ({ caller }) => {
      const { userId } = principalOf(caller);
      const body = await db.tx('users.enrol_totp', async (tx) => {
        await tx.lock('user', userId);
        await sessions.present(tx, caller, 'session');
        const user = await findUser(tx, userId);
        return user === undefined ? fail('unauthorized', 'This account is gone.') : secondFactors.enrolTotp(tx, user);
      });
      return { status: 201, headers: NO_STORE, body };
    },
  });
  const confirm = route({
    ...own,
    method: 'POST',
    path: '/v1/auth/totp/confirm',
    operationId: 'confirmTotp',
    summary: 'Finish setting up an authenticator app with its first code',
    body: ConfirmTotp,
    responses: {
      200: {
        description: 'Recovery codes, shown once, if the person had none',
        schema: RecoveryCodes,
        headers: { 'Set-Cookie': 'The session under a new token' },
      },
    },
    errors: ['conflict'],
    handler: async ({ caller, body }) => {
      const { id, userId } = principalOf(caller);
      return db.tx('users.confirm_totp', async (tx) => {
        await tx.lock('user', userId);
        await secondFactors.confirmTotp(tx, userId, body.code);
        const { codes } = await factorsOf(tx, userId);
        const made = codes > 0 ? [] : await secondFactors.newRecoveryCodes(tx, userId);
        const { token } = await sessions.confirm(tx, id, { isStrong: true });
        return { status: 200, headers: sessionHeaders(token, SESSION_MS), body: { recovery_codes: made } };
      });
    },
  });
  const remove = route({
    ...own,
    method: 'DELETE',
    path: '/v1/auth/totp',
    operationId: 'removeTotp',
    summary: 'Remove the authenticator app',
    responses: { 204: { description: 'It is gone' } },
    errors: ['conflict'],
    handler: async ({ caller }) => {
      const { userId } = principalOf(caller);
      await db.tx('users.remove_totp', async (tx) => {
        await tx.lock('user', userId);
        await sessions.present(tx, caller, 'session');
        await deleteCredentials(tx, userId, 'totp');
        await assertFactorsLeft(tx, userId);
      });
      return { status: 204 };
    },
  });
  return [begin, confirm, remove];
}

function recoveryRoute({ db, users: { sessions, secondFactors } }: Deps): Route {
  return route({
    ...own,
    method: 'POST',
    path: '/v1/auth/recovery-codes',
    operationId: 'makeRecoveryCodes',
    summary: 'Make new recovery codes',
    description: 'The old ones end. Each new one works once, in place of a code of the authenticator app.',
    responses: { 201: { description: 'The codes, shown once', schema: RecoveryCodes } },
    errors: ['second_factor_required'],
    handler: async ({ caller }) => {
      const { userId } = principalOf(caller);
      const made = await db.tx('users.new_recovery_codes', async (tx) => {
        await tx.lock('user', userId);
        await sessions.present(tx, caller, 'session');
        if (!hasSecond(await factorsOf(tx, userId)))
          fail('second_factor_required', 'Set up an authenticator app or a passkey first.');
        return secondFactors.newRecoveryCodes(tx, userId);
      });
      return { status: 201, headers: NO_STORE, body: { recovery_codes: made } };
    },
  });
}

/** Recovery codes stand in for a second factor, so they end with the last one. @throws ServiceError `conflict` for an operator */
export async function assertFactorsLeft(tx: Tx, userId: string): Promise<void> {
  if (hasSecond(await factorsOf(tx, userId))) return;
  const user = await findUser(tx, userId);
  if (user?.is_operator === true)
    fail('conflict', 'Operators need a second factor. Set up another one before you remove this one.');
  await deleteRecoveryCodes(tx, userId);
}
