// What this room adds to the house: the routes of organisations and keys.
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Db } from '../db/db.ts';
import type { Events } from '../events/events.ts';
import type { Cursors } from '../http/cursors.ts';
import type { Accounts } from './accounts.ts';
import { API_KEY_FEED, ORG_FEED } from './feeds.ts';
import { apiKeyRoutes, sshKeyRoutes } from './routes.ts';
import { accountOperatorRoutes } from './operator-routes.ts';
import type { SshKeys } from './ssh-keys.ts';

interface Deps {
  db: Db;
  clock: Clock;
  ids: Ids;
  events: Events;
  cursors: Cursors;
  accounts: Accounts;
  sshKeys: SshKeys;
}

export function accountsBrings({ db, clock, ids, events, cursors, accounts, sshKeys }: Deps) {
  return {
    routes: [...apiKeyRoutes({ db, clock, ids, events, cursors, accounts }), ...sshKeyRoutes({ db, sshKeys, cursors })],
    operatorRoutes: accountOperatorRoutes({ db, cursors, accounts }),
    feeds: [API_KEY_FEED, ORG_FEED],
  };
}
