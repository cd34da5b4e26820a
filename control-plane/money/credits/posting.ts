// Pure: the transfers of held amounts and of the operator's decisions about them.
import { supplierPartUcents } from '../../../shared/money.ts';
import { type AccountRef, badDebt, payable, revenue, suspense, wallet } from '../ledger/accounts.ts';
import type { NewTransfer } from '../ledger/store.ts';
import type { HeldCredit } from './store.ts';

/** Pays a supplier for an outage of our own from our revenue, at once or after a decision. */
export const OWN_OUTAGE_PAYMENT = {
  atOnce: 'own_outage.supplier',
  released: 'own_outage.released',
  leg: (supplierId: string): { debit: AccountRef; credit: AccountRef } => ({
    debit: revenue,
    credit: payable(supplierId),
  }),
} as const;

interface Leg {
  kind: string;
  debit: AccountRef;
  credit: AccountRef;
  amountUcents: bigint;
}

/** The customer pays for the time, but nobody gets the money yet. */
export function holdingOf(row: HeldCredit): NewTransfer[] {
  return transfersOf(row, [
    { kind: 'credit.held', debit: wallet(row.org_id), credit: suspense, amountUcents: row.wallet_ucents },
    {
      kind: 'credit.held_shortfall',
      debit: badDebt,
      credit: suspense,
      amountUcents: row.amount_ucents - row.wallet_ucents,
    },
  ]);
}

/**
 * The transfers of the operator's decision. Released: the customer gets the money back, or the supplier is paid. Refused: the customer's
 * money is split like any charge. If the time was an outage of our own, we keep all of it, because we have already paid the supplier.
 */
export function decisionOf(row: HeldCredit, state: 'released' | 'refused'): NewTransfer[] {
  if (row.kind === 'payment') {
    const paid = {
      kind: OWN_OUTAGE_PAYMENT.released,
      ...OWN_OUTAGE_PAYMENT.leg(row.supplier_id),
      amountUcents: row.amount_ucents,
    };
    return transfersOf(row, state === 'released' ? [paid] : []);
  }
  if (state === 'released') {
    return transfersOf(row, [
      { kind: 'credit.released', debit: suspense, credit: wallet(row.org_id), amountUcents: row.wallet_ucents },
      {
        kind: 'credit.released_shortfall',
        debit: suspense,
        credit: badDebt,
        amountUcents: row.amount_ucents - row.wallet_ucents,
      },
    ]);
  }
  const supplierUcents = row.cause === 'own_outage' ? 0n : supplierPartUcents(row.amount_ucents, row.supplier_bps);
  return transfersOf(row, [
    {
      kind: 'credit.refused_supplier',
      debit: suspense,
      credit: payable(row.supplier_id),
      amountUcents: supplierUcents,
    },
    { kind: 'credit.refused_fee', debit: suspense, credit: revenue, amountUcents: row.amount_ucents - supplierUcents },
  ]);
}

function transfersOf(row: HeldCredit, legs: readonly Leg[]): NewTransfer[] {
  return legs
    .filter((leg) => leg.amountUcents > 0n)
    .map((leg) => ({
      ...leg,
      id: `${row.id}:${leg.kind}`,
      subjectId: row.subject_id,
      effectiveMs: row.until_ms,
      evidence: row.evidence,
    }));
}
