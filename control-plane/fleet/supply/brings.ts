// What this room adds to the house: routes and metrics of suppliers and machines.
import type { Clock } from '../../../shared/clock.ts';
import type { LoopOptions } from '../../../shared/loop.ts';
import type { Db, Query } from '../../base/db/db.ts';
import { type Forgets, inPieces } from '../../base/db/pieces.ts';
import type { Cursors } from '../../base/http/cursors.ts';
import { type Measure, one } from '../../base/http/metrics.ts';
import type { Payouts } from '../../money/payouts/payouts.ts';
import { catalogRoutes, type LatestEnd } from './catalog-routes.ts';
import { machineRoutes } from './machine-routes.ts';
import { machineOutagesRoute } from './outage-route.ts';
import { supplyOperatorRoutes } from './operator-routes.ts';
import { waitingMachines } from './overview.ts';
import { supplyRoutes } from './routes.ts';
import { machineFeed, SUPPLIER_FEED } from './owners.ts';
import { forgetDays } from './reliability.ts';
import { countMachines, countMachinesByState } from './store.ts';
import type { Supply } from './supply.ts';
import { keepUptimes } from './uptimes.ts';

/** A little longer than the days from which the reliability is computed. */
const DAYS_KEPT_MS = 32 * 86_400_000;
/** In an hour, the uptime of 30 days changes by little more than a thousandth. */
const UPTIMES_PERIOD_MS = 3_600_000;

interface Deps {
  db: Db;
  clock: Clock;
  cursors: Cursors;
  supply: Supply;
  payouts: Payouts;
  /** The machine on which each instance ran. */
  machinesOf(query: Query, instanceIds: readonly string[]): Promise<Map<string, string>>;
  /** Provided by rooms above: everything that ran on these machines. */
  subjectsOf(query: Query, machineIds: readonly string[]): Promise<string[]>;
  /** Provided by a room above. */
  latestEnd: LatestEnd;
  /** The evidence of each rental on a machine whose probes fail now. */
  failingProbes(query: Query, machineId: string): Promise<string[]>;
}

export function supplyBrings(deps: Deps) {
  const { db, clock, cursors, supply, payouts, machinesOf, subjectsOf, latestEnd, failingProbes } = deps;
  const view = { clock, payouts, machinesOf, subjectsOf, platformFeeBps: supply.platformFeeBps };
  const forgets: Forgets = {
    what: 'machine_days',
    run: (signal) =>
      inPieces(clock.now() - DAYS_KEPT_MS, (piece) => db.tx('supply.forget', (tx) => forgetDays(tx, piece)), signal),
  };
  const uptimes: LoopOptions = {
    name: 'uptimes',
    periodMs: UPTIMES_PERIOD_MS,
    run: (signal) => keepUptimes({ db, clock }, signal),
  };
  return {
    routes: [
      ...catalogRoutes({ db, clock, cursors, latestEnd }),
      ...supplyRoutes({ ...view, db, supply }),
      ...machineRoutes({ ...view, db, cursors, supply, failingProbes }),
      machineOutagesRoute({ db, clock, cursors }),
    ],
    operatorRoutes: supplyOperatorRoutes({ db, clock, cursors, supply, payouts }),
    drivers: [supply.driver, supply.leaving],
    loops: [uptimes],
    measures: measures(db),
    feeds: [machineFeed(view), SUPPLIER_FEED],
    forgets: [forgets],
    waits: [waitingMachines],
  };
}

function measures(db: Db): Measure[] {
  return [
    {
      name: 'svc_machines',
      help: 'Machines by status, and whether their agent is connected',
      kind: 'gauge',
      labels: ['status', 'online'],
      read: async () =>
        (await countMachinesByState(db.read)).map(({ status, online, count }) => ({
          labels: { status, online: String(online) },
          value: count,
        })),
    },
    {
      name: 'svc_machines_with_unknown_workloads',
      help: 'Machines that run containers which the database does not know, or are connected and have not said',
      kind: 'gauge',
      read: async () => one(await countMachines(db.read, 'withUnknown')),
    },
    {
      name: 'svc_machines_failed',
      help: 'Machines that the operator has listed and whose verification failed: they are not on offer',
      kind: 'gauge',
      read: async () => one(await countMachines(db.read, 'failed')),
    },
  ];
}
