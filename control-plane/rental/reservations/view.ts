// A contract as the API shows it (specification 2.7). No commercial terms.
import type { Reservation, ReservedInstance } from '../../../shared/api/reservation.ts';
import { isoTime } from '../../../shared/clock.ts';
import type { ReservationRow } from './store.ts';
import { daysUntilEnd, standing } from './term.ts';

export function reservationView(row: ReservationRow, instances: ReservedInstance[], nowMs: number): Reservation {
  const contract = standing(row, nowMs);
  const { days, isSoon } = daysUntilEnd(contract, nowMs);
  const committed = gpusOf(contract.commitment);
  const allocated = gpusOf(instances);
  return {
    reservation_id: contract.id,
    title: contract.title,
    starts_at: isoTime(contract.starts_ms),
    ends_at: isoTime(contract.ends_ms),
    status: contract.status,
    renewal: { mode: contract.renewal, days_until_end: days, expiring_soon: isSoon },
    commitment: contract.commitment,
    utilization: { allocated_gpus: allocated, committed_gpus: committed, pct: allocated / committed },
    instances,
  };
}

function gpusOf(entries: readonly { gpu_count: number }[]): number {
  return entries.reduce((sum, { gpu_count: count }) => sum + count, 0);
}
