// What this room adds to the control plane: the operator's routes that need several rooms or the process itself.
import type { LoopStatus } from '../../shared/loop.ts';
import type { Cursors } from '../base/http/cursors.ts';
import type { Measure } from '../base/http/metrics.ts';
import type { Billed } from '../money/ledger/wallets.ts';
import { auditRoute } from './admin.ts';
import type { Audit } from './audit.ts';
import { type BalanceDeps, balanceRoutes, FUNDING_KIND } from './balance-routes.ts';
import { exportRoute } from './export-routes.ts';
import { instanceRoutes } from './instance-routes.ts';
import { machineRoute } from './machine-route.ts';
import { pauseMeasure, pauseRoutes } from './pause-routes.ts';
import { minutesForgets, minutesLoop } from './minutes.ts';
import { type StatusDeps, statusRoutes } from './status-routes.ts';

type Deps = BalanceDeps &
  Parameters<typeof instanceRoutes>[0] &
  StatusDeps &
  Parameters<typeof minutesLoop>[0] & { audit: Audit; cursors: Cursors };

export function adminBrings(deps: Deps) {
  return {
    operatorRoutes: [
      ...balanceRoutes(deps),
      ...instanceRoutes(deps),
      machineRoute(deps),
      ...pauseRoutes(deps),
      ...statusRoutes(deps),
      auditRoute(deps),
      exportRoute(deps),
    ],
    billed: { [FUNDING_KIND]: { section: 'deposit', by: 'batch' } } satisfies Billed,
    measures: [...loopMeasures(deps.loops), pauseMeasure(deps.db)],
    loops: [minutesLoop(deps)],
    forgets: [minutesForgets(deps)],
  };
}

function loopMeasures(loops: () => LoopStatus[]): Measure[] {
  const ofEach = (valueOf: (loop: LoopStatus) => number): ReturnType<Measure['read']> =>
    loops().map((loop) => ({ labels: { loop: loop.name }, value: valueOf(loop) / 1000 }));
  return [
    {
      name: 'svc_loop_last_success_timestamp_seconds',
      help: 'When a loop last ended well; 0: not yet',
      kind: 'gauge',
      everywhere: true,
      labels: ['loop'],
      read: () => ofEach((loop) => loop.last_success_ms ?? 0),
    },
    {
      name: 'svc_loop_period_seconds',
      help: 'How often a loop runs',
      kind: 'gauge',
      everywhere: true,
      labels: ['loop'],
      read: () => ofEach((loop) => loop.period_ms),
    },
  ];
}
