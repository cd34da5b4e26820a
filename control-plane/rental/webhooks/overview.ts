// What operators see of webhooks at a glance: endpoints that are due, those that have waited too long for us, and deliveries that were given up.
import { z } from 'zod';
import { countRow, int, text } from '../../base/db/columns.ts';
import { type Query, sql } from '../../base/db/db.ts';
import { countDue, type DueRows, type Waits } from '../../base/http/overview.ts';
import { isReady, READY_SINCE } from './endpoint-store.ts';
import { OVERDUE_MS } from './operator-routes.ts';

const GIVEN_UP_MS = 86_400_000;
/** More deliveries than this are not counted. */
const COUNTED_MAX = 1_000;

export const DUE_WEBHOOKS: DueRows = {
  kind: 'webhook_endpoints',
  done: { since: deliveriesSince },
  count: (query, nowMs) =>
    countDue(query, sql`select ${READY_SINCE} as due_ms from webhook_endpoints where ${isReady(nowMs)}`),
};

const OverdueRow = z.object({ id: text, org_id: text, ready_ms: int });
const DeadRow = z.object({ count: int, first_ms: int.nullable() });

export const waitingWebhooks: Waits = async (query, { nowMs, limit }) => {
  const overdue = await query.all(
    OverdueRow,
    sql`select id, org_id, ${READY_SINCE} as ready_ms from webhook_endpoints where ${isReady(nowMs - OVERDUE_MS)}
        order by ready_ms limit ${limit}`,
  );
  const dead = await query.one(
    DeadRow,
    sql`select count(*) as count, min(completed_ms) as first_ms from (
          select completed_ms from webhook_deliveries
          where status = 'dead_lettered' and is_test = 0 and completed_ms > ${nowMs - GIVEN_UP_MS}
          order by completed_ms limit ${COUNTED_MAX}) as dead`,
  );
  const command = 'svc-control-plane admin webhook list';
  const late = overdue.map(({ id, org_id: orgId, ready_ms: sinceMs }) => ({
    kind: 'webhook' as const,
    id,
    what: `Deliveries to the webhook endpoint ${id} of the organisation ${orgId} are overdue.`,
    sinceMs,
    command,
  }));
  if (dead === undefined || dead.first_ms === null) return late;
  const { count, first_ms: sinceMs } = dead;
  const what = `${count === COUNTED_MAX ? 'At least ' : ''}${count} webhook ${count === 1 ? 'delivery was' : 'deliveries were'} given up in the last 24 hours.`;
  return [...late, { kind: 'webhook', id: 'given up', what, sinceMs, command }];
};

/** Number of deliveries that were completed after `sinceMs`: delivered or given up. */
async function deliveriesSince(query: Query, sinceMs: number): Promise<number> {
  const row = await query.one(
    countRow,
    sql`select count(*) as count from webhook_deliveries where completed_ms > ${sinceMs} and completed_ms is not null`,
  );
  return row?.count ?? 0;
}
