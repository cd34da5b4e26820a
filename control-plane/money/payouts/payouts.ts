// What suppliers earned, what they are owed, and paying it out.
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { centsFloor, dollarText, UCENTS_PER_CENT } from '../../../shared/money.ts';
import type { Db, Query, Tx } from '../../base/db/db.ts';
import { paidOut, payable } from '../ledger/accounts.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { earnedEntries, type EntryPosition, findPayout, paidTo, type PayoutEntry } from '../ledger/suppliers.ts';
import { type Earning, earningsFrom, type Level } from './earnings.ts';

/** What a supplier earned and is owed. All in whole cents, rounded down once. */
export interface Standing {
  accruedCents: bigint;
  unpaidCents: bigint;
}

export interface EarningsPage extends Standing {
  earnings: Earning[];
}

export interface NewPayout {
  supplierId: string;
  /** Null: all that is owed. */
  cents: number | null;
  /** What the operator calls it; paying twice under one counts once. */
  reference: string;
}

export interface Payouts {
  /** Zero for somebody who has never earned anything. */
  standing(query: Query, supplierId: string): Promise<Standing>;
  /** At most `limit` entries behind `after`, newest first. */
  earnings(supplierId: string, after: (EntryPosition & Level) | undefined, limit: number): Promise<EarningsPage>;
  /** Enters that the supplier was paid. @throws ServiceError `conflict` for more than it is owed, or a reference of another payout */
  pay(payout: NewPayout): Promise<PayoutEntry>;
}

interface PayoutsDeps {
  db: Db;
  clock: Clock;
  ledger: Ledger;
}

export function openPayouts(deps: PayoutsDeps): Payouts {
  const { db } = deps;
  return {
    standing: async (query, supplierId) => standingOf(await sums(query, supplierId, deps)),
    // A transaction, so that the first page begins at the total of exactly the entries that it shows.
    earnings: (supplierId, after, limit) =>
      db.tx('payouts.earnings', async (tx) => {
        const { owedUcents, paidUcents } = await sums(tx, supplierId, deps);
        const totalUcents = owedUcents + paidUcents;
        const level = after ?? { totalUcents, leastUcents: totalUcents };
        const entries = await earnedEntries(tx, supplierId, after, limit);
        return { ...standingOf({ owedUcents, paidUcents }), earnings: earningsFrom(level, entries, paidUcents) };
      }),
    pay: (payout) => db.tx('payouts.pay', (tx) => pay(tx, payout, deps)),
  };
}

interface Sums {
  owedUcents: bigint;
  paidUcents: bigint;
}

async function sums(query: Query, supplierId: string, { ledger }: Pick<PayoutsDeps, 'ledger'>): Promise<Sums> {
  const { postedUcents: owedUcents } = await ledger.balance(query, payable(supplierId));
  return { owedUcents, paidUcents: await paidTo(query, supplierId) };
}

function standingOf({ owedUcents, paidUcents }: Sums): Standing {
  return { accruedCents: centsFloor(owedUcents + paidUcents), unpaidCents: centsFloor(owedUcents) };
}

async function pay(tx: Tx, payout: NewPayout, { clock, ledger }: PayoutsDeps): Promise<PayoutEntry> {
  const { supplierId, cents, reference } = payout;
  const id = `payout:${supplierId}:${reference}`;
  const known = await findPayout(tx, id);
  if (known !== undefined) return sameOrFail(known, payout);
  const owed = centsFloor((await ledger.balance(tx, payable(supplierId))).postedUcents);
  const amount = cents === null ? owed : BigInt(cents);
  const owedText = dollarText(owed * UCENTS_PER_CENT);
  if (amount <= 0n) return fail('conflict', `The supplier is owed $${owedText}: there is nothing to pay.`);
  if (amount > owed) return fail('conflict', `The supplier is owed $${owedText}. Pay that or less.`);
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

function sameOrFail(known: PayoutEntry, { cents, reference }: NewPayout): PayoutEntry {
  if (cents === null || BigInt(cents) * UCENTS_PER_CENT === known.amount_ucents) return known;
  const paid = dollarText(known.amount_ucents);
  return fail('conflict', `$${paid} was paid under the reference ${reference}. Nothing was changed: name a new one.`);
}
