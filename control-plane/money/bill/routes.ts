// GET /v1/bill, the bill of one instance and the costs of many for customers, and the statement of a month for operators.
import { Readable } from 'node:stream';
import { z } from 'zod';
import { Bill, BillQuery } from '../../../shared/api/bill.ts';
import { InstanceBill, InstanceCost, InstanceCostQuery } from '../../../shared/api/instance-bill.ts';
import { pageSchema } from '../../../shared/api/page.ts';
import type { Clock } from '../../../shared/clock.ts';
import { csvPieces } from '../../../shared/csv.ts';
import { BILLS_PER_ORG_MAX } from '../../../shared/limits.ts';
import type { Cursors, PageStart } from '../../base/http/cursors.ts';
import { Id, operator } from '../../base/http/operator.ts';
import { type Reply, type Route, route } from '../../base/http/route.ts';
import { openTurns } from '../../base/http/turns.ts';
import { billRows, type BillDeps, billOf } from './bill.ts';
import { type InstanceBillDeps, instanceBillOf } from './instance-bill.ts';
import { instanceCosts, type RentalsOf } from './instance-costs.ts';

export interface BillRouteDeps extends BillDeps, InstanceBillDeps {
  /** @throws ServiceError `not_found` */
  assertOrg(orgId: string): Promise<void>;
  cursors: Cursors;
  rentalsOf: RentalsOf;
}

const responses = { 200: { description: 'The bill', schema: Bill, streamType: 'text/csv' } };

export function billRoute(deps: BillRouteDeps): Route {
  const inTurn = openTurns(deps.clock, BILLS_PER_ORG_MAX);
  return route({
    method: 'GET',
    path: '/v1/bill',
    operationId: 'getBill',
    tag: 'Billing',
    summary: 'The bill of a month',
    description:
      'Rentals, inference by model, videos, fine-tuning, credits for outages, refunds, adjustments and deposits in one statement. The opening balance plus all amounts is exactly the closing balance, and the next bill opens with it. A line belongs to the month in which it was posted, so a past bill never changes. The last hour of a rental in a month may be on the next bill. With `format=csv` the answer is text/csv: `opening_balance`, the lines, `closing_balance`.',
    scope: 'billing:read',
    idempotency: 'none',
    query: BillQuery,
    responses,
    errors: [],
    handler: async ({ caller: { orgId }, query: { month, format } }) => {
      const bill = await inTurn(orgId, () => billOf(orgId, month, deps));
      return replyOf(bill, format, deps.clock);
    },
  });
}

export function instanceBillRoute(deps: BillRouteDeps): Route {
  return route({
    method: 'GET',
    path: '/v1/instances/{id}/bill',
    operationId: 'getInstanceBill',
    tag: 'Billing',
    summary: 'The bill of one instance',
    description:
      'The bill has each segment of charged time with its price, each time that was not charged with its evidence, the refunds, and the sums. The amount of a segment is its price for that time, rounded down to a microcent. All amounts are exact. `totals.posted` is the amount in the ledger.',
    scope: 'billing:read',
    idempotency: 'none',
    params: z.strictObject({ id: z.string().describe('The instance id') }),
    responses: { 200: { description: 'The bill', schema: InstanceBill } },
    errors: ['not_found'],
    handler: async ({ caller, params }) => ({ status: 200, body: await instanceBillOf(caller.orgId, params.id, deps) }),
  });
}

export function instanceCostsRoute(deps: BillRouteDeps): Route {
  return route({
    method: 'GET',
    path: '/v1/instance-costs',
    operationId: 'listInstanceCosts',
    tag: 'Billing',
    summary: 'List what instances have cost, and when they were charged in the last 24 hours',
    description:
      'The order is that of `GET /v1/instances`, newest first. The cost of an instance is exact and equals the `totals.cost` of its bill at the same moment. `last_24_hours` shows when the instance started, when it was charged, and when it was not charged.',
    scope: 'billing:read',
    idempotency: 'none',
    query: InstanceCostQuery,
    responses: { 200: { description: 'A page of costs', schema: pageSchema(InstanceCost) } },
    errors: [],
    handler: async ({ caller, query }) => {
      const { instance_ids: ids } = query;
      const list = `instance-costs/${caller.orgId}/${ids?.join() ?? ''}`;
      const rows = (start: PageStart) => instanceCosts(caller.orgId, { ...start, ids }, deps);
      const body = await deps.cursors.page(list, query, rows, {
        at: ({ rental: { createdMs, id } }) => ({ createdMs, id }),
        show: ({ cost }) => cost,
      });
      return { status: 200, body };
    },
  });
}

export function statementRoute(deps: BillRouteDeps): Route {
  return route({
    ...operator,
    method: 'GET',
    path: '/admin/balances/{id}/statement',
    operationId: 'adminShowStatement',
    summary: 'The bill of an organisation for a month',
    params: Id,
    query: BillQuery,
    responses,
    errors: ['not_found'],
    handler: async ({ params, query }) => {
      await deps.assertOrg(params.id);
      return replyOf(await billOf(params.id, query.month, deps), query.format, deps.clock);
    },
  });
}

function replyOf(bill: Bill, format: z.infer<typeof BillQuery>['format'], clock: Clock): Reply {
  if (format === 'json') return { status: 200, body: bill };
  const headers = {
    'content-type': 'text/csv; charset=utf-8',
    'content-disposition': `attachment; filename="bill-${bill.month}.csv"`,
  };
  return { status: 200, headers, stream: Readable.from(csvPieces(billRows(bill), clock)) };
}
