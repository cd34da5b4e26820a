// The journal and the webhooks room on a database file, as a load test needs them: no HTTP, no fleet, a fixed secret.
import { readFileSync } from 'node:fs';
import type { Db } from '../../../control-plane/base/db/db.ts';
import { migrate } from '../../../control-plane/base/db/migrate.ts';
import { openSqlite } from '../../../control-plane/base/db/sqlite.ts';
import { type Events, openEvents } from '../../../control-plane/base/events/events.ts';
import { openSealing } from '../../../control-plane/base/http/sealing.ts';
import { openOutbound } from '../../../control-plane/base/outbound/outbound.ts';
import { openWebhooks, type Webhooks } from '../../../control-plane/rental/webhooks/webhooks.ts';
import { SCHEMA } from '../../../control-plane/foundation.ts';
import { type Clock, systemClock } from '../../../shared/clock.ts';
import { createIds } from '../../../shared/ids.ts';
import { createLog, type Log } from '../../../shared/log.ts';
import { systemRng } from '../../../shared/rng.ts';

export interface LoadRooms {
  db: Db;
  clock: Clock;
  log: Log;
  events: Events;
  webhooks: Webhooks;
}

export interface LoadPlan {
  databaseFile: string;
  /** PEM certificate of the receivers. */
  caFile: string;
  /** One endpoint for each URL. `orgOf` names its organisation by its place in this list. */
  urls: readonly string[];
  events: number;
  perSecond: number;
}

export function orgOf(endpoint: number): string {
  return `org-${endpoint}`;
}

/** Three events for each instance, one after the other; instances go round the endpoints. */
export const EVENT_TYPES = ['instance.creating', 'instance.running', 'instance.terminated'] as const;

export async function openLoadRooms(plan: LoadPlan): Promise<LoadRooms> {
  const clock = systemClock();
  const rng = systemRng();
  const ids = createIds(clock, rng);
  const log = createLog('load', 'error');
  const db = openSqlite(plan.databaseFile, { clock });
  await migrate(db, SCHEMA, { clock });
  const policy = { ports: 'any' as const, privateNetworks: ['127.0.0.0/8'], namedHosts: [] };
  const outbound = openOutbound(policy, { clock, ca: readFileSync(plan.caFile, 'utf8') });
  const sealing = openSealing(new Uint8Array(32).fill(7), ids);
  const webhooks = openWebhooks({ db, clock, ids, rng, log, sealing, outbound, maxAttempts: 5 });
  const events = openEvents({ clock, ids, onAppend: (tx, event) => webhooks.noteEvent(tx, event) });
  return { db, clock, log, events, webhooks };
}
