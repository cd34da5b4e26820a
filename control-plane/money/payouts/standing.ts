// What a supplier earned, is owed and may be paid now.
import type { Clock } from '../../../shared/clock.ts';
import { centsFloor, dollarText, UCENTS_PER_CENT } from '../../../shared/money.ts';
import type { Query } from '../../base/db/db.ts';
import { payable } from '../ledger/accounts.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { paidTo, waitingFor } from '../ledger/suppliers.ts';
import { disputedOf } from './disputes.ts';

/** What a supplier earned and is owed, in whole cents, rounded down once. */
export interface Standing {
  accruedCents: bigint;
  unpaidCents: bigint;
  /** The part that may be paid out now: old enough, and no open dispute can take it back. Never below 0. */
  payableCents: bigint;
}

export interface StandingDeps {
  clock: Clock;
  ledger: Ledger;
  /** Earnings are payable this long after they were posted. In that time a customer may dispute them. */
  delayMs: number;
}

interface Sums {
  owedUcents: bigint;
  paidUcents: bigint;
  waitingUcents: bigint;
}

export async function sumsOf(
  query: Query,
  supplierId: string,
  { ledger, clock, delayMs }: StandingDeps,
): Promise<Sums> {
  const { postedUcents: owedUcents } = await ledger.balance(query, payable(supplierId));
  const disputed = disputedOf(supplierId);
  const waitingUcents = await waitingFor(query, supplierId, { sinceMs: clock.now() - delayMs, disputed });
  return { owedUcents, paidUcents: await paidTo(query, supplierId), waitingUcents };
}

export function standingOf({ owedUcents, paidUcents, waitingUcents }: Sums): Standing {
  const payableCents = centsFloor(owedUcents - waitingUcents);
  return {
    accruedCents: centsFloor(owedUcents + paidUcents),
    unpaidCents: centsFloor(owedUcents),
    payableCents: payableCents > 0n ? payableCents : 0n,
  };
}

export async function standingNow(query: Query, supplierId: string, deps: StandingDeps): Promise<Standing> {
  return standingOf(await sumsOf(query, supplierId, deps));
}

export function centsText(cents: bigint): string {
  return `$${dollarText(cents * UCENTS_PER_CENT)}`;
}

export function owedWords({ unpaidCents, payableCents }: Pick<Standing, 'unpaidCents' | 'payableCents'>): string {
  const owed = `The supplier is owed ${centsText(unpaidCents)}`;
  if (unpaidCents <= payableCents || unpaidCents < 0n) return owed;
  return `${owed}, of which ${centsText(payableCents)} is payable now; the rest is too new or disputed`;
}
