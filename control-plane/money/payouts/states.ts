// The states of a payout and the only function that changes them: `move`.
//
//                 export, or paid by hand           the operator names the transaction
//   (loop) --> due ----------------------> in_flight ----------------------> paid
//               |                              |
//               |  less than the minimum is    |  the operator says that it did not leave
//               |  payable, or withdrawn       |
//               +-----------> failed <---------+
//
// | from      | to        | transfers                                     |
// | due       | in_flight | supplier_payable -> payout_in_flight          |
// | due       | failed    | none: nothing was set aside                   |
// | in_flight | paid      | payout_in_flight -> supplier_payouts          |
// | in_flight | failed    | payout_in_flight -> supplier_payable          |
//
// The state, what belongs to it, and the transfers are written in one transaction. The ids of the transfers follow from the id of the payout,
// so no payout can leave an account twice. A process that dies loses nothing: what is due stays due, and what is in flight waits for the
// operator, who alone knows whether the money has left.
import type { Clock } from '../../../shared/clock.ts';
import { mayMove, PAYOUT_STATES, type PayoutState } from '../../../shared/states.ts';
import type { Tx } from '../../base/db/db.ts';
import { type AccountRef, inFlight, paidOut, payable } from '../ledger/accounts.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { NewTransfer } from '../ledger/store.ts';
import { type PayoutRow, writeMove } from './store.ts';

export type PayoutPatch = Partial<
  Pick<PayoutRow, 'amount_ucents' | 'chain' | 'address' | 'batch' | 'reference' | 'reason'>
>;

/** The caller has locked the supplier. @throws Error if the payout may not go there, or has moved since it was read */
export async function move(
  tx: Tx,
  row: PayoutRow,
  { to, ...patch }: PayoutPatch & { to: PayoutState },
  { clock, ledger }: { clock: Clock; ledger: Pick<Ledger, 'post'> },
): Promise<PayoutRow> {
  if (!mayMove(PAYOUT_STATES, row.state, to)) throw new Error(`payout ${row.id} cannot go from ${row.state} to ${to}`);
  const nowMs = clock.now();
  const times = to === 'in_flight' ? { in_flight_ms: nowMs } : { ended_ms: nowMs };
  const moved: PayoutRow = { ...row, ...patch, ...times, state: to };
  if (!(await writeMove(tx, row.state, moved))) throw new Error(`payout ${row.id} has moved meanwhile`);
  const [transfer] = transfersOf(moved).toReversed();
  if (transfer !== undefined) await ledger.post(tx, transfer.id, [transfer]);
  return moved;
}

/** Pure: the transfers of a payout up to its state. The last of them belongs to its last move. */
export function transfersOf(row: PayoutRow): NewTransfer[] {
  if (row.in_flight_ms === null) return [];
  const leg = (
    step: 'sent' | 'paid' | 'failed',
    [debit, credit]: readonly [AccountRef, AccountRef],
    about: { kind: string; atMs: number; evidence: string | null },
  ): NewTransfer => ({
    id: `payout:${row.id}:${step}`,
    debit,
    credit,
    amountUcents: row.amount_ucents,
    kind: about.kind,
    subjectId: row.id,
    effectiveMs: about.atMs,
    ...(about.evidence === null ? {} : { evidence: about.evidence }),
  });
  const owed = payable(row.supplier_id);
  const sent = leg('sent', [owed, inFlight], { kind: 'payout', atMs: row.in_flight_ms, evidence: null });
  const atMs = row.ended_ms ?? row.in_flight_ms;
  if (row.state === 'paid') {
    return [sent, leg('paid', [inFlight, paidOut], { kind: 'payout.paid', atMs, evidence: row.reference })];
  }
  if (row.state !== 'failed') return [sent];
  return [sent, leg('failed', [inFlight, owed], { kind: 'payout.failed', atMs, evidence: row.reason })];
}

/** The id of the payout that the id of a transfer names, as `transfersOf` has made it. */
export function payoutOf(transferId: string): string {
  return transferId.split(':')[1] ?? '';
}
