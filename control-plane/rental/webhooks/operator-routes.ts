// The operator's routes for webhooks: endpoints whose deliveries fail, over all organisations, and a replay for one of them.
import { z } from 'zod';
import { pageSchema } from '../../../shared/api/page.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Db } from '../../base/db/db.ts';
import type { Cursors, PageStart } from '../../base/http/cursors.ts';
import { AnyFields, type Fields, Id, ListQuery, operator } from '../../base/http/operator.ts';
import { type Route, route } from '../../base/http/route.ts';
import { findWithNeed, type InNeedRow, pageInNeed } from './endpoint-store.ts';
import type { Webhooks } from './webhooks.ts';

const BASE = '/admin/webhook-endpoints';
/** A delivery that is due for longer is overdue. The index `webhook_endpoints_in_need` has the same time. */
export const OVERDUE_MS = 60_000;

interface Deps {
  db: Db;
  clock: Clock;
  cursors: Cursors;
  webhooks: Pick<Webhooks, 'replay'>;
}

export function webhookOperatorRoutes(deps: Deps): Route[] {
  return [listRoute(deps), replayRoute(deps)];
}

function listRoute({ db, clock, cursors }: Deps): Route {
  return route({
    ...operator,
    method: 'GET',
    path: BASE,
    operationId: 'adminListWebhookEndpoints',
    summary: 'List webhook endpoints with deliveries that were given up or are overdue, the newest need first',
    query: ListQuery,
    responses: { 200: { description: 'A page', schema: pageSchema(AnyFields) } },
    errors: [],
    handler: async ({ query }) => {
      const nowMs = clock.now();
      const rows = (start: PageStart): Promise<InNeedRow[]> => pageInNeed(db.read, nowMs, start);
      const body = await cursors.page('admin/webhook-endpoints', query, rows, {
        at: ({ id, in_need_ms: sinceMs }) => ({ createdMs: sinceMs ?? nowMs, id }),
        show: (row) => fieldsOf(row, nowMs),
      });
      return { status: 200, body };
    },
  });
}

function replayRoute({ db, clock, webhooks }: Deps): Route {
  return route({
    ...operator,
    method: 'POST',
    path: `${BASE}/{id}/replay`,
    operationId: 'adminReplayWebhookEndpoint',
    summary: 'Repeat all deliveries of an endpoint that were given up, for events since a time',
    params: Id,
    body: z.strictObject({ since: z.iso.datetime({ offset: true }), reason: z.string().trim().min(1).max(1_000) }),
    responses: { 200: { description: 'The endpoint', schema: AnyFields } },
    errors: ['not_found'],
    handler: async ({ params: { id }, body: { since } }) => {
      const row = await db.tx('webhooks.admin_replay', async (tx) => {
        await tx.lock('webhook_endpoint', id);
        await webhooks.replay(tx, id, Date.parse(since));
        return (await findWithNeed(tx, id)) ?? fail('not_found', `There is no webhook endpoint ${id}.`);
      });
      return { status: 200, body: fieldsOf(row, clock.now()) };
    },
  });
}

function fieldsOf(row: InNeedRow, nowMs: number): Fields {
  const { id, org_id: orgId, url, status, due_ms: dueMs, failing_since_ms: failingMs } = row;
  const isOverdue = dueMs !== null && dueMs <= nowMs - OVERDUE_MS && status !== 'disabled';
  return {
    endpoint_id: id,
    org_id: orgId,
    url,
    status,
    dead: row.dead,
    overdue_since: isOverdue ? isoTime(dueMs) : null,
    failing_since: failingMs === null ? null : isoTime(failingMs),
    status_reason: row.status_reason,
    created_at: isoTime(row.created_ms),
  };
}
