// GET /v1/receipts and GET /v1/receipts/{id}: the charges of requests to models, exact to the microcent.
import { z } from 'zod';
import { pageParameters, pageSchema } from '../../../shared/api/page.ts';
import { Receipt, User } from '../../../shared/api/receipt.ts';
import { isoTime } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { dollarText } from '../../../shared/money.ts';
import type { Db } from '../../base/db/db.ts';
import type { Cursors } from '../../base/http/cursors.ts';
import { type Route, route } from '../../base/http/route.ts';
import { findReceipt, pageOfReceipts, type Receipt as ReceiptRow } from './store.ts';

const tag = 'Billing';
const scope = 'billing:read';

const ReceiptsQuery = z.strictObject({
  ...pageParameters,
  user: User.optional().describe('Only requests that named this `user`'),
});

export function receiptRoutes({ db, cursors }: { db: Db; cursors: Cursors }): Route[] {
  return [
    route({
      method: 'GET',
      path: '/v1/receipts',
      operationId: 'listReceipts',
      tag,
      summary: 'List the receipts of requests to models',
      description:
        'Receipts are listed newest first. GET /v1/receipts/totals sums them up; GET /v1/usage lists only the usage of instances.',
      scope,
      idempotency: 'none',
      query: ReceiptsQuery,
      responses: { 200: { description: 'A page of receipts', schema: pageSchema(Receipt) } },
      errors: [],
      handler: async ({ caller, query }) => {
        const { user } = query;
        const list = ['receipts', caller.orgId, ...(user === undefined ? [] : [user])].join('/');
        const from = cursors.read(list, query.cursor);
        const rows = await pageOfReceipts(db.read, { orgId: caller.orgId, user }, from, query.limit + 1);
        const body = cursors.pageOf(list, rows, query.limit, {
          at: ({ opened_ms: createdMs, id }) => ({ createdMs, id }),
          show: receiptView,
        });
        return { status: 200, body };
      },
    }),
    route({
      method: 'GET',
      path: '/v1/receipts/{id}',
      operationId: 'getReceipt',
      tag,
      summary: 'Read the receipt of a request to a model',
      scope,
      idempotency: 'none',
      params: z.strictObject({ id: z.string().describe('The id of the receipt: the X-Receipt-Id of the answer') }),
      responses: { 200: { description: 'The receipt', schema: Receipt } },
      errors: ['not_found'],
      handler: async ({ caller, params }) => {
        const row = await findReceipt(db.read, params.id);
        if (row?.org_id !== caller.orgId) return fail('not_found', `There is no receipt ${params.id}.`);
        return { status: 200, body: receiptView(row) };
      },
    }),
  ];
}

/** The receipt as customers see it, without the addresses of servers. */
function receiptView(row: ReceiptRow): Receipt {
  const { id, request_id, api_key_id, tier, state, ending } = row;
  const { prompt_tokens, completion_tokens, images, counted_by } = row;
  return {
    id,
    request_id,
    api_key_id,
    model: row.model_id,
    tier,
    user: row.end_user,
    metadata: row.metadata ?? {},
    state,
    ending,
    prompt_tokens,
    completion_tokens,
    images,
    counted_by,
    attempts: (row.attempts ?? []).map(({ server, outcome, ms }) => ({ server, outcome, ms })),
    cost: dollarText(row.charged_ucents),
    held: dollarText(row.held_ucents),
    created_at: isoTime(row.opened_ms),
    closed_at: row.closed_ms === null ? null : isoTime(row.closed_ms),
  };
}
