// Limits the GPU time that launches of an organisation hold and nobody pays for. Paid GPU time raises the budget.
//
// A launch that never ran counts with the time until its end. A rental that has ended counts with the time beyond five minutes that it took to start,
// less the time that it was charged for. So a pull of some minutes never counts, and a slow one costs nothing to those who then use the GPUs for as
// long. But a second of running does not make it free.
import { fail } from '../../../shared/errors.ts';
import { type Sql, sql, type Tx } from '../../base/db/db.ts';
import { chargedGpuMs, chargedMs } from '../../money/metering/store.ts';

export const UNPAID_WINDOW_MS = 24 * 3_600_000;
/** A launch in progress counts for at least this long, so that many at once do not all pass. A rental that ran may take this long to start. */
const LAUNCH_MS_MIN = 300_000;
/** A launch that was given up counts for at least this long, because its host holds the GPUs until it has removed the container. */
export const GIVEN_UP_MS_MIN = 30_000;
/** For every PAID_SHARE GPU hours that an organisation has paid in the window, it may hold one more GPU hour without paying. */
const PAID_SHARE = 4;
const RETRY_SECONDS = 600;
const HOUR_MS = 3_600_000;

interface UnpaidHolds {
  gpuCount: number;
  nowMs: number;
  gpuHoursMax: number;
  /** What launches have held without paying in the window, in GPU milliseconds (`unpaidGpuMs`). */
  launchesMs: number;
  /** The same of jobs, if this is about a job. */
  jobsMs?: number;
}

/**
 * Refuses a launch or a job of `gpuCount` GPUs if what nobody has paid for has used the budget of the last 24 hours.
 * @throws ServiceError `rate_limit_exceeded`
 */
export async function refuseUnpaidHolds(
  tx: Tx,
  orgId: string,
  { gpuCount, nowMs, gpuHoursMax, launchesMs, jobsMs = 0 }: UnpaidHolds,
): Promise<void> {
  const heldMs = launchesMs + jobsMs + gpuCount * LAUNCH_MS_MIN;
  if (heldMs <= gpuHoursMax * HOUR_MS) return;
  const paidMs = await chargedGpuMs(tx, orgId, { sinceMs: nowMs - UNPAID_WINDOW_MS, nowMs });
  const budgetMs = gpuHoursMax * HOUR_MS + Math.floor(paidMs / PAID_SHARE);
  if (heldMs <= budgetMs) return;
  const hours = (ms: number): string => (ms / HOUR_MS).toFixed(1);
  const jobs = jobsMs > 0 ? ', and fine-tuning jobs that ended without a charge' : '';
  fail('rate_limit_exceeded', {
    detail: `Launches of this organisation that did not run, or that started slowly and then ran for a shorter time${jobs}, held GPUs for ${hours(heldMs)} GPU hours in the last 24 hours, this one included; ${hours(budgetMs)} are free of charge. Wait until the launches in progress run, correct the image that fails, keep an instance for several jobs, or try again later. GPU time that you pay for adds to it.`,
    retryAfterSeconds: RETRY_SECONDS,
  });
}

/**
 * An expression: GPUs times the time that launches held them and nobody paid for, in milliseconds. Rentals that still run do not count, because
 * they are charged. Launches under a contract do not count either, because the contract pays for its GPUs anyway.
 */
export function unpaidGpuMs(orgId: string, nowMs: number): Sql {
  const sinceMs = nowMs - UNPAID_WINDOW_MS;
  const isOpen = sql`status in ('allocating', 'starting')`;
  const fromMs = sql`case when created_ms > ${sinceMs} then created_ms else ${sinceMs} end`;
  const elapsedMs = sql`(case when ${isOpen} then ${nowMs} else coalesce(launch_ended_ms, 0) end) - (${fromMs})`;
  const endedInTime = sql`launch_ended_ms > ${sinceMs}`;
  const leastMs = sql`case when ${isOpen} then ${LAUNCH_MS_MIN} when ${endedInTime} then ${GIVEN_UP_MS_MIN} else 0 end`;
  const slowMs = sql`ready_ms - (${fromMs}) - ${LAUNCH_MS_MIN}`;
  const unpaidMs = sql`${slowMs} - ${chargedMs(sql`instances.id`)}`;
  // Few rentals start slowly, so the charged time of few is read.
  const heldMs = sql`case when ready_ms is null then ${larger(elapsedMs, leastMs)}
    when status in ('running', 'unreachable') or ready_ms <= ${sinceMs} or ${slowMs} <= 0 then 0 else ${larger(unpaidMs, sql`0`)} end`;
  return sql`(select cast(coalesce(sum(gpu_count * (${heldMs})), 0) as bigint) from instances
    where org_id = ${orgId} and created_ms > ${sinceMs - UNPAID_WINDOW_MS} and machine_id is not null and tier <> 'reserved')`;
}

function larger(a: Sql, b: Sql): Sql {
  return sql`case when ${a} > ${b} then ${a} else ${b} end`;
}
