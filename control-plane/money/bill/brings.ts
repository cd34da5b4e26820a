// What this room adds to the house: the bills for customers and operators, and the proof that each change of a wallet has its line.
import type { Query } from '../../base/db/db.ts';
import type { Billed } from '../ledger/wallets.ts';
import { provenWalletKinds } from '../ledger/proof-store.ts';
import { type BillRouteDeps, billRoute, instanceBillRoute, instanceCostsRoute, statementRoute } from './routes.ts';

export function billBrings(deps: BillRouteDeps) {
  return {
    routes: [billRoute(deps), instanceBillRoute(deps), instanceCostsRoute(deps)],
    operatorRoutes: [statementRoute(deps)],
    invariants: [(query: Query) => billFaults(query, deps.billed())],
  };
}

/** Every kind of transfer that has changed a wallet must have a line of its own. Returns broken invariants in words; empty if all hold. */
async function billFaults(query: Query, billed: Billed): Promise<string[]> {
  const kinds = await provenWalletKinds(query);
  return kinds
    .filter((kind) => billed[kind] === undefined)
    .map((kind) => `${kind}: transfers of this kind change wallets, and no room says where they are on the bill`);
}
