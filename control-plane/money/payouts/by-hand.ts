// A payout that an operator has made in another way, e.g. by a bank transfer: due, in flight and paid in one transaction.
import { fail } from '../../../shared/errors.ts';
import { UCENTS_PER_CENT } from '../../../shared/money.ts';
import type { Tx } from '../../base/db/db.ts';
import { newPayout, type PayingDeps } from './making.ts';
import { obstacleOf } from './plan.ts';
import { centsText, owedWords, standingNow } from './standing.ts';
import { move } from './states.ts';
import * as store from './store.ts';

export interface NewPayout {
  supplierId: string;
  /** Null: everything that is payable. */
  cents: number | null;
  /** The operator's name for the payout. A second payout with the same reference has no effect. */
  reference: string;
}

/** The caller has locked the supplier. @throws ServiceError as `Sending.pay` */
export async function payByHand(tx: Tx, payout: NewPayout, deps: PayingDeps): Promise<store.PayoutRow> {
  const { supplierId, cents, reference } = payout;
  const known = await store.payoutOfReference(tx, supplierId, reference);
  if (known !== undefined) return sameOrFail(known, payout);
  const why = obstacleOf(await deps.supplierStatus(tx, supplierId), await deps.destinations.of(tx, supplierId));
  if (why !== undefined) return fail('conflict', `${why}. Nothing was recorded.`);
  const now = await standingNow(tx, supplierId, deps);
  const amount = cents === null ? now.payableCents : BigInt(cents);
  if (amount <= 0n) return fail('conflict', `${owedWords(now)}: there is nothing to pay.`);
  if (amount > now.payableCents) return fail('conflict', `${owedWords(now)}. Pay that or less.`);
  const row = { ...newPayout(supplierId, { amountUcents: amount * UCENTS_PER_CENT, periodMs: null }, deps), reference };
  if (!(await store.insertPayout(tx, row))) {
    // Another transaction has just recorded a payout with this reference, e.g. because the same command came twice at the same moment.
    const other = await store.payoutOfReference(tx, supplierId, reference);
    return other === undefined
      ? fail('internal_error', 'The payout vanished while it was made.')
      : sameOrFail(other, payout);
  }
  return move(tx, await move(tx, row, { to: 'in_flight' }, deps), { to: 'paid' }, deps);
}

function sameOrFail(known: store.PayoutRow, { cents, reference }: NewPayout): store.PayoutRow {
  if (cents === null || BigInt(cents) * UCENTS_PER_CENT === known.amount_ucents) return known;
  const paid = centsText(known.amount_ucents / UCENTS_PER_CENT);
  return fail('conflict', `${paid} was paid under the reference ${reference}. Nothing was changed: name a new one.`);
}
