// The proof that video jobs and the ledger agree: what was charged for each, and what is held for those that are open.
import type { Tx } from '../../base/db/db.ts';
import { proveCharges } from '../../money/ledger/charges.ts';
import { heldBy } from '../../money/ledger/store.ts';
import { CHARGE_KIND, holdId } from './states.ts';
import { charges, holdsOfOpen } from './store.ts';

/** Broken invariants in words, empty when all hold. */
export async function videoFaults(tx: Tx): Promise<string[]> {
  const { faults, rowless } = await proveCharges(tx, CHARGE_KIND, (afterId, limit) => charges(tx, afterId, limit));
  const { ucents, someIds } = rowless;
  if (ucents > 0n) faults.push(`the ledger has charged ${ucents} for videos without a job: ${someIds.join(', ')}`);
  for (const { id, held_ucents: held } of await holdsOfOpen(tx)) {
    const kept = await heldBy(tx, holdId(id));
    if (kept !== held) faults.push(`${id}: should hold ${held}, the ledger holds ${kept}`);
  }
  return faults;
}
