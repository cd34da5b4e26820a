// People: added by the operator or by signing up, and given access again by a one-time link after they have lost it.
import type { OperatorUser, Role, SignInMethods } from '../../../shared/api/auth.ts';
import type { Member } from '../../../shared/api/member.ts';
import { isoTime } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { hashOf } from '../accounts/api-keys.ts';
import type { Accounts } from '../accounts/accounts.ts';
import type { Mail } from '../mail/mail.ts';
import type { Query, Tx } from '../db/db.ts';
import type { Attempt } from './attempts.ts';
import { deleteAllCredentials, factorsOf, hasSecond } from './credential-store.ts';
import { deleteLinks, findLink, replaceLink } from './link-store.ts';
import { type AccessChange, assertNotBlocked, changeAccess, endMade } from './access.ts';
import { addMember, memberView } from './members.ts';
import { deleteSessionsOf } from './session-store.ts';
import { type NewSession, noteEnded, type Visitor } from './sessions.ts';
import type { SignIn, SignInDeps } from './sign-in.ts';
import * as store from './store.ts';

const LINK_BYTES = 32;
const LINK_MS = 24 * 3_600_000;

export type SignUpPolicy = SignInMethods['sign_up'];

export interface People {
  /** The rule that says who may make an account at present. */
  policy(): SignUpPolicy;
  /** @throws ServiceError `sign_up_closed`, `conflict` if the address is taken, `rate_limit_exceeded` */
  signUp(request: NewPerson & { orgName: string }, visitor: Visitor): Promise<NewSession>;
  /** The link is in this answer only. @throws ServiceError `conflict` if the address is taken, `not_found` for an unknown organisation */
  add(request: OperatorAdds): Promise<OperatorUser & { url: string }>;
  /**
   * The link lets the person set a new password, which ends all passkeys, codes, sessions, keys of programs that the person has approved, and
   * open invitations that the person has made. @throws ServiceError `not_found`, `conflict` for a person who is blocked
   */
  reset(idOrEmail: string): Promise<OperatorUser & { url: string }>;
  /** A change of what a person may do. @throws ServiceError `not_found`, `conflict` if it changes nothing */
  change(idOrEmail: string, change: AccessChange): Promise<OperatorUser>;
  /** @throws ServiceError `not_found` for a link that was used, replaced or has expired */
  useLink(token: string, password: string, visitor: Visitor): Promise<NewSession>;
  /**
   * Makes a person who has an account a member. @throws ServiceError `not_found` for an unknown organisation or person, `conflict` for a member
   */
  addTo(orgId: string, member: { idOrEmail: string; role: Role }): Promise<Member>;
  /** Whether the person wants mails about what happens in its organisations. */
  setMailNotices(userId: string, wants: boolean): Promise<void>;
  view(query: Query, row: store.UserRow): Promise<OperatorUser>;
}

export interface NewPerson {
  email: string;
  name: string;
  password: string;
}

export interface OperatorAdds {
  email: string;
  name: string;
  isOperator: boolean;
  member?: { orgId: string; role: Role } | undefined;
}

export interface PeopleDeps extends SignInDeps {
  accounts: Accounts;
  mail: Mail;
  signIn: SignIn;
  /** The origin of the console. The addresses of its pages begin with it. */
  origin: string;
  policy(): SignUpPolicy;
}

export function openPeople(deps: PeopleDeps): People {
  const { db, clock, ids, accounts, attempts, passwords, sessions, signIn } = deps;
  /** Makes a one-time link to a page of the console, and ends an older one. */
  const newLink = async (tx: Tx, userId: string): Promise<string> => {
    const token = ids.secret(LINK_BYTES);
    const nowMs = clock.now();
    const times = { created_ms: nowMs, expires_ms: nowMs + LINK_MS };
    await replaceLink(tx, { token_hash: hashOf(token), user_id: userId, ...times });
    // The token stands after the #, so that it is in no log of a proxy.
    return `${deps.origin}/welcome#${token}`;
  };
  return {
    policy: deps.policy,
    signUp: async ({ orgName, ...person }, visitor) => {
      if (deps.policy() !== 'open')
        fail(
          'sign_up_closed',
          'This installation takes new people by invitation only. Ask somebody who works with it.',
        );
      const attempt = { account: person.email, clientIp: visitor.clientIp, isKnown: false };
      await attempts.take(attempt);
      await assertFree(attempt, deps);
      // A sign-up that is refused here is no failed sign-in of its network.
      const hash = await attempts.checked(attempt, async () => {
        await attempts.takeSignUp(attempt.clientIp);
        return passwords.hash(person.password);
      });
      return db.tx('users.sign_up', async (tx) => {
        const user = await insertPerson(tx, { ...person, isOperator: false, isVouched: false }, deps);
        await signIn.setPassword(tx, user.id, hash);
        const orgId = await accounts.addUnfundedOrg(tx, orgName);
        await addMember(tx, { orgId, userId: user.id, role: 'owner', by: user.id }, deps);
        await attempts.forgive(tx, attempt);
        return sessions.begin(tx, { userId: user.id, visitor, isStrong: false, method: 'sign-up', orgId });
      });
    },
    add: async ({ member, ...person }) => {
      if (member !== undefined) await accounts.assertOrg(member.orgId);
      const { user, url } = await db.tx('users.add', async (tx) => {
        if (member !== undefined) await tx.lock('org', member.orgId);
        const made = await insertPerson(tx, { ...person, isVouched: true }, deps);
        if (member !== undefined) await addMember(tx, { ...member, userId: made.id, by: 'operator' }, deps);
        return { user: made, url: await newLink(tx, made.id) };
      });
      return { ...(await view(db.read, user)), url };
    },
    reset: async (idOrEmail) => {
      const user = await findByIdOrEmail(db.read, idOrEmail);
      const url = await db.tx('users.reset', async (tx) => {
        await tx.lock('user', user.id);
        await assertNotBlocked(tx, user.id);
        return newLink(tx, user.id);
      });
      return { ...(await view(db.read, user)), url };
    },
    change: async (idOrEmail, change) => {
      const { id } = await findByIdOrEmail(db.read, idOrEmail);
      const keys = await db.tx(`users.${change}`, async (tx) => {
        await tx.lock('user', id);
        return changeAccess(tx, await findByIdOrEmail(tx, id), change, deps);
      });
      accounts.dropKeys(keys);
      return view(db.read, await findByIdOrEmail(db.read, id));
    },
    addTo: (orgId, member) => addTo(orgId, member, deps),
    useLink: (token, password, visitor) => useLink({ token, password }, visitor, deps),
    setMailNotices: (userId, wants) => db.tx('users.mail_notices', (tx) => store.setMailNotices(tx, userId, wants)),
    view,
  };
}

async function useLink(
  { token, password }: { token: string; password: string },
  visitor: Visitor,
  deps: PeopleDeps,
): Promise<NewSession> {
  const { db, clock, accounts, passwords, sessions, signIn } = deps;
  const found = await findLink(db.read, hashOf(token), clock.now());
  if (found === undefined) return failLink();
  const { user_id: userId } = found;
  const hash = await passwords.hash(password);
  const { begun, keys } = await db.tx('users.use_link', async (tx) => {
    await tx.lock('user', userId);
    // Two requests with the same link may come at once. The second one finds that the link is gone.
    if ((await findLink(tx, found.token_hash, clock.now())) === undefined) failLink();
    await deleteLinks(tx, userId);
    await deleteAllCredentials(tx, userId);
    await noteEnded(tx, await deleteSessionsOf(tx, userId), deps);
    const ended = await endMade(tx, userId, 'a link of the operator', deps);
    await signIn.setPassword(tx, userId, hash);
    await store.noteVouched(tx, userId);
    return { begun: await sessions.begin(tx, { userId, visitor, isStrong: false, method: 'link' }), keys: ended };
  });
  accounts.dropKeys(keys);
  return begun;
}

async function addTo(
  orgId: string,
  { idOrEmail, role }: { idOrEmail: string; role: Role },
  deps: PeopleDeps,
): Promise<Member> {
  const { db, accounts } = deps;
  await accounts.assertOrg(orgId);
  const { id: userId } = await findByIdOrEmail(db.read, idOrEmail);
  const added = await db.tx('users.add_to', async (tx) => {
    await tx.lock('org', orgId);
    await addMember(tx, { orgId, userId, role, by: 'operator' }, deps);
    return store.listedMember(tx, orgId, userId);
  });
  return memberView(added ?? fail('not_found', `There is no user ${idOrEmail}.`));
}

/** @throws ServiceError `conflict` if the address is taken */
export async function insertPerson(
  tx: Tx,
  { email, name, isOperator, isVouched }: Pick<OperatorAdds, 'email' | 'name' | 'isOperator'> & { isVouched: boolean },
  { clock, ids }: Pick<PeopleDeps, 'clock' | 'ids'>,
): Promise<store.UserRow> {
  const flags = { is_operator: isOperator, is_vouched: isVouched };
  const defaults = { blocked_ms: null, mail_notices: true };
  const row = { id: ids.prefixed('usr'), email, name, ...flags, ...defaults, created_ms: clock.now() };
  return (await store.insertUser(tx, row)) === 1 ? row : failTaken(email);
}

/** Spares the hash for an address that is taken. The answer says so in any case. @throws ServiceError `conflict` if the address is taken */
export async function assertFree(
  attempt: Attempt,
  { db, attempts }: Pick<PeopleDeps, 'db' | 'attempts'>,
): Promise<void> {
  if ((await store.userWithEmail(db.read, attempt.account)) === undefined) return;
  await attempts.noteFailure(attempt);
  failTaken(attempt.account);
}

function failTaken(email: string): never {
  return fail('conflict', `Somebody has the address ${email} already. Use that account, or another address.`);
}

async function view(query: Query, row: store.UserRow): Promise<OperatorUser> {
  const factors = await factorsOf(query, row.id);
  const memberships = await store.membershipsOf(query, row.id);
  return {
    ...store.personView(row),
    has_second_factor: hasSecond(factors),
    blocked_at: row.blocked_ms === null ? null : isoTime(row.blocked_ms),
    orgs: memberships.map(({ org_id: orgId, role }) => `${orgId} (${role})`),
    created_at: isoTime(row.created_ms),
  };
}

async function findByIdOrEmail(query: Query, idOrEmail: string): Promise<store.UserRow> {
  const found = idOrEmail.includes('@')
    ? await store.userWithEmail(query, idOrEmail.toLowerCase())
    : await store.findUser(query, idOrEmail);
  return found ?? fail('not_found', `There is no user ${idOrEmail}. \`admin user list\` names all.`);
}

function failLink(): never {
  return fail('not_found', 'This link was used, replaced or has expired. Ask the operator for a new one.');
}
