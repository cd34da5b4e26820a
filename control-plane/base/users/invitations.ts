// Invitations to an organisation: links that work once. Who accepts one is a new person, or one who has signed in.
import type { CreateInvitation, Invitation, NewInvitation, ShownInvitation } from '../../../shared/api/member.ts';
import type { z } from 'zod';
import { isoTime } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { INVITATIONS_PER_ORG_MAX } from '../../../shared/limits.ts';
import { hashOf, personOfKey } from '../accounts/api-keys.ts';
import { assertOrg } from '../accounts/orgs.ts';
import type { Query, Tx } from '../db/db.ts';
import type { Caller, SessionCall } from '../http/route.ts';
import * as rows from './link-store.ts';
import { countMail, takeMailBack } from './mail-counts.ts';
import { addMember } from './members.ts';
import { assertFree, insertPerson, type NewPerson, type PeopleDeps } from './people.ts';
import { assertMayGive } from './roles.ts';
import type { NewSession, Visitor } from './sessions.ts';
import { findUser } from './store.ts';

const TOKEN_BYTES = 32;
const INVITATION_MS = 7 * 86_400_000;

export interface Invitations {
  /**
   * The link is in this answer only. If `mailed` is true, it may be mailed, and the caller does so (`mail`). The transaction must have
   * locked the organisation. @throws ServiceError `unauthorized`, `insufficient_scope`, `conflict` if there are too many
   */
  create(tx: Tx, caller: Caller, request: z.output<typeof CreateInvitation>): Promise<NewInvitation>;
  /** Mails the link of a stored invitation to its address. Returns the answer, which says whether the mail server has taken the mail. */
  mail(invitation: NewInvitation, orgId: string): Promise<NewInvitation>;
  /** Called in the transaction that stores the answer of `mail`. A mail that was not sent does not count for its address. */
  noteMail(tx: Tx, invitation: NewInvitation): Promise<void>;
  /** False if the organisation has no such invitation. @throws ServiceError `unauthorized`, `insufficient_scope` */
  revoke(tx: Tx, caller: Caller, id: string): Promise<boolean>;
  /** What the holder of the link is invited to. Changes nothing. @throws ServiceError `not_found` */
  show(token: string): Promise<ShownInvitation>;
  /** Makes a new person. @throws ServiceError `not_found`, `sign_up_closed`, `conflict` if the address is taken, `rate_limit_exceeded` */
  accept(token: string, person: NewPerson, visitor: Visitor): Promise<NewSession>;
  /**
   * The person of the session becomes a member. Returns the id of the organisation. @throws ServiceError `not_found`, `conflict` if the
   * person is a member already
   */
  join(token: string, caller: SessionCall<unknown, unknown, unknown>['caller']): Promise<string>;
}

export function openInvitations(deps: PeopleDeps): Invitations {
  const { db, clock, events, attempts, passwords, sessions, signIn } = deps;
  return {
    create: (tx, caller, request) => create(tx, caller, request, deps),
    mail: (invitation, orgId) => mail(invitation, orgId, deps),
    noteMail,
    revoke: async (tx, caller, id) => {
      const { orgId, principalId } = await sessions.present(tx, caller, 'members:write');
      if (!(await rows.deleteInvitation(tx, orgId, id))) return false;
      await events.append(tx, { type: 'invitation.revoked', subjectId: id, orgId, data: { by: principalId } });
      return true;
    },
    show: (token) => show(token, deps),
    accept: async (token, person, visitor) => {
      if (deps.policy() === 'closed')
        fail('sign_up_closed', 'The operator of this installation adds new people. Ask the operator for an account.');
      const tokenHash = hashOf(token);
      const { org_id: orgId } = await findFor(db.read, { tokenHash, email: person.email }, clock.now());
      const attempt = { account: person.email, clientIp: visitor.clientIp, isKnown: false };
      await attempts.take(attempt);
      await assertFree(attempt, deps);
      const hash = await attempts.checked(attempt, () => passwords.hash(person.password));
      return db.tx('users.accept_invitation', async (tx) => {
        await tx.lock('org', orgId);
        const { role, id } = await take(tx, { tokenHash, email: person.email }, deps);
        const user = await insertPerson(tx, { ...person, isOperator: false, isVouched: false }, deps);
        await signIn.setPassword(tx, user.id, hash);
        await addMember(tx, { orgId, userId: user.id, role, by: id }, deps);
        await attempts.forgive(tx, attempt);
        return sessions.begin(tx, { userId: user.id, visitor, isStrong: false, method: 'invitation', orgId });
      });
    },
    join: async (token, caller) => {
      const { session } = caller;
      const tokenHash = hashOf(token);
      const { org_id: orgId } = await find(db.read, tokenHash, clock.now());
      const user = await findUser(db.read, session.userId);
      await db.tx('users.join', async (tx) => {
        await tx.lock('org', orgId);
        await sessions.present(tx, caller, 'session');
        const { role, id } = await take(tx, { tokenHash, email: user?.email ?? '' }, deps);
        await addMember(tx, { orgId, userId: session.userId, role, by: id }, deps);
      });
      return orgId;
    },
  };
}

async function create(
  tx: Tx,
  admitted: Caller,
  request: z.output<typeof CreateInvitation>,
  deps: PeopleDeps,
): Promise<NewInvitation> {
  const { clock, ids, events, sessions } = deps;
  const { role, email = null } = request;
  const userId = admitted.session?.userId ?? (await personOfKey(tx, admitted.principalId));
  // All invitations of a person end together (`People.useLink`), and this one must not be made meanwhile.
  if (userId !== null) await tx.lock('user', userId);
  const caller = await sessions.present(tx, admitted, 'members:write');
  assertMayGive(caller, role);
  const { orgId, principalId } = caller;
  const nowMs = clock.now();
  if ((await rows.openInvitations(tx, orgId, nowMs)) >= INVITATIONS_PER_ORG_MAX)
    fail('conflict', `An organisation may have ${INVITATIONS_PER_ORG_MAX} open invitations; revoke one first.`);
  const token = ids.secret(TOKEN_BYTES);
  const row = {
    id: ids.prefixed('inv'),
    org_id: orgId,
    role,
    email,
    token_hash: hashOf(token),
    made_by: principalId,
    user_id: userId,
    created_ms: nowMs,
    expires_ms: nowMs + INVITATION_MS,
  };
  await rows.insertInvitation(tx, row);
  const mailed = email !== null && deps.mail.isConfigured && (await countMail(tx, { orgId, email }, nowMs));
  const data = { role, email, by: principalId };
  await events.append(tx, { type: 'invitation.created', subjectId: row.id, orgId, data });
  return { ...invitationView(row), url: `${deps.origin}/invitation#${token}`, mailed };
}

async function show(token: string, { db, clock }: PeopleDeps): Promise<ShownInvitation> {
  const found = await find(db.read, hashOf(token), clock.now());
  const { name } = await assertOrg(db.read, found.org_id);
  const maker = found.user_id === null ? undefined : await findUser(db.read, found.user_id);
  const { role, email, expires_at } = invitationView(found);
  const invitedBy = maker === undefined ? null : { name: maker.name, email: maker.email };
  return { org_name: name, role, invited_by: invitedBy, email, expires_at };
}

/** Uses the invitation up. The transaction must have locked its organisation. */
async function take(
  tx: Tx,
  { tokenHash, email }: { tokenHash: string; email: string },
  { clock, events }: PeopleDeps,
): Promise<rows.InvitationRow> {
  const found = await findFor(tx, { tokenHash, email }, clock.now());
  const { id: subjectId, org_id: orgId, role } = found;
  // The maker of the invitation may have ended it at the same moment, with a link of the operator. That locks the maker only.
  if (!(await rows.deleteInvitation(tx, orgId, subjectId))) failGone();
  await events.append(tx, { type: 'invitation.accepted', subjectId, orgId, data: { role, email } });
  return found;
}

/** @throws ServiceError `not_found` also for an invitation to another address */
async function findFor(
  query: Query,
  { tokenHash, email }: { tokenHash: string; email: string },
  nowMs: number,
): Promise<rows.InvitationRow> {
  const found = await find(query, tokenHash, nowMs);
  if (found.email === null || found.email === email) return found;
  return fail('not_found', 'This invitation is for another e-mail address. Use that one, or ask for a new invitation.');
}

async function find(query: Query, tokenHash: string, nowMs: number): Promise<rows.InvitationRow> {
  const found = await rows.findInvitation(query, tokenHash, nowMs);
  return found ?? failGone();
}

function failGone(): never {
  return fail('not_found', 'This invitation was used or revoked, or has expired. Ask for a new one.');
}

async function mail(
  invitation: NewInvitation,
  orgId: string,
  { db, origin, mail: { send } }: PeopleDeps,
): Promise<NewInvitation> {
  const { id, email, role, url, expires_at: expiresAt } = invitation;
  if (email === null) return { ...invitation, mailed: false };
  const { name } = await assertOrg(db.read, orgId);
  const { host } = new URL(origin);
  const text = `You have been invited to the organisation "${name}" on ${host} as ${role}. Open this link to accept, before ${expiresAt}:\n\n${url}\n`;
  // The subject has no words of the customer: a stranger must not get advertisements under the operator's name.
  const mailed = await send({ to: email, subject: `Invitation to an organisation on ${host}`, text, about: id });
  return { ...invitation, mailed };
}

async function noteMail(tx: Tx, { email, mailed, created_at: createdAt }: NewInvitation): Promise<void> {
  if (email !== null && !mailed) await takeMailBack(tx, email, Date.parse(createdAt));
}

export function invitationView(row: rows.InvitationRow): Invitation {
  const { id, role, email } = row;
  return { id, role, email, created_at: isoTime(row.created_ms), expires_at: isoTime(row.expires_ms) };
}
