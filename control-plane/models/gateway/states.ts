// The states of a receipt, and the only function that changes them. State, hold and charge change together or not at all.
import { z } from 'zod';
import { mayMove, RECEIPT_STATES } from '../../../shared/states.ts';
import { int } from '../../base/db/columns.ts';
import { type HotBody, sql } from '../../base/db/db.ts';
import { accountId, revenue, wallet } from '../../money/ledger/accounts.ts';
import type { Ledger } from '../../money/ledger/ledger.ts';
import { holdParts, settleParts } from '../../money/ledger/statements.ts';
import type { Attempt } from './attempts.ts';
import * as store from './store.ts';

export type Outcome = Omit<store.Closing, 'closed_ms' | 'ending' | 'attempts'> & { ending: store.Ending };

/** The kind of the transfers that charge requests. */
export const CHARGE_KIND = 'inference.charge';

/** The ledger's id of the hold for a request. */
export function holdId(receiptId: string): string {
  return `inference:${receiptId}`;
}

/** What a receipt is opened with, and what its end needs. */
export type OpenReceipt = Pick<store.Receipt, 'id' | 'org_id' | 'held_ucents'>;

const Done = z.object({ done: int }).transform(({ done }) => done === 1);

/** Holds the money and writes the receipt. The body answers false if the balance does not cover it. */
export function openReceipt(receipt: store.NewReceipt, ledger: Pick<Ledger, 'hold'>): HotBody<boolean> {
  const { id, org_id: orgId, held_ucents: amountUcents, opened_ms: nowMs } = receipt;
  const account = wallet(orgId);
  const hold = { id: holdId(id), account, amountUcents, nowMs };
  // A free model holds nothing, and its caller may have no wallet yet.
  const parts = amountUcents === 0n ? sql`held as (select 1 as id)` : holdParts(hold);
  return {
    name: 'inference.open',
    locks: accountId(account),
    row: Done,
    statement: sql`with ${parts}, ${store.receiptPart(receipt)} select count(*) as done from held`,
    run: async (tx) => {
      if (!(await ledger.hold(tx, hold.id, account, amountUcents))) return false;
      await store.insertReceipt(tx, receipt);
      return true;
    },
  };
}

/**
 * Releases the hold and posts the charge, never more than was held. The body answers false if the receipt is closed already, also if another
 * process took this one for dead and has closed it.
 */
export function closeReceipt(
  { id, org_id: orgId, held_ucents: heldUcents }: OpenReceipt,
  outcome: Outcome,
  { ledger, nowMs, attempts }: { ledger: Pick<Ledger, 'settle'>; nowMs: number; attempts: readonly Attempt[] },
): HotBody<boolean> {
  const charged = outcome.charged_ucents < heldUcents ? outcome.charged_ucents : heldUcents;
  const [from, to] = ['open', charged > 0n ? 'settled' : 'released'] as const;
  if (!mayMove(RECEIPT_STATES, from, to)) throw new Error(`a receipt cannot go from ${from} to ${to}`);
  const closing = { ...outcome, charged_ucents: charged, attempts, closed_ms: nowMs };
  const account = wallet(orgId);
  const charge = {
    id: `${holdId(id)}:charge`,
    debit: account,
    credit: revenue,
    amountUcents: charged,
    kind: CHARGE_KIND,
    subjectId: id,
    effectiveMs: nowMs,
  };
  const settle = { id: holdId(id), account, charge: charged === 0n ? undefined : charge, nowMs };
  const ended = store.closing(id, { from, to }, closing);
  return {
    name: 'inference.close',
    locks: accountId(account),
    row: Done,
    statement: sql`with ended as (${ended} returning id), ${settleParts(settle)} select count(*) as done from ended`,
    run: async (tx) => {
      if ((await tx.run(ended)) === 0) return false;
      await ledger.settle(tx, settle.id, account, settle.charge);
      return true;
    },
  };
}
