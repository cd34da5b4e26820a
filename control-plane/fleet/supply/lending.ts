// Which GPUs a launch or a contract may take: free ones, and lent ones.
//
// Lending: a GPU that is set aside for a future contract may go to a launch that ends before the contract begins. The GPU stays set aside
// all the time. So it belongs to the contract as soon as the launch releases it, and it is never on offer.
//
// Leaving: a supplier may say until when a machine can be rented. Only a launch that ends by then may go there (`staysUntil`).
import { raw, type Sql, sql } from '../../base/db/db.ts';

/** The condition for a GPU that works and that no launch holds. A contract may have set it aside. */
export const isFree: Sql = sql`held_by is null and usable = 1`;

/**
 * The condition for the first `count` free GPUs of a type on a machine, among those to which `which` applies. An update checks it again for each
 * row, so it never takes a GPU that somebody else has taken meanwhile. `count` is written into the text, so that PostgreSQL keeps the plan.
 */
export function firstFree(
  { machineId, gpuType, count }: { machineId: string | Sql; gpuType: string; count: number },
  which: Sql,
  order: Sql,
): Sql {
  const fits = sql`machine_id = ${machineId} and ${isFree} and ${which}`;
  return sql`${fits} and gpu_uuid in (
    select gpu_uuid from machine_gpus where ${fits} and gpu_type = ${gpuType} order by ${order} limit ${raw(String(count))})`;
}

/** The GPUs that one workload needs on some machine. */
export interface GpuWant {
  gpuType: string;
  count: number;
  heldBy: string;
  /**
   * Use only slots of this reservation contract. Null: use only GPUs that no contract has set aside, or that none needs before `endsMs`.
   */
  reservedBy: string | null;
  /** The latest end of the launch; null: it does not end by itself. */
  endsMs: number | null;
}

/**
 * The condition for a GPU that may be lent although it is set aside. `endsMs` is the latest end of the launch. With null the launch does
 * not end by itself, and no GPU is lent to it.
 */
export function isLendable(endsMs: number | null): Sql {
  return endsMs === null ? sql`1 = 0` : sql`reserved_from_ms > ${endsMs}`;
}

/**
 * The condition for an offering, or a machine, that is on the market until `endsMs`, the latest end of a launch or of a contract. With null there is
 * no such end, so only a machine without an end of its own will do.
 */
export function staysUntil(endsMs: number | Sql | null): Sql {
  const hasNoEnd = sql`rentable_until_ms is null`;
  return endsMs === null ? hasNoEnd : sql`(${hasNoEnd} or rentable_until_ms >= ${endsMs})`;
}

/** The number of GPUs of an offering that a launch with the latest end `endsMs` may have: free ones, and those that can be lent to it. */
export function gpusWithin(endsMs: number | null): Sql {
  if (endsMs === null) return sql`gpu_free`;
  return sql`(gpu_free + (
    select count(*) from machine_gpus
    where machine_gpus.machine_id = offerings.machine_id and machine_gpus.gpu_type = offerings.gpu_type
      and ${isFree} and ${isLendable(endsMs)}))`;
}

/** The machines that have GPUs of the type to lend. There are few, because contracts set GPUs aside only in their lead time. */
export function lenders(gpuType: string, endsMs: number): Sql {
  return sql`select machine_id from machine_gpus
    where gpu_type = ${gpuType} and ${isFree} and ${isLendable(endsMs)}`;
}
