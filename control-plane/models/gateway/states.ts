// The states of a receipt, and the only function that changes them. State, hold and charge change together or not at all.
import { mayMove, RECEIPT_STATES } from '../../../shared/states.ts';
import type { Tx } from '../../base/db/db.ts';
import { revenue, wallet } from '../../money/ledger/accounts.ts';
import type { Ledger } from '../../money/ledger/ledger.ts';
import * as store from './store.ts';

export type Outcome = Omit<store.Closing, 'closed_ms' | 'ending'> & { ending: store.Ending };

/** The kind of the transfers that charge requests. */
export const CHARGE_KIND = 'inference.charge';

/** The ledger's id of the hold for a request. */
export function holdId(receiptId: string): string {
  return `inference:${receiptId}`;
}

/**
 * Releases the hold and posts the charge, never more than was held. Returns false if the receipt is closed already, also if another process
 * took this one for dead and has closed it.
 */
export async function closeReceipt(
  tx: Tx,
  id: string,
  outcome: Outcome,
  { ledger, nowMs }: { ledger: Ledger; nowMs: number },
): Promise<boolean> {
  const receipt = await store.findReceipt(tx, id);
  if (receipt === undefined) return false;
  const charged = outcome.charged_ucents < receipt.held_ucents ? outcome.charged_ucents : receipt.held_ucents;
  const [from, to] = [receipt.state, charged > 0n ? 'settled' : 'released'] as const;
  if (!mayMove(RECEIPT_STATES, from, to)) return false;
  const closing = { ...outcome, charged_ucents: charged, closed_ms: nowMs };
  if (!(await store.setClosed(tx, id, { from, to }, closing))) return false;
  const customer = wallet(receipt.org_id);
  await ledger.setHold(tx, holdId(id), customer, 0n);
  if (charged === 0n) return true;
  const transfer = {
    id: `${holdId(id)}:charge`,
    debit: customer,
    credit: revenue,
    amountUcents: charged,
    kind: CHARGE_KIND,
    subjectId: id,
    effectiveMs: nowMs,
  };
  await ledger.post(tx, holdId(id), [transfer]);
  return true;
}
