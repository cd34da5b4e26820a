// The proof that receipts and the ledger agree: what was charged for each, and what is held for those that are open.
import type { Tx } from '../../base/db/db.ts';
import { heldBy, totalsBySubject } from '../../money/ledger/store.ts';
import { holdId } from './states.ts';
import { charges, forgottenUcents, holdsOfOpen } from './store.ts';

/** Of what may be tens of thousands. */
const NAMED = 20;

/** Broken invariants in words, empty when all hold. */
export async function receiptFaults(tx: Tx): Promise<string[]> {
  const posted = new Map(
    (await totalsBySubject(tx, 'inference.')).map((total) => [total.subject_id, total.total_ucents]),
  );
  const faults: string[] = [];
  for (const { id, charged_ucents: charged } of await charges(tx)) {
    if (posted.get(id) !== charged) faults.push(`${id}: charged ${charged}, the ledger says ${posted.get(id) ?? 0n}`);
    posted.delete(id);
  }
  faults.push(...unreceiptedFaults(posted, await forgottenUcents(tx)));
  for (const { id, held_ucents: held } of await holdsOfOpen(tx)) {
    const kept = await heldBy(tx, holdId(id));
    if (kept !== held) faults.push(`${id}: should hold ${held}, the ledger holds ${kept}`);
  }
  return faults;
}

/** What the ledger has charged without a receipt is what was charged by those that are forgotten. */
function unreceiptedFaults(posted: ReadonlyMap<string, bigint>, forgotten: bigint): string[] {
  const sum = [...posted.values()].reduce((total, ucents) => total + ucents, 0n);
  if (sum === forgotten) return [];
  const some = [...posted.keys()].slice(0, NAMED).join(', ');
  return [
    `the ledger has charged ${sum} for requests without a receipt, those that are forgotten were charged ${forgotten}; among them ${some}`,
  ];
}
