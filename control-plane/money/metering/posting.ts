// Pure: what a stretch of metered time costs, and the transfers that pay for it. It works backwards too, to take time back.
//
// A segment is a stretch of time with one price. Its cost at any moment is one formula: the price times the time since its start,
// rounded down to whole microcents. A posting never adds rounded parts. It posts the difference of two values of that formula, so
// no fraction is lost or gained, however often the ledger is posted.
//
// Example. The price is 100 000 001 microcents ($1.00000001) an hour, and the supplier gets 85 % (8 500 basis points).
//
//   posted through    cost since the start    supplier's part    posted now: charge    supplier     fee
//   10:20:00                  33 333 333          28 333 333            33 333 333    28 333 333    5 000 000
//   10:40:00                  66 666 667          56 666 666            33 333 334    28 333 333    5 000 001
//   11:00:00                 100 000 001          85 000 000            33 333 334    28 333 334    5 000 000
//
// The three charges add up to exactly one hour. Rounding each third by itself would have lost 2 microcents.
//
// Each posting is up to four transfers (zero amounts are left out):
//
//   customer's wallet --charge-----+                     +--supplier--> supplier's payable account
//                                  +--> rental clearing -+
//   bad debt ----------shortfall---+                     +--fee-------> platform revenue
//
// The clearing account is zero after each posting. If the wallet holds only 20 000 000 at 11:00:00, then charge is 20 000 000,
// shortfall is 13 333 334, and the supplier is paid in full.
//
// Backward. At 11:05 it turns out that the host was dead since 10:40:00. The stretch from 11:00:00 to 10:40:00 has the negative
// cost -33 333 334. The same legs are posted in the other direction, as `rental.refund_*`, and the wallet gets all of it.
//
// What must never happen:
// - A transfer is posted twice. Its id names the segment, both ends of the stretch and the leg, so a repeated posting has the same
//   ids, and the ledger skips transfers that exist.
// - A wallet becomes negative: the part that it cannot cover is bad debt.
// - A charge is computed from anything but `costUcents`. Usage, balance and `ledger verify` use the same formula and would differ.
import { accruedUcents, supplierPartUcents } from '../../../shared/money.ts';
import { badDebt, clearing, payable, revenue, wallet } from '../ledger/accounts.ts';
import type { NewTransfer } from '../ledger/store.ts';
import type { Segment } from './store.ts';

/** The cost of the segment from its start to `atMs`. */
export function costUcents(segment: Segment, atMs: number): bigint {
  return accruedUcents(segment.rate_ucents_per_hour, atMs - segment.started_ms);
}

/** The cost since the last posting. If the clock was set back behind the last posting, the result is 0. */
export function unpostedUcents(segment: Segment, nowMs: number): bigint {
  const fromMs = segment.posted_through_ms;
  return costUcents(segment, Math.max(nowMs, fromMs)) - costUcents(segment, fromMs);
}

export function holdId(subjectId: string): string {
  return `rental:${subjectId}`;
}

/** The supplier's part of the cost of the segment from its start to `atMs`. */
export function supplierUcents(segment: Segment, atMs: number): bigint {
  return supplierPartUcents(costUcents(segment, atMs), segment.supplier_bps);
}

export interface Split {
  totalUcents: bigint;
  supplierUcents: bigint;
  feeUcents: bigint;
}

/** The amount of the stretch and its two parts. All are negative if time is taken back. */
function splitOf(segment: Segment, fromMs: number, toMs: number): Split {
  const before = costUcents(segment, fromMs);
  const after = costUcents(segment, toMs);
  const totalUcents = after - before;
  const partUcents = supplierUcents(segment, toMs) - supplierUcents(segment, fromMs);
  return { totalUcents, supplierUcents: partUcents, feeUcents: totalUcents - partUcents };
}

export interface Stretch {
  segment: Segment;
  fromMs: number;
  toMs: number;
  /** The part of a charge that the wallet can pay. The rest becomes bad debt. */
  payableUcents: bigint;
  /** Why time is taken back. A charge is stored without it, because it is no reason for a charge. */
  evidence?: string;
}

/**
 * The transfers of a stretch. Forward: wallet (and bad debt) -> clearing -> supplier and platform. Backward: the same legs reversed. The
 * whole refund goes to the wallet, so a customer who ran out of money on a dead host still gets the credit.
 */
export function transfersOf(stretch: Stretch): NewTransfer[] {
  const { segment, fromMs, toMs, evidence } = stretch;
  const split = splitOf(segment, fromMs, toMs);
  const back = split.totalUcents < 0n;
  const leg = (
    kind: string,
    debit: NewTransfer['debit'],
    credit: NewTransfer['credit'],
    amountUcents: bigint,
  ): NewTransfer => ({
    id: `${segment.id}:${fromMs}-${toMs}:${kind}`,
    debit: back ? credit : debit,
    credit: back ? debit : credit,
    amountUcents: back ? -amountUcents : amountUcents,
    kind: `rental.${back ? 'refund_' : ''}${kind}`,
    subjectId: segment.subject_id,
    effectiveMs: toMs,
    ...(evidence === undefined || !back ? {} : { evidence }),
  });
  const customer = wallet(segment.org_id);
  const paid = back || split.totalUcents <= stretch.payableUcents ? split.totalUcents : stretch.payableUcents;
  return [
    leg('charge', customer, clearing, paid),
    leg('shortfall', badDebt, clearing, split.totalUcents - paid),
    leg('supplier', clearing, payable(segment.supplier_id), split.supplierUcents),
    leg('fee', clearing, revenue, split.feeUcents),
  ].filter((transfer) => transfer.amountUcents > 0n);
}

/** The segment and the stretch that the id of a transfer names, as `transfersOf` has made it. */
export function stretchOf(transferId: string): { segmentId: string; fromMs: number; toMs: number } | undefined {
  const parts = /^(?<segment>[^:]+):(?<from>\d+)-(?<to>\d+):[a-z]+$/.exec(transferId)?.groups;
  if (parts === undefined) return undefined;
  return { segmentId: parts['segment'] ?? '', fromMs: Number(parts['from']), toMs: Number(parts['to']) };
}
