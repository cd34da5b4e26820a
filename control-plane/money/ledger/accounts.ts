// The chart of accounts.

/** The first two kinds have one account per owner. The others belong to the platform, with the owner `platform`. */
export type AccountKind =
  /** The prepaid money of a customer. Never negative. */
  | 'customer_wallet'
  /** What we owe to a supplier. Negative after a claw-back. */
  | 'supplier_payable'
  /** Our fee. */
  | 'platform_revenue'
  /** Money that is on its way to suppliers: it may have left, and is no longer owed. */
  | 'payout_in_flight'
  /** Money that was paid to suppliers outside of this service. */
  | 'supplier_payouts'
  /** The source of money that an operator adds by hand. */
  | 'operator_funding'
  /** Money between the charge of a customer and its split: zero after every batch. */
  | 'rental_clearing'
  /** Charges for time that may have been dead, until the operator decides who gets them. */
  | 'credit_suspense'
  /** Rental time that was used but could not be charged. */
  | 'bad_debt'
  /** Tokens that deposits brought; one for each chain and asset, the owner is `<chain>:<asset>`. The books see no withdrawal of the operator. */
  | 'deposit_clearing'
  /** Tokens for which no wallet was credited: late ones, wrong ones, and those of a sanctioned sender. The operator decides about them. */
  | 'deposit_suspense'
  /** Fractions of a cent that deposits left. */
  | 'deposit_rounding';

export interface AccountRef {
  kind: AccountKind;
  ownerId: string;
}

const PLATFORM = 'platform';

export function accountId(account: AccountRef): string {
  return `${account.kind}:${account.ownerId}`;
}

/** Only a wallet must never be negative. */
export function isPrepaid(kind: AccountKind): boolean {
  return kind === 'customer_wallet';
}

const WITH_TOTALS: ReadonlySet<string> = new Set<AccountKind>(['customer_wallet', 'supplier_payable']);

/**
 * Whether the account has a row with running totals. The platform's accounts have none, because almost every transfer would change their
 * rows. Their balance is the sum of their transfers.
 */
export function hasTotals(account: AccountRef | string): boolean {
  return WITH_TOTALS.has(typeof account === 'string' ? (account.split(':')[0] ?? '') : account.kind);
}

/** Whether the id of an account is that of a wallet. */
export function isWallet(id: string): boolean {
  return id.startsWith('customer_wallet:');
}

export const wallet = (orgId: string): AccountRef => ({ kind: 'customer_wallet', ownerId: orgId });
export const payable = (supplierId: string): AccountRef => ({ kind: 'supplier_payable', ownerId: supplierId });
export const revenue: AccountRef = { kind: 'platform_revenue', ownerId: PLATFORM };
export const inFlight: AccountRef = { kind: 'payout_in_flight', ownerId: PLATFORM };
export const paidOut: AccountRef = { kind: 'supplier_payouts', ownerId: PLATFORM };
export const funding: AccountRef = { kind: 'operator_funding', ownerId: PLATFORM };
export const clearing: AccountRef = { kind: 'rental_clearing', ownerId: PLATFORM };
export const suspense: AccountRef = { kind: 'credit_suspense', ownerId: PLATFORM };
export const depositClearing = (chain: string, asset: string): AccountRef => ({
  kind: 'deposit_clearing',
  ownerId: `${chain}:${asset}`,
});
export const depositSuspense: AccountRef = { kind: 'deposit_suspense', ownerId: PLATFORM };
export const depositRounding: AccountRef = { kind: 'deposit_rounding', ownerId: PLATFORM };
export const badDebt: AccountRef = { kind: 'bad_debt', ownerId: PLATFORM };
