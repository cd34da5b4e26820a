// What operators see of instances at a glance: how many there are, the GPUs that are rented, the recent launches, and the rows that
// are due.
import { z } from 'zod';
import { flag, int, text, ucents } from '../../base/db/columns.ts';
import { type Query, sql } from '../../base/db/db.ts';
import { countDue, type DueRows } from '../../base/http/overview.ts';

export const DUE_INSTANCES: DueRows = {
  kind: 'instances',
  done: { driver: 'instances' },
  count: (query, nowMs) => countDue(query, sql`select due_ms from instances where due_ms <= ${nowMs}`),
};

const RentedRow = z.object({ gpus: int, ucents_per_hour: ucents });

/** The GPUs of instances that run or are unreachable, and what those that run cost in an hour. */
export async function rentedNow(query: Query): Promise<z.infer<typeof RentedRow>> {
  const row = await query.one(
    RentedRow,
    sql`select cast(coalesce(sum(gpu_count), 0) as bigint) as gpus,
          cast(coalesce(sum(case when status = 'running' then price_ucents_per_hour else 0 end), 0) as bigint) as ucents_per_hour
        from instances where status in ('running', 'unreachable')`,
  );
  return row ?? { gpus: 0, ucents_per_hour: 0n };
}

/** No overview reads more launches than this. */
const LAUNCHES_READ_MAX = 2_000;
const LaunchRow = z.object({ created_ms: int, ready_ms: int.nullable(), is_on_its_way: flag });

/** The newest launches since `sinceMs`: when each was requested, when it first ran, and whether it is still in progress. */
export function launchesSince(query: Query, sinceMs: number): Promise<z.infer<typeof LaunchRow>[]> {
  return query.all(
    LaunchRow,
    sql`select created_ms, ready_ms, case when status in ('allocating', 'starting') then 1 else 0 end as is_on_its_way from instances
        where created_ms > ${sinceMs} order by created_ms desc, id desc limit ${LAUNCHES_READ_MAX}`,
  );
}

const StatusRow = z.object({ status: text, count: int });
const DueRow = z.object({ due_ms: int.nullable() });

/** The number of instances in each status, without `terminated`. */
export function countByStatus(query: Query): Promise<z.infer<typeof StatusRow>[]> {
  return query.all(
    StatusRow,
    sql`select status, count(*) as count from instances where status <> 'terminated' group by status`,
  );
}

/** How long the oldest due row has waited for the engine; 0 if none is due. */
export async function dueForMs(query: Query, nowMs: number): Promise<number> {
  const row = await query.one(DueRow, sql`select min(due_ms) as due_ms from instances where due_ms is not null`);
  return Math.max(0, nowMs - (row?.due_ms ?? nowMs));
}
