// The events of people in the live stream: members, invitations, and sign-ins.
import type { Clock } from '../../../shared/clock.ts';
import type { Feed } from '../events/feeds.ts';
import { invitationView } from './invitations.ts';
import { invitationsOfOrg } from './link-store.ts';
import { memberView } from './members.ts';
import { membersOfOrg } from './store.ts';

export const MEMBER_FEED: Feed = {
  of: 'member',
  scope: 'members:read',
  describe: async (query, orgId, ids) =>
    new Map((await membersOfOrg(query, orgId, ids)).map((row) => [row.user_id, memberView(row)])),
};

export function invitationFeed(clock: Clock): Feed {
  return {
    of: 'invitation',
    scope: 'members:read',
    describe: async (query, orgId, ids) => {
      const found = await invitationsOfOrg(query, orgId, { ids, nowMs: clock.now() });
      return new Map(found.map((row) => [row.id, invitationView(row)]));
    },
  };
}

/**
 * Owners see the sign-ins of all members, and every person sees its own. The events do not show the sessions, because only the person
 * itself may list them.
 */
export const SESSION_FEED: Feed = {
  of: 'session',
  scope: 'members:write',
  isPersonal: true,
  describe: () => Promise.resolve(new Map()),
};
