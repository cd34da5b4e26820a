// Proves that jobs and the ledger agree: the charge of each job, what its suppliers earned, and the hold of each open one.
import type { Query } from '../../base/db/db.ts';
import { proveCharges, type RoomProof } from '../../money/ledger/charges.ts';
import { heldBy } from '../../money/ledger/store.ts';
import { earnedOf } from './attempts.ts';
import { holdId, KINDS } from './money.ts';
import { budgetsOfOpen, chargedAfter, chargesOf } from './store.ts';

export const fineTuningProof: RoomProof = {
  subjectsAfter: chargedAfter,
  prove: async (query, posted) => {
    const ids = [...posted.keys()];
    const jobs = await chargesOf(query, ids);
    const proof = proveCharges(posted, KINDS.charge, jobs);
    const attempts = new Map((await earnedOf(query, ids)).map((row) => [row.job_id, row]));
    for (const { id, charged_ucents: charged } of jobs) {
      const sums = attempts.get(id) ?? { charged_ucents: 0n, supplier_ucents: 0n };
      if (sums.charged_ucents !== charged)
        proof.faults.push(`${id}: charged ${charged}, its attempts say ${sums.charged_ucents}`);
      const earned = posted.get(id)?.get(KINDS.supplier) ?? 0n;
      if (earned !== sums.supplier_ucents)
        proof.faults.push(`${id}: ${sums.supplier_ucents} should be earned, the ledger has ${earned}`);
    }
    return proof;
  },
};

/** Returns a text for each open job whose hold in the ledger is not the rest of its budget. */
export async function fineTuningHoldFaults(query: Query): Promise<string[]> {
  const faults: string[] = [];
  for (const { id, budget_ucents: budget, charged_ucents: charged } of await budgetsOfOpen(query)) {
    const kept = await heldBy(query, holdId(id));
    if (kept !== budget - charged) faults.push(`${id}: should hold ${budget - charged}, the ledger holds ${kept}`);
  }
  return faults;
}
