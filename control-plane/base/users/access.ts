// What the operator gives to a person who has an account, and takes away: the rights of an operator, and the access itself.
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { revokeKeysOfPerson } from '../accounts/api-keys.ts';
import type { Query, Tx } from '../db/db.ts';
import type { Events } from '../events/events.ts';
import { deleteInvitation, deleteLinks, invitationsBy } from './link-store.ts';
import { deleteSessionsOf } from './session-store.ts';
import { noteEnded } from './sessions.ts';
import * as store from './store.ts';

export const ACCESS_CHANGES = ['promote', 'demote', 'block', 'unblock'] as const;
export type AccessChange = (typeof ACCESS_CHANGES)[number];

interface Deps {
  clock: Clock;
  events: Events;
}

/** Returns the ids of the keys that have ended. The transaction must have locked the person. @throws ServiceError `conflict` */
export async function changeAccess(
  tx: Tx,
  user: store.UserRow,
  change: AccessChange,
  deps: Deps,
): Promise<readonly string[]> {
  const { id, email, is_operator: isOperator, blocked_ms: blockedMs } = user;
  switch (change) {
    case 'promote':
      if (isOperator) fail('conflict', `${email} is an operator already.`);
      // A stranger may have signed up with the address of somebody else.
      if (!user.is_vouched)
        fail(
          'conflict',
          `Nobody knows whose the account ${email} is. Make a link for the person first (admin user reset).`,
        );
      await store.setOperator(tx, id, true);
      return [];
    case 'demote':
      if (!isOperator) fail('conflict', `${email} is not an operator.`);
      await store.setOperator(tx, id, false);
      await noteEnded(tx, await deleteSessionsOf(tx, id), deps);
      return [];
    case 'block':
      if (blockedMs !== null) fail('conflict', `${email} is blocked already.`);
      await store.setBlocked(tx, id, deps.clock.now());
      await deleteLinks(tx, id);
      await noteEnded(tx, await deleteSessionsOf(tx, id), deps);
      return endMade(tx, id, 'the operator', deps);
    case 'unblock':
      if (blockedMs === null) fail('conflict', `${email} is not blocked.`);
      await store.setBlocked(tx, id, null);
      return [];
  }
}

/** @throws ServiceError `conflict` */
export async function assertNotBlocked(query: Query, userId: string): Promise<void> {
  const user = await store.findUser(query, userId);
  if (user !== undefined && user.blocked_ms !== null)
    fail('conflict', `${user.email} is blocked, so a link would be of no use. Use admin user unblock first.`);
}

/**
 * Ends the keys of the programs that the person has approved, and returns their ids. Ends the person's open invitations too: whoever had the
 * session may have made them, and would come back as a member. An invitation needs a membership of its maker, so no other organisation has one.
 * The transaction must have locked the person.
 */
export async function endMade(tx: Tx, userId: string, by: string, { clock, events }: Deps): Promise<string[]> {
  const nowMs = clock.now();
  const ended = await revokeKeysOfPerson(tx, userId, nowMs);
  for (const { id, org_id: orgId } of ended)
    await events.append(tx, { type: 'api_key.revoked', subjectId: id, orgId, data: { by } });
  for (const { org_id: orgId } of await store.membershipsOf(tx, userId)) {
    for (const { id } of await invitationsBy(tx, { orgId, userId, nowMs })) {
      if (!(await deleteInvitation(tx, orgId, id))) continue;
      await events.append(tx, { type: 'invitation.revoked', subjectId: id, orgId, data: { by } });
    }
  }
  return ended.map(({ id }) => id);
}
