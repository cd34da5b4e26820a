// What this room adds to the house: earnings, payouts, destinations and statements, the loop that makes payouts, and the proof of all of them.
import { UCENTS_PER_CENT } from '../../../shared/money.ts';
import type { Clock } from '../../../shared/clock.ts';
import type { LoopOptions } from '../../../shared/loop.ts';
import type { Db } from '../../base/db/db.ts';
import { type Forgets, inPieces } from '../../base/db/pieces.ts';
import type { Measure } from '../../base/http/metrics.ts';
import { disputeOperatorRoutes } from './dispute-routes.ts';
import { type EarningsRouteDeps, earningsRoute } from './earnings-route.ts';
import { type PayoutOperatorDeps, payoutOperatorRoutes } from './payout-operator-routes.ts';
import { waitingDisputes, waitingPayouts } from './overview.ts';
import { type PayoutRouteDeps, payoutRoutes } from './payout-routes.ts';
import { countOpen, forgetDestinations } from './store.ts';
import { PAYOUT_PROOFS, payoutFaults } from './verify.ts';

/**
 * The period of the loop. Payouts are made once a day or a week, but the loop runs more often, because a process may be down when a period
 * begins.
 */
const DUE_PERIOD_MS = 3_600_000;

/** Cancelled changes of a destination are deleted `keepMs` after they were cancelled. */
interface Deps extends PayoutRouteDeps, PayoutOperatorDeps, EarningsRouteDeps {
  clock: Clock;
  keepMs: number;
}

export function payoutsBrings(deps: Deps) {
  const { db, clock, payouts, keepMs } = deps;
  const forgets: Forgets = {
    what: 'payout_destinations',
    run: (signal) => inPieces(clock.now() - keepMs, (piece) => forgetDestinations(db, piece), signal),
  };
  const due: LoopOptions = { name: 'payouts', periodMs: DUE_PERIOD_MS, run: (signal) => payouts.makeDue(signal) };
  return {
    routes: [earningsRoute(deps), ...payoutRoutes(deps)],
    operatorRoutes: [...payoutOperatorRoutes(deps), ...disputeOperatorRoutes({ ...deps, disputes: payouts.disputes })],
    loops: [due],
    forgets: [forgets],
    measures: measures(db),
    pages: PAYOUT_PROOFS,
    invariants: [payoutFaults],
    waits: [waitingPayouts, waitingDisputes],
  };
}

function measures(db: Db): Measure[] {
  const open = async (of: (row: Awaited<ReturnType<typeof countOpen>>[number]) => number) =>
    (await countOpen(db.read)).map((row) => ({ labels: { state: row.state }, value: of(row) }));
  return [
    {
      name: 'svc_payouts_open',
      help: 'Payouts that an operator has to send (due) or to enter as paid or failed (in_flight)',
      kind: 'gauge',
      labels: ['state'],
      read: () => open(({ count }) => count),
    },
    {
      name: 'svc_payouts_open_dollars',
      help: 'The amounts of these payouts',
      kind: 'gauge',
      labels: ['state'],
      read: () => open((row) => Number(row.total_ucents / UCENTS_PER_CENT) / 100),
    },
  ];
}
