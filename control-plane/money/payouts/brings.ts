// What this room adds to the house: the operator's routes for disputes.
import { disputeOperatorRoutes } from './operator-routes.ts';
import { type PayoutRouteDeps, payoutRoutes } from './routes.ts';
import { payoutFaults } from './verify.ts';

export function payoutsBrings(deps: PayoutRouteDeps) {
  return {
    routes: payoutRoutes(deps),
    operatorRoutes: disputeOperatorRoutes({ ...deps, disputes: deps.payouts.disputes }),
    invariants: [payoutFaults],
  };
}
