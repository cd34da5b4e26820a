// Proves that video jobs and the ledger agree: the charge of each job, and the hold of each open one.
import type { Query } from '../../base/db/db.ts';
import { proveCharges, type RoomProof } from '../../money/ledger/charges.ts';
import { heldBy } from '../../money/ledger/store.ts';
import { CHARGE_KIND, holdId } from './states.ts';
import { chargedAfter, chargesOf, holdsOfOpen } from './store.ts';

export const videoProof: RoomProof = {
  subjectsAfter: chargedAfter,
  prove: async (query, posted) => proveCharges(posted, CHARGE_KIND, await chargesOf(query, [...posted.keys()])),
};

/** Returns a text for each open job whose hold in the ledger has another amount. */
export async function videoHoldFaults(query: Query): Promise<string[]> {
  const faults: string[] = [];
  for (const { id, held_ucents: held } of await holdsOfOpen(query)) {
    const kept = await heldBy(query, holdId(id));
    if (kept !== held) faults.push(`${id}: should hold ${held}, the ledger holds ${kept}`);
  }
  return faults;
}
