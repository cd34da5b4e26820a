// Pure: what a stretch of a segment costs and whom it pays. Works backwards too (a dead window taken back).
import { accruedUcents, supplierPartUcents } from '../../../shared/money.ts';
import { badDebt, clearing, payable, revenue, wallet } from '../ledger/accounts.ts';
import type { NewTransfer } from '../ledger/store.ts';
import type { Segment } from './store.ts';

/** Cost of the segment from its start to `atMs`. */
export function costUcents(segment: Segment, atMs: number): bigint {
  return accruedUcents(segment.rate_ucents_per_hour, atMs - segment.started_ms);
}

/** What it has cost since it was last posted. A clock that was set back is behind what was posted: then nothing is open. */
export function unpostedUcents(segment: Segment, nowMs: number): bigint {
  const fromMs = segment.posted_through_ms;
  return costUcents(segment, Math.max(nowMs, fromMs)) - costUcents(segment, fromMs);
}

export function holdId(subjectId: string): string {
  return `rental:${subjectId}`;
}

export interface Split {
  totalUcents: bigint;
  supplierUcents: bigint;
  feeUcents: bigint;
}

/** What the stretch moves in all, and the two parts of it. All negative for a stretch taken back. */
function splitOf(segment: Segment, fromMs: number, toMs: number): Split {
  const before = costUcents(segment, fromMs);
  const after = costUcents(segment, toMs);
  const totalUcents = after - before;
  const supplierUcents =
    supplierPartUcents(after, segment.supplier_bps) - supplierPartUcents(before, segment.supplier_bps);
  return { totalUcents, supplierUcents, feeUcents: totalUcents - supplierUcents };
}

export interface Stretch {
  segment: Segment;
  fromMs: number;
  toMs: number;
  /** What the wallet can pay of a charge; the rest is bad debt. */
  payableUcents: bigint;
  evidence?: string;
}

/**
 * The transfers of a stretch. Forward: wallet (and bad debt) -> clearing -> supplier and platform. Backward: the same legs reversed,
 * to the wallet: a customer who ran out of money on a dead host still gets the credit.
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
    ...(evidence === undefined ? {} : { evidence }),
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
