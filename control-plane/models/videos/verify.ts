// The proof that video jobs and the ledger agree: what was charged for each, and what is held for those that are open.
import type { Tx } from '../../base/db/db.ts';
import { heldBy, totalsBySubject } from '../../money/ledger/store.ts';
import { holdId } from './states.ts';
import { charges, holdsOfOpen } from './store.ts';

/** Broken invariants in words, empty when all hold. */
export async function videoFaults(tx: Tx): Promise<string[]> {
  const posted = new Map((await totalsBySubject(tx, 'video.')).map((total) => [total.subject_id, total.total_ucents]));
  const faults: string[] = [];
  for (const { id, charged_ucents: charged } of await charges(tx)) {
    if (posted.get(id) !== charged) faults.push(`${id}: charged ${charged}, the ledger says ${posted.get(id) ?? 0n}`);
    posted.delete(id);
  }
  for (const [id, ucents] of posted) faults.push(`${id}: the ledger has charged ${ucents}, its job nothing`);
  for (const { id, held_ucents: held } of await holdsOfOpen(tx)) {
    const kept = await heldBy(tx, holdId(id));
    if (kept !== held) faults.push(`${id}: should hold ${held}, the ledger holds ${kept}`);
  }
  return faults;
}
