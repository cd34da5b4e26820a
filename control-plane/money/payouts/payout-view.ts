// A payout as suppliers and operators see it. If a payout is due and cannot leave, the view has the reason.
import type { CommunityPayout } from '../../../shared/api/payout.ts';
import { isoTime } from '../../../shared/clock.ts';
import { centsFloor } from '../../../shared/money.ts';
import type { Query } from '../../base/db/db.ts';
import type { PageStart } from '../../base/http/cursors.ts';
import type { Sending } from './sending.ts';
import { pageOfPayouts, type PayoutRow } from './store.ts';

export interface ExplainedPayout {
  row: PayoutRow;
  waitsBecause: string | null;
}

/** A page of the payouts of all suppliers or of one, in all states or in one, newest first. */
export async function explainedPage(
  query: Query,
  { payouts, ...which }: Parameters<typeof pageOfPayouts>[1] & { payouts: Pick<Sending, 'waitsBecause'> },
  start: PageStart,
): Promise<ExplainedPayout[]> {
  const rows = await pageOfPayouts(query, which, start);
  return Promise.all(rows.map(async (row) => ({ row, waitsBecause: await payouts.waitsBecause(query, row) })));
}

/** `waitsBecause` is why a payout that is due cannot leave now. */
export function payoutView(row: PayoutRow, waitsBecause: string | null = null): CommunityPayout {
  const at = (ms: number | null): string | null => (ms === null ? null : isoTime(ms));
  return {
    payout_id: row.id,
    status: row.state,
    amount_cents: Number(centsFloor(row.amount_ucents)),
    destination: row.chain === null || row.address === null ? null : { chain: row.chain, address: row.address },
    reference: row.reference,
    reason: row.reason ?? waitsBecause,
    created_at: isoTime(row.created_ms),
    in_flight_at: at(row.in_flight_ms),
    paid_at: at(row.state === 'paid' ? row.ended_ms : null),
    failed_at: at(row.state === 'failed' ? row.ended_ms : null),
  };
}
