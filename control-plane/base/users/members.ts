// The members of an organisation: who is in, with which role. An organisation that has members always keeps an owner.
import type { Role } from '../../../shared/api/auth.ts';
import type { Member } from '../../../shared/api/member.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Accounts } from '../accounts/accounts.ts';
import { revokeKeysBeyond } from '../accounts/api-keys.ts';
import type { Db, Tx } from '../db/db.ts';
import type { Events } from '../events/events.ts';
import type { Caller } from '../http/route.ts';
import { deleteInvitation, invitationsBy } from './link-store.ts';
import { assertMayGive, beyondOf, scopesOfRole } from './roles.ts';
import type { Sessions } from './sessions.ts';
import * as store from './store.ts';

export interface Members {
  /**
   * Nobody gives or takes a role that may do more than the caller. @throws ServiceError `not_found`, `insufficient_scope`, `conflict` for
   * the last owner
   */
  change(caller: Caller, userId: string, role: Role): Promise<Member>;
  /** Removes the member. The API keys of the person's own logins end too. @throws as `change` does */
  remove(caller: Caller, userId: string): Promise<void>;
}

interface Deps {
  db: Db;
  clock: Clock;
  events: Events;
  accounts: Pick<Accounts, 'dropKeys'>;
  sessions: Pick<Sessions, 'present'>;
}

export function openMembers(deps: Deps): Members {
  const { db, accounts, sessions } = deps;
  return {
    change: async (admitted, userId, role) => {
      const { member, keys } = await db.tx('users.change_member', async (tx) => {
        await tx.lock('org', admitted.orgId);
        const caller = await sessions.present(tx, admitted, 'members:write');
        const before = await memberOf(tx, caller, userId);
        assertMayGive(caller, role);
        if (before.role === 'owner' && role !== 'owner') await assertOtherOwner(tx, caller.orgId);
        await store.setRole(tx, { ...before, role });
        const data = { role, from: before.role, by: caller.principalId };
        await deps.events.append(tx, { type: 'member.changed', subjectId: userId, orgId: caller.orgId, data });
        const after = await store.listedMember(tx, caller.orgId, userId);
        return { member: memberView(after ?? failUnknown(userId)), keys: await endBeyond(tx, before, role, deps) };
      });
      accounts.dropKeys(keys);
      return member;
    },
    remove: async (admitted, userId) => {
      const keys = await db.tx('users.remove_member', async (tx) => {
        await tx.lock('org', admitted.orgId);
        const leaves = admitted.session?.userId === userId;
        const caller = await sessions.present(tx, admitted, leaves ? 'session' : 'members:write');
        const before = await memberOf(tx, caller, userId);
        if (before.role === 'owner') await assertOtherOwner(tx, caller.orgId);
        await store.deleteMember(tx, caller.orgId, userId);
        const data = { role: before.role, by: caller.principalId };
        await deps.events.append(tx, { type: 'member.removed', subjectId: userId, orgId: caller.orgId, data });
        return endBeyond(tx, before, null, deps);
      });
      accounts.dropKeys(keys);
    },
  };
}

/**
 * The transaction must have locked the organisation, unless it is a new one. @throws ServiceError `conflict` if the person is a member
 * already
 */
export async function addMember(
  tx: Tx,
  { orgId, userId, role, by }: { orgId: string; userId: string; role: Role; by: string },
  { clock, events }: Pick<Deps, 'clock' | 'events'>,
): Promise<void> {
  const row = { org_id: orgId, user_id: userId, role, created_ms: clock.now() };
  if ((await store.insertMember(tx, row)) === 0)
    fail('conflict', 'This person is a member of the organisation already.');
  await events.append(tx, { type: 'member.added', subjectId: userId, orgId, data: { role, by } });
}

export function memberView(row: store.ListedMemberRow): Member {
  const { user_id: userId, email, name, role } = row;
  const facts = { has_second_factor: row.has_second_factor, created_at: isoTime(row.created_ms) };
  return { user_id: userId, email, name, role, ...facts };
}

/**
 * The member, if the caller may change it. Everybody may leave. To change another member, the caller needs all permissions of that member's
 * role.
 */
async function memberOf(tx: Tx, caller: Caller, userId: string): Promise<store.MemberRow> {
  const member = (await store.findMember(tx, caller.orgId, userId)) ?? failUnknown(userId);
  if (caller.session?.userId !== userId) assertMayGive(caller, member.role);
  return member;
}

async function assertOtherOwner(tx: Tx, orgId: string): Promise<void> {
  if ((await store.countOwners(tx, orgId)) > 1) return;
  fail('conflict', 'An organisation needs an owner. Make somebody else an owner first.');
}

/**
 * Ends the API keys of the person's logins and the person's open invitations that may do more than the role: what the person may do now decides.
 * Returns the ids of the keys.
 */
async function endBeyond(
  tx: Tx,
  { org_id: orgId, user_id: userId }: store.MemberRow,
  role: Role | null,
  { clock, events }: Deps,
): Promise<string[]> {
  const scopes = role === null ? [] : scopesOfRole(role);
  for (const invitation of await invitationsBy(tx, { orgId, userId, nowMs: clock.now() })) {
    if (beyondOf(invitation.role, scopes) === undefined) continue;
    await deleteInvitation(tx, orgId, invitation.id);
    const data = { by: 'a change of the member' };
    await events.append(tx, { type: 'invitation.revoked', subjectId: invitation.id, orgId, data });
  }
  const ended = await revokeKeysBeyond(tx, { orgId, userId, scopes }, clock.now());
  for (const { id } of ended) {
    await events.append(tx, { type: 'api_key.revoked', subjectId: id, orgId, data: { by: 'a change of the member' } });
  }
  return ended.map(({ id }) => id);
}

function failUnknown(userId: string): never {
  return fail('not_found', `There is no member ${userId}.`);
}
