// The balance of a customer now, how long it lasts at the rate of what runs now, and the hours left at which its organisation is warned. The
// balance now is that of the ledger, minus the cost of rentals since it was last posted.
import { z } from 'zod';
import { json } from '../../base/db/columns.ts';
import { type Query, sql, type Tx } from '../../base/db/db.ts';
import type { Balance, Ledger } from '../ledger/ledger.ts';
import { openRateOf, openSegmentsOf } from './store.ts';
import { lesserUcents } from '../../../shared/money.ts';
import { wallet } from '../ledger/accounts.ts';
import { amountsHeld } from '../ledger/store.ts';
import { holdId, unpostedUcents } from './posting.ts';

export interface Runway {
  balance: Balance;
  rateUcentsPerHour: bigint;
  /** Undefined if no rental costs anything now. */
  leftMs: number | undefined;
}

const MS_PER_HOUR = 3_600_000n;
const WARN_BELOW_HOURS = [24, 6, 1];

/** Running rentals can use up the amounts that they hold. They cannot use what requests and jobs hold. */
export async function runwayOf(
  query: Query,
  orgId: string,
  deps: { ledger: Pick<Ledger, 'balance'>; nowMs: number },
): Promise<Runway> {
  const balance = await balanceNow(query, orgId, deps);
  const rate = await openRateOf(query, orgId);
  const usableUcents = balance.availableUcents + balance.rentalHeldUcents;
  const leftMs = rate === 0n ? undefined : Number((usableUcents * MS_PER_HOUR) / rate);
  return { balance, rateUcentsPerHour: rate, leftMs };
}

/** The smallest of the organisation's limits, in hours, that is above the time left; null if the time left is above all limits. */
export async function balanceBelowHours(
  query: Query,
  orgId: string,
  deps: { ledger: Pick<Ledger, 'balance'>; nowMs: number },
): Promise<number | null> {
  const { leftMs } = await runwayOf(query, orgId, deps);
  if (leftMs === undefined) return null;
  const crossed = (await warnBelowHours(query, orgId)).filter((hours) => leftMs < hours * Number(MS_PER_HOUR));
  return crossed.length === 0 ? null : Math.min(...crossed);
}

const WarningRow = z.object({ below_hours: json(z.array(z.int())) });

/** The limits of the time left, in hours, below which the organisation is warned. An empty list means that nobody is warned. */
export async function warnBelowHours(query: Query, orgId: string): Promise<number[]> {
  const row = await query.one(WarningRow, sql`select below_hours from balance_warnings where org_id = ${orgId}`);
  return row?.below_hours ?? WARN_BELOW_HOURS;
}

export async function setWarnBelowHours(tx: Tx, orgId: string, hours: readonly number[]): Promise<void> {
  await tx.run(
    sql`insert into balance_warnings (org_id, below_hours) values (${orgId}, ${JSON.stringify(hours)})
        on conflict (org_id) do update set below_hours = excluded.below_hours`,
  );
}

export interface BalanceNow extends Balance {
  /** The part of the held amount that running rentals can still use up. */
  rentalHeldUcents: bigint;
}

/**
 * The balance with the cost of running rentals up to now. The cost of a rental is taken from its own hold first. Cost above the hold
 * reduces the available balance.
 */
async function balanceNow(
  query: Query,
  orgId: string,
  { ledger, nowMs }: { ledger: Pick<Ledger, 'balance'>; nowMs: number },
): Promise<BalanceNow> {
  const inLedger = await ledger.balance(query, wallet(orgId));
  let { postedUcents, heldUcents } = inLedger;
  let rentalHeldUcents = 0n;
  const segments = await openSegmentsOf(query, orgId);
  const amounts = await amountsHeld(
    query,
    segments.map((segment) => holdId(segment.subject_id)),
  );
  for (const segment of segments) {
    const cost = unpostedUcents(segment, nowMs);
    const held = amounts.get(holdId(segment.subject_id)) ?? 0n;
    postedUcents -= cost;
    heldUcents -= lesserUcents(cost, held);
    rentalHeldUcents += cost < held ? held - cost : 0n;
  }
  // Cost that a wallet cannot cover becomes bad debt, never a negative balance.
  if (postedUcents < heldUcents) postedUcents = heldUcents;
  return { postedUcents, heldUcents, availableUcents: postedUcents - heldUcents, rentalHeldUcents };
}
