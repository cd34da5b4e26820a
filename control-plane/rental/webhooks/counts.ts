// Numbers about deliveries for the operator's metrics.
import { z } from 'zod';
import { int } from '../../base/db/columns.ts';
import { type Query, sql } from '../../base/db/db.ts';

const WaitingRow = z.object({ count: int, next_ms: int.nullable() });
const DeadRow = z.object({ count: int });

export interface DeliveryCounts {
  waiting: number;
  /** How long the oldest due delivery has waited; 0 if none is due. */
  dueForMs: number;
  /** Deliveries that were given up since the given time. */
  dead: number;
}

export async function countDeliveries(query: Query, nowMs: number, sinceMs: number): Promise<DeliveryCounts> {
  const waiting = await query.one(
    WaitingRow,
    sql`select count(*) as count, min(next_attempt_ms) as next_ms from webhook_deliveries where next_attempt_ms is not null`,
  );
  const dead = await query.one(
    DeadRow,
    sql`select count(*) as count from webhook_deliveries where completed_ms > ${sinceMs} and status = 'dead_lettered'`,
  );
  const dueForMs = Math.max(0, nowMs - (waiting?.next_ms ?? nowMs));
  return { waiting: waiting?.count ?? 0, dueForMs, dead: dead?.count ?? 0 };
}
