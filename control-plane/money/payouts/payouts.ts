// Earnings of suppliers, what we owe them, and payouts.
import type { Metering } from '../metering/metering.ts';
import type { Query } from '../../base/db/db.ts';
import { earnedEntries, type EntryCursor } from '../ledger/suppliers.ts';
import { disputedInstances, type Disputes, openDisputes } from './disputes.ts';
import { openDestinations, type DestinationsDeps, type PayoutDestinations } from './destinations.ts';
import { type Earning, earningsFrom, type Level } from './earnings.ts';
import type { PayingDeps } from './making.ts';
import { openSending, type Sending } from './sending.ts';
import { type Standing, standingOf, sumsOf } from './standing.ts';

export interface EarningsPage extends Standing {
  earnings: Earning[];
  /** Rentals whose earnings wait for a decision of the operator. */
  disputed: ReadonlySet<string>;
}

export interface Payouts extends Sending {
  /** Zero for a supplier without earnings. */
  standing(query: Query, supplierId: string): Promise<Standing>;
  /** At most `limit` entries after `after`, newest first. */
  earnings(supplierId: string, after: (EntryCursor & Level) | undefined, limit: number): Promise<EarningsPage>;
  disputes: Disputes;
  destinations: PayoutDestinations;
  /** The time from an entry of earnings until it is payable. */
  readonly delayMs: number;
}

interface PayoutsDeps extends Omit<PayingDeps, 'destinations'>, DestinationsDeps {
  metering: Pick<Metering, 'refund'>;
}

export function openPayouts(deps: PayoutsDeps): Payouts {
  const { db } = deps;
  const destinations = openDestinations(deps);
  return {
    ...openSending({ ...deps, destinations }),
    standing: async (query, supplierId) => standingOf(await sumsOf(query, supplierId, deps)),
    disputes: openDisputes(deps),
    destinations,
    delayMs: deps.delayMs,
    // One transaction, so that the first page begins at the total of exactly the entries that it shows.
    earnings: (supplierId, after, limit) =>
      db.snapshot('payouts.earnings', async (query) => {
        const sums = await sumsOf(query, supplierId, deps);
        const totalUcents = sums.owedUcents + sums.paidUcents;
        const level = after ?? { totalUcents, leastUcents: totalUcents };
        const entries = await earnedEntries(query, supplierId, after, limit);
        const disputed = new Set(await disputedInstances(query));
        return { ...standingOf(sums), disputed, earnings: earningsFrom(level, entries, sums.paidUcents) };
      }),
  };
}
