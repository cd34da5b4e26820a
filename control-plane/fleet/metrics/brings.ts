// What this room adds to the house: routes, a loop, a metric and retention.
import type { Clock } from '../../../shared/clock.ts';
import { METRICS_KEEP_MS } from '../../../shared/limits.ts';
import type { LoopOptions } from '../../../shared/loop.ts';
import type { Db } from '../../base/db/db.ts';
import { type Forgets, inPieces } from '../../base/db/pieces.ts';
import { machineOperatorRoute, metricsRoutes, type MetricsRouteDeps } from './routes.ts';
import { forgetMachines, forgetMinutes } from './store.ts';

/** Within this time, a host is asked for quick samples after somebody has begun to look at its figures. */
const PERIOD_MS = 1_000;

export function metricsBrings(deps: MetricsRouteDeps) {
  const { metrics } = deps;
  const loop: LoopOptions = { name: 'metrics', periodMs: PERIOD_MS, run: () => metrics.tick() };
  return {
    routes: metricsRoutes(deps),
    operatorRoutes: [machineOperatorRoute(deps)],
    loops: [loop],
    forgets: [forgets(deps)],
    close: () => metrics.close(),
  };
}

function forgets({ db, clock }: { db: Db; clock: Clock }): Forgets {
  return {
    what: 'metrics',
    run: async (signal) => {
      const untilMs = clock.now() - METRICS_KEEP_MS;
      const minutes = await inPieces(
        untilMs,
        (piece) => db.tx('metrics.forget', (tx) => forgetMinutes(tx, piece)),
        signal,
      );
      const machines = await inPieces(
        untilMs,
        (piece) => db.tx('metrics.forget_machines', (tx) => forgetMachines(tx, piece)),
        signal,
      );
      return minutes + machines;
    },
  };
}
