// What this room adds to the house: the routes of people, and what it forgets.
import type { Clock } from '../../../shared/clock.ts';
import type { Db } from '../db/db.ts';
import { type Forgets, inPieces, type Piece } from '../db/pieces.ts';
import type { Cursors } from '../http/cursors.ts';
import { ATTEMPTS_KEEP_MS, forgetAttempts } from './attempts.ts';
import { forgetChallenges } from './credential-store.ts';
import { deviceRoutes } from './device-routes.ts';
import { forgetDeviceLogins } from './device-store.ts';
import { factorRoutes } from './factor-routes.ts';
import { invitationFeed, MEMBER_FEED, SESSION_FEED } from './feeds.ts';
import { forgetInvitations, forgetLinks } from './link-store.ts';
import { memberRoutes } from './member-routes.ts';
import { userOperatorRoutes } from './operator-routes.ts';
import { oidcRoutes } from './oidc-routes.ts';
import { passkeyRoutes } from './passkey-routes.ts';
import { forgetNetworks, forgetSessions, NETWORK_KEEP_MS } from './session-store.ts';
import { sessionRoutes } from './session-routes.ts';
import { signInRoutes } from './sign-in-routes.ts';
import type { Users } from './users.ts';

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
    ],
  };
}
