// Lending: a GPU that is set aside for a contract that has not begun may go to a launch that is over by then. It stays set aside all the time,
// so it is the contract's again in the moment in which the launch lets it go, and is never on offer.
import { type Sql, sql } from '../../base/db/db.ts';

/** GPUs of one machine for one workload. */
export interface GpuWant {
  machineId: string;
  gpuType: string;
  count: number;
  heldBy: string;
  /** Only slots of this reservation contract; null: only GPUs that no contract has set aside, or needs before `endsMs`. */
  reservedBy: string | null;
  /** When the launch is over at the latest; null: it does not end by itself. */
  endsMs: number | null;
}

/**
 * True for a GPU that a launch may have although it is set aside. `endsMs` is when the launch is over at the latest; null: it does not end
 * by itself, so it gets none.
 */
export function isLendable(endsMs: number | null): Sql {
  return endsMs === null ? sql`1 = 0` : sql`reserved_from_ms > ${endsMs}`;
}

/** How many GPUs of an offering such a launch may have: those that are free to all, and those that are lent to it. */
export function gpusWithin(endsMs: number | null): Sql {
  if (endsMs === null) return sql`gpu_free`;
  return sql`(gpu_free + (
    select count(*) from machine_gpus
    where machine_gpus.machine_id = offerings.machine_id and machine_gpus.gpu_type = offerings.gpu_type
      and usable = 1 and held_by is null and ${isLendable(endsMs)}))`;
}

/** The machines that have GPUs of the type to lend. There are few: only contracts within their lead time set GPUs aside. */
export function lenders(gpuType: string, endsMs: number): Sql {
  return sql`select machine_id from machine_gpus
    where gpu_type = ${gpuType} and usable = 1 and held_by is null and ${isLendable(endsMs)}`;
}
