// A contract as the API shows it (specification 2.7), without commercial terms.
import type { Reservation, ReservedInstance } from '../../../shared/api/reservation.ts';
import { isoTime } from '../../../shared/clock.ts';
import type { Slots } from '../../fleet/supply/slots.ts';
import type { ReservationRow } from './store.ts';
import { daysUntilEnd, standing } from './term.ts';

/** The slots and instances that a contract has now. */
export interface Holdings {
  slots: readonly Slots[];
  /** Instances that are not terminated. */
  instances: ReservedInstance[];
}

export function reservationView(row: ReservationRow, { slots, instances }: Holdings, nowMs: number): Reservation {
  const contract = standing(row, nowMs);
  const { days, isSoon } = daysUntilEnd(contract, nowMs);
  const committed = gpusOf(contract.commitment);
  // Nobody can launch under the contract before its start. Instances that use its GPUs until then have borrowed them.
  const allocated = nowMs < contract.starts_ms ? 0 : allocatedGpus(slots, instances);
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

/**
 * Counts used slots, because an instance that is stopping may have released its slots to another one already. An ended contract has no slots,
 * so its remaining instances are counted.
 */
function allocatedGpus(slots: readonly Slots[], instances: readonly ReservedInstance[]): number {
  if (slots.length === 0) return gpusOf(instances.filter(({ status }) => status !== 'stopping' && status !== 'error'));
  return slots.reduce((sum, { in_use: inUse }) => sum + inUse, 0);
}

function gpusOf(entries: readonly { gpu_count: number }[]): number {
  return entries.reduce((sum, { gpu_count: count }) => sum + count, 0);
}
