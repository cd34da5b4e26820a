// Limits the GPU time that launches of an organisation hold and nobody pays for. Paid GPU time raises the budget.
//
// A launch that never ran counts with the time until its end. A rental that has ended counts with the time beyond five minutes that it took to start,
// less the time that it was charged for. So a pull of some minutes never counts, and a slow one costs nothing to those who then use the GPUs for as
// long. But a second of running does not make it free.
import { fail } from '../../../shared/errors.ts';
import { raw, type Sql, sql, type Tx } from '../../base/db/db.ts';
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
  /** What launches have held without paying in the window, in GPU milliseconds (`launchesOf`). */
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
  const jobs = jobsMs > 0 ? ', and fine-tuning jobs that ended before they had paid for half of their time' : '';
  fail('rate_limit_exceeded', {
    detail: `Launches of this organisation that did not run, or that started slowly and then ran for a shorter time${jobs}, held GPUs for ${hours(heldMs)} GPU hours in the last 24 hours, this one included; ${hours(budgetMs)} are free of charge. Wait until the launches in progress run, correct the image that fails, keep an instance for several jobs, or try again later. GPU time that you pay for adds to it.`,
    retryAfterSeconds: RETRY_SECONDS,
  });
}

/**
 * A select of one row: `open_launches`, the launches that are accepted and do not run yet, and `unpaid_gpu_ms`, GPUs times the time that launches
 * held them and nobody paid for. Rentals that still run do not count, because they are charged. Launches under a contract do not count either,
 * because the contract pays for its GPUs anyway.
 *
 * The time is the sum of three kinds, each with an index of its own. An organisation whose launches succeed within minutes has few rows of them.
 */
export function launchesOf(orgId: string, nowMs: number): Sql {
  const sinceMs = nowMs - UNPAID_WINDOW_MS;
  const fromMs = larger(sql`created_ms`, sql`${sinceMs}`);
  const openMs = larger(sql`${nowMs} - ${fromMs}`, LAUNCH_MS);
  const givenUpMs = larger(sql`launch_ended_ms - ${fromMs}`, raw(String(GIVEN_UP_MS_MIN)));
  const slowMs = larger(sql`ready_ms - ${fromMs} - ${LAUNCH_MS} - ${chargedMs(sql`instances.id`)}`, sql`0`);
  // Its first condition must have the text of the condition of the index `instances_slow`.
  const slow = sql`ready_ms - created_ms > ${LAUNCH_MS} and ready_ms > ${sinceMs} and status not in ('running', 'unreachable')`;
  const ended = (ms: Sql, kind: Sql): Sql =>
    sql`(select coalesce(${gpuMs(ms)}, 0) from instances where org_id = ${orgId} and ${kind})`;
  return sql`
    select count(*) as open_launches, cast(coalesce(${gpuMs(openMs)}, 0)
        + ${ended(givenUpMs, sql`launch_ended_ms > ${sinceMs}`)} + ${ended(slowMs, slow)} as bigint) as unpaid_gpu_ms
    from instances where org_id = ${orgId} and status in ('allocating', 'starting')`;
}

const LAUNCH_MS = raw(String(LAUNCH_MS_MIN));

/** An aggregate: GPUs times `ms`, of launches that have a host and no contract. */
function gpuMs(ms: Sql): Sql {
  return sql`sum(case when machine_id is not null and tier <> 'reserved' then gpu_count * ${ms} end)`;
}

function larger(a: Sql, b: Sql): Sql {
  return sql`(case when ${a} > ${b} then ${a} else ${b} end)`;
}
