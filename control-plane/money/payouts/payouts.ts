// Earnings of suppliers, what we owe them, and payouts.
import { bucketEnd } from '../metering/buckets.ts';
import type { Metering } from '../metering/metering.ts';
import type { Query } from '../../base/db/db.ts';
import { earnedEntries } from '../ledger/suppliers.ts';
import { disputedAmong, type Disputes, openDisputes } from './disputes.ts';
import { openDestinations, type DestinationsDeps, type PayoutDestinations } from './destinations.ts';
import {
  earnedOnMachine,
  earningsFrom,
  earningsOfMachine,
  type OfMachine,
  type Walk,
  type WalkedEarnings,
} from './earnings.ts';
import type { PayingDeps } from './making.ts';
import { periodStart } from './plan.ts';
import { openSending, type Sending } from './sending.ts';
import { type Standing, standingOf, sumsOf } from './standing.ts';
import { hasPayout } from './store.ts';

export interface EarningsPage extends Standing, WalkedEarnings {
  /** Rentals among these earnings that wait for a decision of the operator, and the time from which each is disputed. */
  disputed: ReadonlyMap<string, number>;
  /** The earnings of the requested machine; undefined if the request names no machine. */
  machineUcents: bigint | undefined;
}

export interface Payouts extends Sending {
  /** The sums are zero for a supplier without earnings. */
  standing(query: Query, supplierId: string): Promise<Standing>;
  /** At most `limit` entries after `from`, newest first. `only`: those of one machine. */
  earnings(
    supplierId: string,
    page: { from: Walk | undefined; limit: number },
    only?: OfMachine,
  ): Promise<EarningsPage>;
  disputes: Disputes;
  destinations: PayoutDestinations;
  /** The time from an entry of earnings until it is payable. */
  readonly delayMs: number;
  schedule(query: Query, supplierId: string): Promise<Schedule>;
}

/** When payouts to a supplier become due. */
export interface Schedule extends Pick<PayoutsDeps, 'every' | 'minimumUcents' | 'delayMs' | 'destinationDelayMs'> {
  /** The beginning of the first period in which the supplier can get another payout. */
  notBeforeMs: number;
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
    schedule: async (query, supplierId) => {
      const { clock, every, minimumUcents, delayMs, destinationDelayMs } = deps;
      const periodMs = periodStart(clock.now(), every);
      const hasOne = await hasPayout(query, supplierId, periodMs);
      const notBeforeMs = hasOne ? bucketEnd(periodMs, every) : periodMs;
      return { every, minimumUcents, delayMs, destinationDelayMs, notBeforeMs };
    },
    earnings: async (supplierId, { from, limit }, only) => {
      // One transaction, so that the first page begins at the total of exactly the entries that it shows.
      const page = await db.snapshot('payouts.earnings', async (query) => {
        const sums = await sumsOf(query, supplierId, deps);
        const totalUcents = sums.owedUcents + sums.paidUcents;
        const start = from ?? { totalUcents, leastUcents: totalUcents, after: undefined };
        const { paidUcents } = sums;
        const walked =
          only === undefined
            ? { earnings: earningsFrom(start, await earnedEntries(query, supplierId, start.after, limit), paidUcents) }
            : await earningsOfMachine(query, only, { supplierId, paidUcents, start }, limit);
        const subjectIds = walked.earnings.map(({ entry }) => entry.subject_id);
        return { cutAt: undefined, ...walked, ...standingOf(sums), disputed: await disputedAmong(query, subjectIds) };
      });
      return { ...page, machineUcents: only === undefined ? undefined : await earnedOnMachine(supplierId, only, deps) };
    },
  };
}
