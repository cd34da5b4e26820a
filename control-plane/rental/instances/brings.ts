// What this room brings to the house.
import type { Clock } from '../../../shared/clock.ts';
import type { LoopOptions } from '../../../shared/loop.ts';
import type { Db } from '../../base/db/db.ts';
import type { Feed } from '../../base/events/events.ts';
import type { Cursors } from '../../base/http/cursors.ts';
import { type Measure, one } from '../../base/http/metrics.ts';
import { type BalanceWarningsDeps, warnOfBalances } from './balance-warnings.ts';
import type { Instances } from './instances.ts';
import { countByStatus, DUE_INSTANCES, dueForMs } from './overview.ts';
import { placementRoute } from './placement-route.ts';
import { instanceRoutes } from './routes.ts';

interface Deps extends BalanceWarningsDeps {
  clock: Clock;
  cursors: Cursors;
  instances: Instances;
}

const WARN_PERIOD_MS = 60_000;

export function instancesBrings({ clock, cursors, instances, ...warnings }: Deps) {
  const { db } = warnings;
  const loop: LoopOptions = {
    name: 'balance-warnings',
    periodMs: WARN_PERIOD_MS,
    run: (signal) => warnOfBalances(signal, warnings),
  };
  return {
    routes: instanceRoutes({ db, cursors, instances }),
    operatorRoutes: [placementRoute({ db, clock, events: warnings.events })],
    drivers: [instances.driver],
    loops: [loop],
    dueRows: [DUE_INSTANCES],
    measures: measures(db, clock),
    feeds: [{ of: 'instance', scope: 'instances:read', describe: instances.describe } satisfies Feed],
  };
}

function measures(db: Db, clock: Clock): Measure[] {
  return [
    {
      name: 'svc_instances',
      help: 'Instances that are not terminated, by status',
      kind: 'gauge',
      labels: ['status'],
      read: async () =>
        (await countByStatus(db.read)).map(({ status, count }) => ({ labels: { status }, value: count })),
    },
    {
      name: 'svc_instances_due_seconds',
      help: 'How long the oldest due instance has waited for the engine',
      kind: 'gauge',
      read: async () => one((await dueForMs(db.read, clock.now())) / 1000),
    },
  ];
}
