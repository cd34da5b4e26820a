// Pure: the ledger's transfers of deposits. Each token that came is booked once: into a wallet, or into suspense.
//
//   what happens                     debit                        credit
//   credited: whole cents            deposit_clearing:base:usdc   customer_wallet:<org>
//   credited: the rest               deposit_clearing:base:usdc   deposit_rounding
//   late, wrong, or sanctioned       deposit_clearing:base:usdc   deposit_suspense
//   operator credits from suspense   deposit_suspense             customer_wallet:<org>, deposit_rounding
//   operator has sent it back        deposit_suspense             deposit_clearing:base:usdc
//
// Transfers that come in time after the credit are credited by themselves, with the same accounts. The ids are derived from the deposit or the
// token transfer, so nothing is booked twice, whoever repeats it.
import { UCENTS_PER_CENT } from '../../../shared/money.ts';
import { type AccountRef, depositClearing, depositRounding, depositSuspense, wallet } from '../ledger/accounts.ts';
import type { Billed } from '../ledger/wallets.ts';
import type { NewTransfer } from '../ledger/store.ts';
import { centsOfUnits, tokenText, ucentsOfUnits } from './chains.ts';
import { sumOf } from './plan.ts';
import type { Deposit } from './store.ts';
import type { Transfer } from './transfers-store.ts';

/** The ledger has an index of the kinds that begin with `deposit.`. */
export const KIND = {
  credit: 'deposit.credit',
  rounding: 'deposit.rounding',
  suspense: 'deposit.suspense',
  release: 'deposit.release',
  releaseRounding: 'deposit.release_rounding',
  returned: 'deposit.returned',
} as const;

export const BILLED: Billed = {
  [KIND.credit]: { section: 'deposit', by: 'batch' },
  [KIND.release]: { section: 'deposit', by: 'batch' },
};

/** The first credit of a deposit, with the tokens of these transfers. */
export function creditOf(deposit: Deposit, transfers: readonly Transfer[], nowMs: number): NewTransfer[] {
  return creditLegs(deposit, transfers, {
    whole: `deposit:${deposit.id}:credit`,
    rest: `deposit:${deposit.id}:rounding`,
    nowMs,
  });
}

/** The credit of transfers that have come in time after the first credit. */
export function moreOf(deposit: Deposit, transfers: readonly Transfer[], nowMs: number): NewTransfer[] {
  const whole = `deposit:${deposit.id}:credit:${transfers[0]?.id ?? ''}`;
  return creditLegs(deposit, transfers, { whole, rest: `${whole}:rounding`, nowMs });
}

/** The operator credits transfers that are in suspense. */
export function releaseOf(
  deposit: Deposit,
  transfers: readonly Transfer[],
  { reason, nowMs }: { reason: string; nowMs: number },
): NewTransfer[] {
  const id = `deposit:${deposit.id}:release:${transfers[0]?.id ?? ''}`;
  return legs(deposit, transfers, {
    from: depositSuspense,
    whole: { id, kind: KIND.release },
    rest: { id: `${id}:rounding`, kind: KIND.releaseRounding },
    evidence: reason,
    nowMs,
  });
}

/** Books transfers for which no wallet is credited into suspense. */
export function suspenseOf({ id }: Deposit, transfers: readonly Transfer[], nowMs: number): NewTransfer[] {
  return transfers.map((transfer) => ({
    id: `deposit:${id}:suspense:${transfer.id}`,
    debit: depositClearing(transfer.chain, transfer.asset),
    credit: depositSuspense,
    amountUcents: ucentsOfUnits(transfer.units),
    kind: KIND.suspense,
    subjectId: id,
    evidence: `${transfer.asset} on ${transfer.chain}, ${transfer.tx_hash}`,
    effectiveMs: nowMs,
  }));
}

/** Books transfers out of suspense that the operator has sent back. */
export function returnOf(
  { id }: Deposit,
  transfers: readonly Transfer[],
  { reason, nowMs }: { reason: string; nowMs: number },
): NewTransfer[] {
  return transfers.map((transfer) => ({
    id: `deposit:${id}:returned:${transfer.id}`,
    debit: depositSuspense,
    credit: depositClearing(transfer.chain, transfer.asset),
    amountUcents: ucentsOfUnits(transfer.units),
    kind: KIND.returned,
    subjectId: id,
    evidence: reason,
    effectiveMs: nowMs,
  }));
}

function creditLegs(
  deposit: Deposit,
  transfers: readonly Transfer[],
  { whole, rest, nowMs }: { whole: string; rest: string; nowMs: number },
): NewTransfer[] {
  const { id, chain, asset } = deposit;
  return legs(deposit, transfers, {
    from: depositClearing(chain, asset),
    whole: { id: whole, kind: KIND.credit },
    rest: { id: rest, kind: KIND.rounding },
    evidence: `${tokenText(sumOf(transfers))} ${asset} on ${chain}, ${id}`,
    nowMs,
  });
}

interface Legs {
  from: AccountRef;
  /** The transfer of the whole cents. */
  whole: Pick<NewTransfer, 'id' | 'kind'>;
  /** The transfer of the fraction of a cent. */
  rest: Pick<NewTransfer, 'id' | 'kind'>;
  evidence: string;
  nowMs: number;
}

function legs(
  deposit: Deposit,
  transfers: readonly Transfer[],
  { from, whole, rest, evidence, nowMs }: Legs,
): NewTransfer[] {
  const units = sumOf(transfers);
  const wholeUcents = centsOfUnits(units) * UCENTS_PER_CENT;
  const common = { debit: from, subjectId: deposit.id, evidence, effectiveMs: nowMs };
  const restUcents = ucentsOfUnits(units) - wholeUcents;
  const both: NewTransfer[] = [
    { ...common, ...whole, credit: wallet(deposit.org_id), amountUcents: wholeUcents },
    { ...common, ...rest, credit: depositRounding, amountUcents: restUcents },
  ];
  return both.filter(({ amountUcents }) => amountUcents > 0n);
}
