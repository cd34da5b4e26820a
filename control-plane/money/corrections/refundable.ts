// Pure: what was paid for a rental, a receipt or a video, who got it, and how much of it can still be refunded.
import { accountId, payable } from '../ledger/accounts.ts';
import type { SubjectEntry } from '../ledger/wallets.ts';
import type { ChargeSplit, SupplierPart } from './posting.ts';

const WALLET = 'customer_wallet:';
const PAYABLE = accountId(payable(''));
const REVENUE = 'platform_revenue:';

export interface Standing {
  /** Undefined if no wallet ever paid for it. */
  orgId: string | undefined;
  supplierIds: string[];
  /** What the wallet has paid and did not get back. An amount that waits for a decision about a credit is not counted. */
  refundableUcents: bigint;
  /** What the wallet got back beyond what it was charged. */
  excessUcents: bigint;
}

/**
 * `waitingUcents` is what the wallet gets back if all credits that wait for a decision are released. It is not the balance of the suspense account,
 * which also contains what the wallet could not cover.
 */
export function standingOf(entries: readonly SubjectEntry[], waitingUcents: bigint): Standing {
  const paid = entries.filter(({ account_id: id }) => id.startsWith(WALLET));
  const left = -netOf(paid) - waitingUcents;
  const isCharged = paid.some(({ net_ucents: net }) => net < 0n);
  return {
    orgId: isCharged ? paid[0]?.account_id.slice(WALLET.length) : undefined,
    supplierIds: suppliersIn(entries),
    refundableUcents: left > 0n ? left : 0n,
    excessUcents: left < 0n ? -left : 0n,
  };
}

/** The split of the charge before any refund. Payments for our own outages are no part of it. */
export function splitOf(entries: readonly SubjectEntry[]): ChargeSplit {
  const charge = entries.filter(({ kind }) => !/^(correction|own_outage)\./.test(kind));
  const of = (prefix: string): bigint => netOf(charge.filter(({ account_id: id }) => id.startsWith(prefix)));
  const suppliers = suppliersIn(charge).map((supplierId) => ({
    supplierId,
    ucents: of(accountId(payable(supplierId))),
  }));
  return { totalUcents: of(PAYABLE) + of(REVENUE), suppliers };
}

/** What corrections have taken from each supplier. */
export function takenFrom(entries: readonly SubjectEntry[]): SupplierPart[] {
  const taken = entries.filter(({ kind }) => kind.startsWith('correction.'));
  return suppliersIn(taken).map((supplierId) => ({
    supplierId,
    ucents: -netOf(taken.filter(({ account_id: id }) => id === accountId(payable(supplierId)))),
  }));
}

function suppliersIn(entries: readonly SubjectEntry[]): string[] {
  const ids = entries.filter(({ account_id: id }) => id.startsWith(PAYABLE));
  return [...new Set(ids.map(({ account_id: id }) => id.slice(PAYABLE.length)))].toSorted();
}

function netOf(entries: readonly SubjectEntry[]): bigint {
  return entries.reduce((sum, { net_ucents: net }) => sum + net, 0n);
}
