// Signing in with a password, and confirming later that it is still the same person. A wrong address gets the same answer after the same
// time as a wrong password.
import type { Clock } from '../../../shared/clock.ts';
import { networkOf } from '../../../shared/client-network.ts';
import { fail, failField } from '../../../shared/errors.ts';
import type { Db, Tx } from '../db/db.ts';
import type { Events } from '../events/events.ts';
import type { Attempt, Attempts } from './attempts.ts';
import { deleteCredentials, factorsOf, hasSecond, insertCredential, passwordOf } from './credential-store.ts';
import type { Passwords } from './passwords.ts';
import type { SecondFactors } from './second-factors.ts';
import { isKnownNetwork, deleteOthers } from './session-store.ts';
import { type NewSession, noteEnded, type Sessions, type Visitor } from './sessions.ts';
import { findUser, homeOf, userWithEmail } from './store.ts';
import type { Ids } from '../../../shared/ids.ts';

export interface SignIn {
  /**
   * @throws ServiceError `sign_in_failed`, `second_factor_required` if the person has one and sent no code, `rate_limit_exceeded`
   */
  withPassword(
    given: { email: string; password: string; code?: string | undefined },
    visitor: Visitor,
  ): Promise<NewSession>;
  /**
   * Confirms that the person of the session is present. A password is enough only for a person without a second factor. @throws
   * ServiceError `sign_in_failed`, `rate_limit_exceeded`
   */
  confirm(
    session: Principal,
    given: { password?: string | undefined; code?: string | undefined },
    clientIp: string,
  ): Promise<NewSession>;
  /**
   * Changes the password and ends all other sessions of the person. @throws ServiceError `sign_in_failed`, `rate_limit_exceeded`,
   * `validation_failed`
   */
  changePassword(session: Principal, change: { current: string; next: string }, clientIp: string): Promise<NewSession>;
  /** Replaces the password. The transaction must have locked the person. */
  setPassword(tx: Tx, userId: string, hash: string): Promise<void>;
}

/** A person, and the session that it uses. */
export interface Principal {
  id: string;
  userId: string;
}

export interface SignInDeps {
  db: Db;
  clock: Clock;
  ids: Ids;
  events: Events;
  attempts: Attempts;
  passwords: Passwords;
  secondFactors: SecondFactors;
  sessions: Sessions;
}

export function openSignIn(deps: SignInDeps): SignIn {
  const { db, attempts, passwords, sessions } = deps;
  const setPassword: SignIn['setPassword'] = async (tx, userId, hash) => {
    await deleteCredentials(tx, userId, 'password');
    await insertCredential(tx, passwordRow(userId, hash, deps));
  };
  return {
    withPassword: (given, visitor) => withPassword(given, visitor, deps),
    confirm: (session, given, clientIp) => confirm(session, given, clientIp, deps),
    changePassword: async (session, { current, next }, clientIp) => {
      if (next === current) failField('new_password', 'must not be the present password');
      const attempt = await attemptOf(session, clientIp, deps);
      await attempts.take(attempt);
      const stored = await passwordOf(db.read, session.userId);
      if (!(await attempts.checked(attempt, () => passwords.fits(current, stored)))) return failTry(attempt, deps);
      const hash = await attempts.checked(attempt, () => passwords.hash(next));
      return db.tx('users.change_password', async (tx) => {
        await tx.lock('user', session.userId);
        await assertPassword(tx, session.userId, stored);
        await setPassword(tx, session.userId, hash);
        await noteEnded(tx, await deleteOthers(tx, session.userId, session.id), deps);
        await attempts.forgive(tx, attempt);
        return sessions.confirm(tx, session.id, { isStrong: false });
      });
    },
    setPassword,
  };
}

/** Refuses a sign-in with the same text for every reason. */
export function failSignIn(): never {
  return fail(
    'sign_in_failed',
    'The e-mail address, the password or the code is not right. Check them, and try again.',
  );
}

async function withPassword(
  { email, password, code }: { email: string; password: string; code?: string | undefined },
  visitor: Visitor,
  deps: SignInDeps,
): Promise<NewSession> {
  const { db, attempts, passwords, sessions } = deps;
  const user = await userWithEmail(db.read, email);
  const userId = user?.id ?? '';
  const isKnown = await isKnownNetwork(db.read, userId, networkOf(visitor.clientIp));
  const attempt: Attempt = { account: email, clientIp: visitor.clientIp, isKnown };
  await attempts.take(attempt);
  const stored = await passwordOf(db.read, userId);
  // If there is no account or no password, the check takes the same time and fails.
  const fits = await attempts.checked(attempt, () => passwords.fits(password, stored));
  if (!fits || stored === undefined) return failTry(attempt, deps);
  const begun = await db.tx('users.sign_in', async (tx) => {
    await tx.lock('user', userId);
    await assertPassword(tx, userId, stored);
    const needsCode = hasSecond(await factorsOf(tx, userId));
    if (needsCode && code === undefined) return 'no code';
    if (needsCode && !(await deps.secondFactors.use(tx, userId, code ?? ''))) return 'wrong code';
    await attempts.forgive(tx, attempt);
    const method = needsCode ? 'password and code' : 'password';
    return sessions.begin(tx, { userId, visitor, isStrong: needsCode, method });
  });
  if (begun === 'wrong code') return refuse(userId, attempt, deps);
  if (begun !== 'no code') return begun;
  await attempts.takeBack(attempt);
  return fail(
    'second_factor_required',
    'Send the code of the authenticator app or a recovery code as "code", or use a passkey.',
  );
}

async function confirm(
  session: Principal,
  { password, code }: { password?: string | undefined; code?: string | undefined },
  clientIp: string,
  deps: SignInDeps,
): Promise<NewSession> {
  const { db, attempts, passwords, secondFactors, sessions } = deps;
  const { id, userId } = session;
  const attempt = await attemptOf(session, clientIp, deps);
  await attempts.take(attempt);
  const stored = await passwordOf(db.read, userId);
  const needsCode = hasSecond(await factorsOf(db.read, userId));
  // Whoever has a second factor learns nothing here about the password.
  if (code === undefined && !needsCode) {
    const fits = await attempts.checked(attempt, () => passwords.fits(password ?? '', stored));
    if (!fits) return failTry(attempt, deps);
  }
  const confirmed = await db.tx('users.step_up', async (tx) => {
    await tx.lock('user', userId);
    if (code === undefined) {
      await assertPassword(tx, userId, stored);
      if (needsCode || hasSecond(await factorsOf(tx, userId))) return 'no code';
    } else if (!(await secondFactors.use(tx, userId, code))) return 'wrong code';
    await attempts.forgive(tx, attempt);
    return sessions.confirm(tx, id, { isStrong: code !== undefined });
  });
  if (confirmed === 'wrong code') return refuse(userId, attempt, deps);
  if (confirmed !== 'no code') return confirmed;
  await attempts.takeBack(attempt);
  return fail(
    'second_factor_required',
    'Confirm with the code of the authenticator app, a recovery code or a passkey.',
  );
}

/**
 * The password may have been changed while it was checked, for example because somebody else knew it. The transaction must have locked the
 * person. @throws ServiceError `sign_in_failed`
 */
async function assertPassword(tx: Tx, userId: string, checked: string | undefined): Promise<void> {
  if ((await passwordOf(tx, userId)) !== checked) failSignIn();
}

/** Refuses a wrong code. An event tells the organisation that somebody knew the password and not the code. */
async function refuse(userId: string, attempt: Attempt, deps: SignInDeps): Promise<never> {
  const { db, events } = deps;
  await db.tx('users.note_refusal', async (tx) => {
    await tx.lock('user', userId);
    const orgId = await homeOf(tx, userId);
    const data = { reason: 'wrong code', client_ip: attempt.clientIp };
    await events.append(tx, { type: 'session.refused', subjectId: userId, orgId, data });
  });
  return failTry(attempt, deps);
}

async function failTry(attempt: Attempt, { attempts }: SignInDeps): Promise<never> {
  await attempts.noteFailure(attempt);
  return failSignIn();
}

/** A session is no proof of a known network: whoever has stolen its cookie may come from ever new ones. */
async function attemptOf({ userId }: Principal, clientIp: string, { db }: SignInDeps): Promise<Attempt> {
  const account = (await findUser(db.read, userId))?.email ?? '';
  return { account, clientIp, isKnown: await isKnownNetwork(db.read, userId, networkOf(clientIp)) };
}

function passwordRow(
  userId: string,
  secret: string,
  { clock, ids }: SignInDeps,
): Parameters<typeof insertCredential>[1] {
  const nowMs = clock.now();
  return {
    id: ids.prefixed('cred'),
    user_id: userId,
    kind: 'password',
    name: 'password',
    external_id: null,
    secret,
    counter: 0,
    transports: [],
    confirmed_ms: nowMs,
    created_ms: nowMs,
  };
}
