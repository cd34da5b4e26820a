// Earnings of suppliers, what we owe them, and payouts.
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { centsFloor, dollarText, UCENTS_PER_CENT } from '../../../shared/money.ts';
import type { Db, Query, Tx } from '../../base/db/db.ts';
import { paidOut, payable } from '../ledger/accounts.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { Metering } from '../metering/metering.ts';
import {
  earnedEntries,
  type EntryCursor,
  findPayout,
  paidTo,
  type PayoutEntry,
  waitingFor,
} from '../ledger/suppliers.ts';
import { disputedInstances, type Disputes, openDisputes } from './disputes.ts';
import { type Earning, earningsFrom, type Level } from './earnings.ts';

/** What a supplier earned and is owed, in whole cents, rounded down once. */
export interface Standing {
  accruedCents: bigint;
  unpaidCents: bigint;
  /** The part that may be paid out now: old enough and not disputed. Never below 0. */
  payableCents: bigint;
}

export interface EarningsPage extends Standing {
  earnings: Earning[];
  /** Rentals whose earnings wait for a decision of the operator. */
  disputed: ReadonlySet<string>;
}

export interface NewPayout {
  supplierId: string;
  /** Null: everything that is payable. */
  cents: number | null;
  /** The operator's name for the payout. A second payout with the same reference has no effect. */
  reference: string;
}

export interface Payouts {
  /** Zero for a supplier without earnings. */
  standing(query: Query, supplierId: string): Promise<Standing>;
  /** At most `limit` entries after `after`, newest first. */
  earnings(supplierId: string, after: (EntryCursor & Level) | undefined, limit: number): Promise<EarningsPage>;
  /** Records a payout. @throws ServiceError `conflict` for more than is payable, or for the reference of another payout */
  pay(payout: NewPayout): Promise<PayoutEntry>;
  disputes: Disputes;
  /** The time from an entry of earnings until it is payable. */
  readonly delayMs: number;
}

interface PayoutsDeps {
  db: Db;
  clock: Clock;
  ids: Ids;
  ledger: Ledger;
  metering: Pick<Metering, 'refund'>;
  /** Earnings are payable this long after they were posted. In that time a customer may dispute them. */
  delayMs: number;
}

export function openPayouts(deps: PayoutsDeps): Payouts {
  const { db } = deps;
  return {
    standing: async (query, supplierId) => standingOf(await sums(query, supplierId, deps)),
    disputes: openDisputes(deps),
    delayMs: deps.delayMs,
    // One transaction, so that the first page begins at the total of exactly the entries that it shows.
    earnings: (supplierId, after, limit) =>
      db.snapshot('payouts.earnings', async (query) => {
        const { owedUcents, paidUcents, waitingUcents } = await sums(query, supplierId, deps);
        const totalUcents = owedUcents + paidUcents;
        const level = after ?? { totalUcents, leastUcents: totalUcents };
        const entries = await earnedEntries(query, supplierId, after, limit);
        const disputed = new Set(await disputedInstances(query));
        const standing = standingOf({ owedUcents, paidUcents, waitingUcents });
        return { ...standing, disputed, earnings: earningsFrom(level, entries, paidUcents) };
      }),
    pay: (payout) =>
      db.tx('payouts.pay', async (tx) => {
        await tx.lock('supplier', payout.supplierId);
        return pay(tx, payout, deps);
      }),
  };
}

interface Sums {
  owedUcents: bigint;
  paidUcents: bigint;
  waitingUcents: bigint;
}

async function sums(query: Query, supplierId: string, { ledger, clock, delayMs }: PayoutsDeps): Promise<Sums> {
  const { postedUcents: owedUcents } = await ledger.balance(query, payable(supplierId));
  const disputed = await disputedInstances(query);
  const waitingUcents = await waitingFor(query, supplierId, { sinceMs: clock.now() - delayMs, disputed });
  return { owedUcents, paidUcents: await paidTo(query, supplierId), waitingUcents };
}

function standingOf({ owedUcents, paidUcents, waitingUcents }: Sums): Standing {
  const payableCents = centsFloor(owedUcents - waitingUcents);
  return {
    accruedCents: centsFloor(owedUcents + paidUcents),
    unpaidCents: centsFloor(owedUcents),
    payableCents: payableCents > 0n ? payableCents : 0n,
  };
}

async function pay(tx: Tx, payout: NewPayout, deps: PayoutsDeps): Promise<PayoutEntry> {
  const { supplierId, cents, reference } = payout;
  const id = `payout:${supplierId}:${reference}`;
  const known = await findPayout(tx, id);
  if (known !== undefined) return sameOrFail(known, payout);
  const { clock, ledger } = deps;
  const { unpaidCents, payableCents } = standingOf(await sums(tx, supplierId, deps));
  const amount = cents === null ? payableCents : BigInt(cents);
  if (amount <= 0n) return fail('conflict', `${owedWords({ unpaidCents, payableCents })}: there is nothing to pay.`);
  if (amount > payableCents) return fail('conflict', `${owedWords({ unpaidCents, payableCents })}. Pay that or less.`);
  const transfer = {
    id,
    debit: payable(supplierId),
    credit: paidOut,
    amountUcents: amount * UCENTS_PER_CENT,
    kind: 'payout',
    subjectId: supplierId,
    evidence: reference,
    effectiveMs: clock.now(),
  };
  await ledger.post(tx, id, [transfer]);
  return (await findPayout(tx, id)) ?? fail('internal_error', 'The payout vanished while it was made.');
}

function owedWords({ unpaidCents, payableCents }: Pick<Standing, 'unpaidCents' | 'payableCents'>): string {
  const text = (cents: bigint): string => `$${dollarText(cents * UCENTS_PER_CENT)}`;
  const owed = `The supplier is owed ${text(unpaidCents)}`;
  if (unpaidCents <= payableCents || unpaidCents < 0n) return owed;
  return `${owed}, of which ${text(payableCents)} is payable now; the rest is too new or disputed`;
}

function sameOrFail(known: PayoutEntry, { cents, reference }: NewPayout): PayoutEntry {
  if (cents === null || BigInt(cents) * UCENTS_PER_CENT === known.amount_ucents) return known;
  const paid = dollarText(known.amount_ucents);
  return fail('conflict', `$${paid} was paid under the reference ${reference}. Nothing was changed: name a new one.`);
}
