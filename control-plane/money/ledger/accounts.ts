// The chart of accounts.

/** One account per owner for the first two; the others are the platform's, with owner `platform`. */
export type AccountKind =
  /** What a customer has prepaid. Never negative. */
  | 'customer_wallet'
  /** What we owe a supplier; negative after a claw-back. */
  | 'supplier_payable'
  /** Our fee. */
  | 'platform_revenue'
  /** What suppliers were paid, outside of this service. */
  | 'supplier_payouts'
  /** Where money comes from that an operator adds by hand. */
  | 'operator_funding'
  /** Between a customer's charge and its split: zero after every batch. */
  | 'rental_clearing'
  /** What customers paid for time that may have been dead, until the operator has decided who gets it. */
  | 'credit_suspense'
  /** Rental time that was used and could not be charged. */
  | 'bad_debt';

export interface AccountRef {
  kind: AccountKind;
  ownerId: string;
}

const PLATFORM = 'platform';

export function accountId(account: AccountRef): string {
  return `${account.kind}:${account.ownerId}`;
}

/** Only a wallet is bound to stay at or above zero. */
export function isPrepaid(kind: AccountKind): boolean {
  return kind === 'customer_wallet';
}

export const wallet = (orgId: string): AccountRef => ({ kind: 'customer_wallet', ownerId: orgId });
export const payable = (supplierId: string): AccountRef => ({ kind: 'supplier_payable', ownerId: supplierId });
export const revenue: AccountRef = { kind: 'platform_revenue', ownerId: PLATFORM };
export const paidOut: AccountRef = { kind: 'supplier_payouts', ownerId: PLATFORM };
export const funding: AccountRef = { kind: 'operator_funding', ownerId: PLATFORM };
export const clearing: AccountRef = { kind: 'rental_clearing', ownerId: PLATFORM };
export const suspense: AccountRef = { kind: 'credit_suspense', ownerId: PLATFORM };
export const badDebt: AccountRef = { kind: 'bad_debt', ownerId: PLATFORM };
