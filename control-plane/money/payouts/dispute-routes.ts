// The operator's routes for disputes: earnings of a rental wait until they are released or refunded.
import { z } from 'zod';
import { isoTime } from '../../../shared/clock.ts';
import { dollarText } from '../../../shared/money.ts';
import { pageSchema } from '../../../shared/api/page.ts';
import type { Db } from '../../base/db/db.ts';
import type { Cursors } from '../../base/http/cursors.ts';
import { type Route, route } from '../../base/http/route.ts';
import { type Dispute, type Disputes, pageOfDisputes } from './disputes.ts';
import { AnyFields, type Fields, Id, ListQuery, operator } from '../../base/http/operator.ts';

const BASE = '/admin/disputes';
const Words = z.string().min(1).max(1_000);
const NewDispute = z.strictObject({
  instance_id: z.string(),
  since: z.iso.datetime({ offset: true }).optional(),
  reason: Words,
});

interface Deps {
  db: Db;
  cursors: Cursors;
  disputes: Disputes;
}

export function disputeOperatorRoutes({ db, cursors, disputes }: Deps): Route[] {
  const shown = { description: 'The dispute', schema: AnyFields };
  return [
    route({
      ...operator,
      method: 'GET',
      path: BASE,
      operationId: 'adminListDisputes',
      summary: 'List disputes, newest first',
      query: ListQuery,
      responses: { 200: { description: 'A page', schema: pageSchema(AnyFields) } },
      errors: [],
      handler: async ({ query }) => ({
        status: 200,
        body: await cursors.page('admin/disputes', query, (start) => pageOfDisputes(db.read, start), {
          at: ({ opened_ms: createdMs, id }) => ({ createdMs, id }),
          show: disputeFields,
        }),
      }),
    }),
    route({
      ...operator,
      method: 'POST',
      path: BASE,
      operationId: 'adminOpenDispute',
      summary: 'Dispute the earnings of a rental, so that they are not paid out',
      body: NewDispute,
      responses: { 201: shown },
      errors: ['not_found', 'conflict'],
      handler: async ({ body }) => {
        const sinceMs = body.since === undefined ? null : Date.parse(body.since);
        const { instance_id: instanceId, reason } = body;
        return { status: 201, body: disputeFields(await disputes.open({ instanceId, sinceMs, reason })) };
      },
    }),
    route({
      ...operator,
      method: 'POST',
      path: `${BASE}/{id}/resolve`,
      operationId: 'adminResolveDispute',
      summary: 'Release the disputed amount to the supplier, or refund it to the customer',
      params: Id,
      body: z.strictObject({ refund: z.boolean(), note: Words }),
      responses: { 200: shown },
      errors: ['not_found', 'conflict'],
      handler: async ({ params, body }) => ({
        status: 200,
        body: disputeFields(await disputes.resolve(params.id, body)),
      }),
    }),
  ];
}

function disputeFields(row: Dispute): Fields {
  return {
    dispute_id: row.id,
    instance_id: row.instance_id,
    state: row.state,
    since: row.since_ms === 0 ? null : isoTime(row.since_ms),
    reason: row.reason,
    refunded: dollarText(row.refunded_ucents),
    note: row.note,
    opened_at: isoTime(row.opened_ms),
    resolved_at: row.resolved_ms === null ? null : isoTime(row.resolved_ms),
  };
}
