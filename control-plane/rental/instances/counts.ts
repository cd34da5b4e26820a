// Numbers about instances for the operator's metrics.
import { z } from 'zod';
import { int, text } from '../../base/db/columns.ts';
import { type Query, sql } from '../../base/db/db.ts';

const StatusRow = z.object({ status: text, count: int });
const DueRow = z.object({ due_ms: int.nullable() });

/** Instances that are not terminated. */
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
