// The operator's routes for payouts. The operator has the keys and sends the money; this service keeps the books.
import { z } from 'zod';
import { fail } from '../../../shared/errors.ts';
import { pageSchema } from '../../../shared/api/page.ts';
import { dollarText } from '../../../shared/money.ts';
import type { Db } from '../../base/db/db.ts';
import { byCreation, type Cursors, type PageStart, type PageView } from '../../base/http/cursors.ts';
import { AnyFields, Cents, type Fields, Id, listParameters, operator } from '../../base/http/operator.ts';
import { type Route, route } from '../../base/http/route.ts';
import { explainedPage, type ExplainedPayout, payoutView } from './payout-view.ts';
import type { Payouts } from './payouts.ts';
import type { PayingDeps } from './making.ts';
import type { PayoutRow } from './store.ts';

export interface PayoutOperatorDeps extends Pick<PayingDeps, 'supplierStatus'> {
  db: Db;
  cursors: Cursors;
  payouts: Payouts;
}

const BASE = '/admin/payouts';
const Reference = z.string().min(1).max(255);
const shown = { description: 'The payout', schema: AnyFields };

export function payoutOperatorRoutes(deps: PayoutOperatorDeps): Route[] {
  return [listRoute(deps), exportRoute(deps), sentRoute(deps), failedRoute(deps), createRoute(deps)];
}

function listRoute({ db, cursors, payouts }: PayoutOperatorDeps): Route {
  return route({
    ...operator,
    method: 'GET',
    path: BASE,
    operationId: 'adminListPayouts',
    summary: 'List payouts, newest first',
    query: z.strictObject({
      ...listParameters,
      supplier_id: z.string().optional(),
      state: z.enum(['due', 'in_flight', 'paid', 'failed']).optional(),
    }),
    responses: { 200: { description: 'A page', schema: pageSchema(AnyFields) } },
    errors: [],
    handler: async ({ query }) => {
      const { supplier_id: supplierId, state } = query;
      const list = `admin/payouts/${supplierId ?? ''}/${state ?? ''}`;
      const rows = (start: PageStart) => explainedPage(db.read, { supplierId, state, payouts }, start);
      const view: PageView<ExplainedPayout, Fields> = {
        at: ({ row }) => byCreation(row),
        show: ({ row, waitsBecause }) => payoutFields(row, waitsBecause),
      };
      return { status: 200, body: await cursors.page(list, query, rows, view) };
    },
  });
}

function exportRoute({ payouts }: PayoutOperatorDeps): Route {
  return route({
    ...operator,
    method: 'POST',
    path: `${BASE}/export`,
    operationId: 'adminExportPayouts',
    summary: 'Move the due payouts to in_flight and list them for sending. The same batch again gives the same payouts',
    body: z.strictObject({ batch: z.string().min(1).max(64) }),
    responses: { 200: { description: 'The payouts of the batch that are in flight', schema: pageSchema(AnyFields) } },
    errors: ['conflict'],
    handler: async ({ body: { batch } }) => {
      const rows = await payouts.exportBatch(batch);
      return { status: 200, body: { data: rows.map(paymentFields), next_cursor: null } };
    },
  });
}

function sentRoute({ payouts }: PayoutOperatorDeps): Route {
  return route({
    ...operator,
    method: 'POST',
    path: `${BASE}/{id}/sent`,
    operationId: 'adminPayoutSent',
    summary: 'Record the transaction that sent a payout. The same request again has no effect',
    params: Id,
    body: z.strictObject({ reference: Reference }),
    responses: { 200: shown },
    errors: ['not_found', 'conflict'],
    handler: async ({ params, body }) => ({
      status: 200,
      body: payoutFields(await payouts.sent(params.id, body.reference)),
    }),
  });
}

function failedRoute({ payouts }: PayoutOperatorDeps): Route {
  return route({
    ...operator,
    method: 'POST',
    path: `${BASE}/{id}/failed`,
    operationId: 'adminPayoutFailed',
    summary: 'Record that a payout was not sent and will not be sent. The money is then owed again',
    params: Id,
    body: z.strictObject({ reason: z.string().min(1).max(1_000) }),
    responses: { 200: shown },
    errors: ['not_found', 'conflict'],
    handler: async ({ params, body }) => ({
      status: 200,
      body: payoutFields(await payouts.failed(params.id, body.reason)),
    }),
  });
}

function createRoute({ db, payouts, supplierStatus }: PayoutOperatorDeps): Route {
  return route({
    ...operator,
    method: 'POST',
    path: '/admin/suppliers/{id}/payouts',
    operationId: 'adminCreatePayout',
    summary: 'Record that a supplier was paid in another way. A second payout with the same reference has no effect',
    params: Id,
    body: z.strictObject({ cents: Cents.optional(), reference: Reference }),
    responses: { 201: { description: 'The payout, and what is owed now', schema: AnyFields } },
    errors: ['not_found', 'conflict'],
    handler: async ({ params: { id }, body: { cents = null, reference } }) => {
      if ((await supplierStatus(db.read, id)) === undefined) fail('not_found', `There is no supplier ${id}.`);
      const payout = await payouts.pay({ supplierId: id, cents, reference });
      const { accruedCents, unpaidCents, payableCents } = await payouts.standing(db.read, id);
      const owed = {
        accrued_cents: Number(accruedCents),
        unpaid_cents: Number(unpaidCents),
        payable_cents: Number(payableCents),
      };
      return { status: 201, body: { ...payoutFields(payout), ...owed } };
    },
  });
}

/** All fields that the sender of the money needs. Payouts are made in USDC, and one USDC counts as one dollar. */
function paymentFields(row: PayoutRow): Fields {
  return {
    payout_id: row.id,
    supplier_id: row.supplier_id,
    chain: row.chain,
    asset: 'usdc',
    address: row.address,
    amount: dollarText(row.amount_ucents),
  };
}

/** Flat fields of a payout, which the command line prints. */
function payoutFields(row: PayoutRow, waitsBecause: string | null = null): Fields {
  const { destination, ...view } = payoutView(row, waitsBecause);
  const { chain, address } = destination ?? { chain: null, address: null };
  return { supplier_id: row.supplier_id, ...view, chain, address, batch: row.batch };
}
