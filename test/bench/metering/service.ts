// The control plane's share of the metering bench: the rooms on a database with running instances, a listener, and the tick.
import { z } from 'zod';
import { int } from '../../../control-plane/base/db/columns.ts';
import { type Db, sql } from '../../../control-plane/base/db/db.ts';
import { openCursors } from '../../../control-plane/base/http/cursors.ts';
import { openMetrics } from '../../../control-plane/base/http/metrics.ts';
import { openHttp } from '../../../control-plane/base/http/server.ts';
import { billingRoutes } from '../../../control-plane/money/metering/routes.ts';
import type { Rooms } from '../../../control-plane/rooms.ts';
import type { Core } from '../../../control-plane/settings.ts';
import { type Clock, systemClock } from '../../../shared/clock.ts';
import { openMigrated } from '../database.ts';
import { timeMs } from '../measure.ts';
import { openBareRooms } from '../rooms.ts';
import { type Answer, serveOrders, tellParent } from '../side.ts';
import { fill } from './fill.ts';

const HOUR_MS = 3_600_000;
const ORGS = 1_000;
const TICK_MS = 30_000;
const AHEAD_MS = 10 * 60_000;
/** The minute of the hour at which the ticks begin: half of the hour's postings are due by then. */
const FIRST_TICK = 15;

let offsetMs = 0;
const real = systemClock();
const clock: Clock = { ...real, now: () => real.now() + offsetMs };
let opened: { db: Db; rooms: Rooms; core: Core } | undefined;
const service = (): { db: Db; rooms: Rooms; core: Core } => {
  if (opened === undefined) throw new Error('no database is open');
  return opened;
};

serveOrders(async (order): Promise<Answer> => {
  if (order.kind === 'open') return open(String(order['url']), Number(order['instances']));
  if (order.kind === 'listen') return listen();
  if (order.kind === 'tick') return tick(Number(order['minute']), Number(order['forMs']));
  await service().db.close();
  return {};
});

async function open(url: string, instances: number): Promise<Answer> {
  const db = await openMigrated(url);
  opened = { db, ...openBareRooms({ db, clock }, { first: 30_000, last: 30_001 }) };
  const orgIds: string[] = [];
  for (let i = 0; i < ORGS; i += 1) orgIds.push((await opened.rooms.accounts.createOrg(`org ${i}`)).id);
  setMinute(FIRST_TICK);
  await fill(db, { instances, orgIds, tickedMs: clock.now() - TICK_MS, aheadMs: AHEAD_MS });
  // A server analyses tables of this size by itself, soon after they were filled.
  if (db.dialect === 'postgres') await db.tx('bench.analyze', (tx) => tx.run(sql`analyze`));
  const request = { orgId: orgIds[0] ?? '', name: 'bench', scopes: ['billing:read'], expiresMs: null };
  tellParent({ kind: 'key', key: (await opened.rooms.accounts.createKey(request)).key });
  return {};
}

/** Sets the clock to this minute after the beginning of the current hour. */
function setMinute(minute: number): void {
  offsetMs = 0;
  offsetMs = Math.floor(real.now() / HOUR_MS) * HOUR_MS + minute * 60_000 - real.now();
}

async function listen(): Promise<Answer> {
  const { db, rooms, core } = service();
  const http = openHttp(
    {
      ...core,
      metrics: openMetrics(),
      authenticate: rooms.accounts.authenticate,
      ready: async () => [],
      hasRoom: () => true,
    },
    { epoch: () => 1, audience: 'public', baseUrl: 'http://127.0.0.1/v1', trustProxy: [], sealing: core.sealing },
  );
  http.register(billingRoutes({ db, clock, ledger: rooms.ledger, cursors: openCursors(core.rng.bytes(32)) }));
  return http.listen({ host: '127.0.0.1', port: 0 });
}

/** Stops early after `forMs`. */
async function tick(minute: number, forMs: number): Promise<Answer> {
  const { db, rooms } = service();
  setMinute(minute);
  const before = await postings(db);
  let exhausted: string[] = [];
  const ms = await timeMs(async () => (exhausted = await rooms.metering.tick(AbortSignal.timeout(forMs))));
  return { ms, posted: (await postings(db)) - before, exhausted: exhausted.length };
}

async function postings(db: Db): Promise<number> {
  const row = await db.read.one(
    z.object({ count: int }),
    sql`select count(*) as count from transfers where kind = 'rental.charge'`,
  );
  return row?.count ?? 0;
}
