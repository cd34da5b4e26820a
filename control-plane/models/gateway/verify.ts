// Proves that receipts and the ledger agree: the charge of each closed receipt, and the hold of each open one.
import type { Query } from '../../base/db/db.ts';
import { proveCharges, type RoomProof } from '../../money/ledger/charges.ts';
import { heldBy } from '../../money/ledger/store.ts';
import { CHARGE_KIND, holdId } from './states.ts';
import { chargedAfter, chargesOf, forgottenUcents, holdsOfOpen } from './store.ts';

export const receiptProof: RoomProof = {
  subjectsAfter: chargedAfter,
  prove: async (query, posted) => proveCharges(posted, CHARGE_KIND, await chargesOf(query, [...posted.keys()])),
  forgottenUcents,
};

/** Returns a text for each open receipt whose hold in the ledger has another amount. */
export async function receiptHoldFaults(query: Query): Promise<string[]> {
  const faults: string[] = [];
  for (const { id, held_ucents: held } of await holdsOfOpen(query)) {
    const kept = await heldBy(query, holdId(id));
    if (kept !== held) faults.push(`${id}: should hold ${held}, the ledger holds ${kept}`);
  }
  return faults;
}
