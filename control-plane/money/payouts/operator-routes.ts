// The operator's routes for disputes: earnings of a rental wait until they are released or refunded.
import { z } from 'zod';
import { isoTime } from '../../../shared/clock.ts';
import { dollarText } from '../../../shared/money.ts';
import { type Route, route } from '../../base/http/route.ts';
import type { Dispute, Disputes } from './disputes.ts';
import { AnyFields, type Fields, Id, listOf, operator } from '../../base/http/operator.ts';

const BASE = '/admin/disputes';
const Words = z.string().min(1).max(1_000);
const NewDispute = z.strictObject({
  instance_id: z.string(),
  since: z.iso.datetime({ offset: true }).optional(),
  reason: Words,
});

export function disputeOperatorRoutes(disputes: Disputes): Route[] {
  const shown = { description: 'The dispute', schema: AnyFields };
  return [
    route({
      ...operator,
      method: 'GET',
      path: BASE,
      operationId: 'adminListDisputes',
      summary: 'List disputes, newest first',
      responses: { 200: { description: 'The latest', schema: listOf(AnyFields) } },
      errors: [],
      handler: async () => ({ status: 200, body: { data: (await disputes.list()).map(disputeFields) } }),
    }),
    route({
      ...operator,
      method: 'POST',
      path: BASE,
      operationId: 'adminOpenDispute',
      summary: 'Keep what a rental earned from being paid out',
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
      summary: 'Release what was disputed to the supplier, or refund it to the customer',
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
