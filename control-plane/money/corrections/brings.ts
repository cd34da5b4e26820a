// What this room adds to the house: the operator's corrections, their lines on the bill, and their proof.
import { type CorrectionRouteDeps, correctionRoutes } from './operator-routes.ts';
import { BILLED } from './posting.ts';
import { correctionFaults } from './verify.ts';

export function correctionsBrings(deps: CorrectionRouteDeps) {
  return { operatorRoutes: correctionRoutes(deps), billed: BILLED, invariants: [correctionFaults] };
}
