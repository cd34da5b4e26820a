// What this room adds to the house: the routes of people, their events in the live stream, and what it forgets.
import type { Clock } from '../../../shared/clock.ts';
import type { Db } from '../db/db.ts';
import { type Forgets, inPieces, type Piece } from '../db/pieces.ts';
import type { Cursors } from '../http/cursors.ts';
import { ATTEMPTS_KEEP_MS, forgetAttempts } from './attempts.ts';
import { forgetChallenges } from './credential-store.ts';
import { deviceRoutes } from './device-routes.ts';
import { forgetDeviceLogins } from './device-store.ts';
import { factorRoutes } from './factor-routes.ts';
import { forgetInvitations, forgetLinks, invitationsOfOrg } from './link-store.ts';
import { forgetMailCounts, MAILS_COUNT_MS } from './mail-counts.ts';
import { memberRoutes } from './member-routes.ts';
import { userOperatorRoutes } from './operator-routes.ts';
import { oidcRoutes, signInRoutes } from './sign-in-routes.ts';
import { passkeyRoutes } from './passkey-routes.ts';
import { forgetNetworks, forgetSessions, NETWORK_KEEP_MS } from './session-store.ts';
import { sessionRoutes } from './session-routes.ts';
import type { Users } from './users.ts';
import type { Feed } from '../events/events.ts';
import { invitationView } from './invitations.ts';
import { memberView } from './members.ts';
import { membersOfOrg } from './store.ts';

interface Deps {
  db: Db;
  clock: Clock;
  cursors: Cursors;
  users: Users;
}

export function usersBrings(deps: Deps) {
  const { db, clock } = deps;
  const forgets = (what: string, keepMs: number, forget: (db: Db, piece: Piece) => Promise<number>): Forgets => ({
    what,
    run: (signal) => inPieces(clock.now() - keepMs, (piece) => forget(db, piece), signal),
  });
  return {
    routes: [
      ...signInRoutes(deps),
      ...sessionRoutes(deps),
      ...factorRoutes(deps),
      ...passkeyRoutes(deps),
      ...oidcRoutes(deps),
      ...deviceRoutes(deps),
      ...memberRoutes(deps),
    ],
    operatorRoutes: userOperatorRoutes(deps),
    feeds: [MEMBER_FEED, invitationFeed(clock), SESSION_FEED],
    forgets: [
      forgets('sessions', 0, forgetSessions),
      forgets('known_networks', NETWORK_KEEP_MS, forgetNetworks),
      forgets('sign_in_failures', ATTEMPTS_KEEP_MS, forgetAttempts),
      forgets('user_links', 0, forgetLinks),
      forgets('invitations', 0, forgetInvitations),
      forgets('device_logins', 0, forgetDeviceLogins),
      forgets('used_challenges', 0, forgetChallenges),
      forgets('mail_counts', MAILS_COUNT_MS, forgetMailCounts),
    ],
  };
}

const MEMBER_FEED: Feed = {
  of: 'member',
  scope: 'members:read',
  describe: async (query, orgId, ids) =>
    new Map((await membersOfOrg(query, orgId, ids)).map((row) => [row.user_id, memberView(row)])),
};

function invitationFeed(clock: Clock): Feed {
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
const SESSION_FEED: Feed = {
  of: 'session',
  scope: 'members:write',
  isPersonal: true,
  describe: () => Promise.resolve(new Map()),
};
