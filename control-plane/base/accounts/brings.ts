// What this room adds to the house: the routes of organisations and keys, and their events in the live stream.
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import { type Db, sql } from '../db/db.ts';
import { type Forgets, inPieces, type Piece } from '../db/pieces.ts';
import type { Events, Feed } from '../events/events.ts';
import type { Cursors } from '../http/cursors.ts';
import type { Accounts } from './accounts.ts';
import { apiKeyRoutes, orgRoute, type Present, sshKeyRoutes } from './routes.ts';
import { accountOperatorRoutes } from './operator-routes.ts';
import type { SshKeys } from './ssh-keys.ts';
import { apiKeyView, keysOfOrg } from './api-keys.ts';
import { orgsOf, orgView } from './orgs.ts';

interface Deps {
  db: Db;
  clock: Clock;
  ids: Ids;
  events: Events;
  cursors: Cursors;
  accounts: Accounts;
  sshKeys: SshKeys;
  present: Present;
  keepMs: number;
}

/** Keys are deleted `keepMs` after they have ended, as the events are that tell who made and ended them. */
export function accountsBrings(deps: Deps) {
  const { db, clock, cursors, accounts, keepMs } = deps;
  const forgets: Forgets = {
    what: 'api_keys',
    run: (signal) => inPieces(clock.now() - keepMs, (piece) => forgetKeys(db, piece), signal),
  };
  return {
    routes: [orgRoute(deps), ...apiKeyRoutes(deps), ...sshKeyRoutes(deps)],
    operatorRoutes: accountOperatorRoutes({ db, cursors, accounts }),
    feeds: [API_KEY_FEED, ORG_FEED],
    forgets: [forgets],
  };
}

/** Deletes keys that were revoked or have expired long ago. What they made names them by an id only. */
export function forgetKeys(db: Db, { untilMs, limit }: Piece): Promise<number> {
  const ended = sql`coalesce(revoked_ms, expires_ms)`;
  return db.tx('accounts.forget_keys', (tx) =>
    tx.run(
      sql`delete from api_keys where id in (select id from api_keys where ${ended} <= ${untilMs} order by ${ended} limit ${limit})`,
    ),
  );
}

const API_KEY_FEED: Feed = {
  of: 'api_key',
  scope: 'api_keys:read',
  describe: async (query, orgId, ids) =>
    new Map((await keysOfOrg(query, orgId, ids)).map((row) => [row.id, apiKeyView(row)])),
};

/**
 * The events of the organisation itself. Everybody who may read events sees a suspension, because it explains why nothing starts any more.
 */
const ORG_FEED: Feed = {
  of: 'org',
  scope: 'events:read',
  describe: async (query, orgId, ids) =>
    new Map((await orgsOf(query, ids.includes(orgId) ? [orgId] : [])).map((row) => [row.id, orgView(row)])),
};
