// A sign-in that is on its way while the password, the factors or the links of the person change: what counts is what is stored at its end.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { countRow } from '../../../../control-plane/base/db/columns.ts';
import { type Db, sql } from '../../../../control-plane/base/db/db.ts';
import { openMail } from '../../../../control-plane/base/mail/mail.ts';
import { openAttempts } from '../../../../control-plane/base/users/attempts.ts';
import {
  type CredentialRow,
  deleteAllCredentials,
  insertCredential,
} from '../../../../control-plane/base/users/credential-store.ts';
import { openOidc } from '../../../../control-plane/base/users/oidc.ts';
import { openPasswords } from '../../../../control-plane/base/users/passwords.ts';
import { openPeople } from '../../../../control-plane/base/users/people.ts';
import { openSignIn, type SignIn, type SignInDeps } from '../../../../control-plane/base/users/sign-in.ts';
import { openSealing } from '../../../../control-plane/base/http/sealing.ts';
import { ServiceError } from '../../../../shared/errors.ts';
import { createLog } from '../../../../shared/log.ts';
import { CLIENT, startOpenidProvider } from '../../../kit/openid-provider.ts';
import { addPerson, ORIGIN, type Person } from '../../../kit/people.ts';
import { openWorld, type World } from '../../../kit/world.ts';

const PASSWORD = 'correct horse battery';
const VISITOR = { clientIp: '192.0.2.1', userAgent: 'test', sessionToken: undefined };

let world: World;
let ada: Person;
let signIn: SignIn;
/** What happens right before the transaction of this name. */
let meanwhile: { name: string; happens(): Promise<void> } | undefined;
beforeEach(async () => {
  world = await openWorld();
  ada = await addPerson(world, undefined);
  signIn = openSignIn(deps());
  await setPassword(PASSWORD);
});
afterEach(() => world.close());

function deps(): SignInDeps {
  const { users, events } = world.rooms;
  const { clock, ids } = world.core;
  const tx: Db['tx'] = async (name, body) => {
    const now = meanwhile?.name === name ? meanwhile : undefined;
    if (now !== undefined) meanwhile = undefined;
    await now?.happens();
    return world.db.tx(name, body);
  };
  return {
    db: { ...world.db, tx },
    clock,
    ids,
    events,
    attempts: openAttempts({ db: world.db, clock }),
    passwords: openPasswords({ clock, ids }),
    secondFactors: users.secondFactors,
    sessions: users.sessions,
  };
}

const setPassword = async (password: string): Promise<void> => {
  const hash = await openPasswords(world.core).hash(password);
  await world.db.tx('test.password', (tx) => signIn.setPassword(tx, ada.userId, hash));
};
const addPasskey = (): Promise<void> => add({ kind: 'passkey', external_id: 'k' });
const add = async (row: Pick<CredentialRow, 'kind' | 'external_id'>): Promise<void> => {
  const rest = { id: world.core.ids.prefixed('cred'), user_id: ada.userId, name: 'x', secret: '', counter: 0 };
  const times = { transports: [], confirmed_ms: 1, created_ms: 1 };
  await world.db.tx('test.factor', (tx) => insertCredential(tx, { ...row, ...rest, ...times }));
};
const withPassword = (): Promise<unknown> => signIn.withPassword({ email: ada.email, password: PASSWORD }, VISITOR);
const principal = (): { id: string; userId: string } => ({ id: ada.sessionId, userId: ada.userId });

describe('a sign-in with a password', () => {
  test('succeeds if nothing changes', async () => {
    expect(await withPassword()).toMatchObject({ id: expect.stringMatching(/^ses_/) });
  });

  test('fails if the password is changed meanwhile', async () => {
    meanwhile = { name: 'users.sign_in', happens: () => setPassword('another good password') };
    await expect(withPassword()).rejects.toMatchObject({ code: 'sign_in_failed' });
  });

  test('needs a code if a second factor is set up meanwhile', async () => {
    meanwhile = { name: 'users.sign_in', happens: addPasskey };
    await expect(withPassword()).rejects.toMatchObject({ code: 'second_factor_required' });
  });
});

describe('a step-up with a password', () => {
  const confirm = (): Promise<unknown> => signIn.confirm(principal(), { password: PASSWORD }, VISITOR.clientIp);

  test('fails if the password is changed meanwhile', async () => {
    meanwhile = { name: 'users.step_up', happens: () => setPassword('another good password') };
    await expect(confirm()).rejects.toMatchObject({ code: 'sign_in_failed' });
  });

  test('needs a code if a second factor is set up meanwhile', async () => {
    meanwhile = { name: 'users.step_up', happens: addPasskey };
    await expect(confirm()).rejects.toMatchObject({ code: 'second_factor_required' });
  });
});

test('a change of the password fails if the password is changed meanwhile', async () => {
  meanwhile = { name: 'users.change_password', happens: () => setPassword('another good password') };
  const change = { current: PASSWORD, next: 'a third good password' };
  const changed = signIn.changePassword(principal(), change, VISITOR.clientIp);
  await expect(changed).rejects.toMatchObject({ code: 'sign_in_failed' });
});

describe('a try that comes to no check', () => {
  const change = { current: PASSWORD, next: 'another good password' };
  const person = { name: 'Eve', password: PASSWORD, orgName: 'Acme' };
  const busy = (): Promise<never> => Promise.reject(new ServiceError('unavailable', { detail: 'too many others' }));
  /** All tries that count, of people and of networks. */
  const counted = async (): Promise<number | undefined> =>
    (
      await world.db.read.one(
        countRow,
        sql`select cast(coalesce(sum(failures), 0) as bigint) as count from sign_in_failures`,
      )
    )?.count;

  test('because too many people sign in at the moment does not count', async () => {
    const passwords = { hash: busy, fits: busy };
    const at = openSignIn({ ...deps(), passwords });
    const { accounts } = world.rooms;
    const mail = openMail(undefined, { log: createLog('test', 'silent'), clock: world.core.clock });
    const more = { accounts, mail, signIn, origin: ORIGIN, policy: () => 'open' as const };
    const people = openPeople({ ...deps(), ...more, passwords });
    const tries = [
      () => at.withPassword({ email: ada.email, password: PASSWORD }, VISITOR),
      () => at.confirm(principal(), { password: PASSWORD }, VISITOR.clientIp),
      () => at.changePassword(principal(), change, VISITOR.clientIp),
      () => people.signUp({ ...person, email: 'eve@example.com' }, VISITOR),
    ];
    for (const each of tries) await expect(each()).rejects.toMatchObject({ code: 'unavailable' });
    // The sign-up.
    expect(await counted()).toBe(1);
  });

  test('because the new password is the present one does not count', async () => {
    const same = signIn.changePassword(principal(), { ...change, next: PASSWORD }, VISITOR.clientIp);
    await expect(same).rejects.toMatchObject({ code: 'validation_failed' });
    expect(await counted()).toBe(0);
  });
});

test('a link with an OpenID provider that ends meanwhile lets nobody in', async () => {
  const provider = await startOpenidProvider();
  const oidc = openOidc({
    ...deps(),
    sealing: openSealing(new Uint8Array(32), world.core.ids),
    log: createLog('test', 'silent'),
    origin: ORIGIN,
    oidc: { ...CLIENT, issuer: provider.issuer },
  });
  const enter = async (): Promise<unknown> => {
    const { url, login } = await oidc.begin();
    const query = provider.signIn(url, { sub: 'ada-1', email: 'x@example.com', email_verified: false });
    return oidc.finish({ login, query }, VISITOR);
  };
  await add({ kind: 'oidc', external_id: `${provider.issuer} ada-1` });
  expect(await enter()).toMatchObject({ id: expect.stringMatching(/^ses_/) });
  const happens = (): Promise<void> => world.db.tx('test.reset', (tx) => deleteAllCredentials(tx, ada.userId));
  meanwhile = { name: 'users.oidc_sign_in', happens };
  await expect(enter()).rejects.toMatchObject({ code: 'sign_up_closed' });
  await provider.close();
});
