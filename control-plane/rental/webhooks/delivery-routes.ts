// The routes for an endpoint's delivery history, one delivery, a manual retry, and a test (specification 2.9 and 6.4).
import { z } from 'zod';
import { PageQuery, pageSchema } from '../../../shared/api/page.ts';
import { TestWebhookEndpoint, WebhookDelivery, WebhookDeliveryDetail } from '../../../shared/api/webhook.ts';
import type { Db } from '../../base/db/db.ts';
import { byCreation, type Cursors, type PageStart } from '../../base/http/cursors.ts';
import { type Route, route } from '../../base/http/route.ts';
import type { Webhooks } from './webhooks.ts';

export interface WebhookRouteDeps {
  db: Db;
  cursors: Cursors;
  webhooks: Webhooks;
}

const tag = 'Webhooks';

/** Names a delivery in the path. */
const DeliveryParams = z.strictObject({
  id: z.string().describe('The id of the endpoint'),
  delivery_id: z.string().describe('The id of the delivery'),
});

export function deliveryRoutes(deps: WebhookRouteDeps): Route[] {
  return [listRoute(deps), getRoute(deps), retryRoute(deps), testRoute(deps)];
}

function listRoute({ db, cursors, webhooks }: WebhookRouteDeps): Route {
  return route({
    method: 'GET',
    path: '/v1/webhook-endpoints/{id}/deliveries',
    operationId: 'listWebhookDeliveries',
    tag,
    summary: 'List what was sent to a webhook endpoint, newest first',
    description:
      'Each delivery has its last ten attempts, with the beginning of each answer. A delivery is kept for 30 days after it has ended.',
    scope: 'webhooks:read',
    idempotency: 'none',
    params: z.strictObject({ id: z.string().describe('The id of the endpoint') }),
    query: PageQuery,
    responses: { 200: { description: 'A page of deliveries', schema: pageSchema(WebhookDelivery) } },
    errors: ['not_found'],
    handler: async ({ caller, params, query }) => {
      const { id } = await webhooks.get(db.read, caller.orgId, params.id);
      const name = `webhook-deliveries/${id}`;
      const rows = async (start: PageStart) => {
        const found = await webhooks.deliveries(db.read, id, start);
        const views = new Map((await webhooks.showDeliveries(db.read, found)).map((view) => [view.id, view]));
        return found.map((row) => ({ row, view: views.get(row.id) }));
      };
      const body = await cursors.page(name, query, rows, {
        at: ({ row }) => byCreation(row),
        show: ({ view }) => view,
      });
      return { status: 200, body };
    },
  });
}

function getRoute({ db, webhooks }: WebhookRouteDeps): Route {
  return route({
    method: 'GET',
    path: '/v1/webhook-endpoints/{id}/deliveries/{delivery_id}',
    operationId: 'getWebhookDelivery',
    tag,
    summary: 'Show a delivery with what was sent and answered',
    description:
      'The answer has the body as it is sent, and the time, address, headers, answer, duration and error of each attempt. Signatures are hidden. A delivery is kept for 30 days after it has ended.',
    scope: 'webhooks:read',
    idempotency: 'none',
    params: DeliveryParams,
    responses: { 200: { description: 'The delivery', schema: WebhookDeliveryDetail } },
    errors: ['not_found'],
    handler: async ({ caller, params }) => {
      const ids = { endpointId: params.id, deliveryId: params.delivery_id };
      return { status: 200, body: await webhooks.delivery(db.read, caller.orgId, ids) };
    },
  });
}

function testRoute({ db, webhooks }: WebhookRouteDeps): Route {
  return route({
    method: 'POST',
    path: '/v1/webhook-endpoints/{id}/test',
    operationId: 'testWebhookEndpoint',
    tag,
    summary: 'Send a test event',
    description:
      'Posts an invented event with `"test": true` in its body. It uses the same queue, headers and signature as any other event. There is one attempt, which is made at once, even if the endpoint is degraded. The delivery shows the result. An organisation may send 60 test events an hour, to all its endpoints together.',
    scope: 'webhooks:write',
    idempotency: 'optional',
    params: z.strictObject({ id: z.string().describe('The id of the endpoint') }),
    body: TestWebhookEndpoint,
    responses: { 202: { description: 'The delivery of the test', schema: WebhookDelivery } },
    errors: ['not_found', 'conflict'],
    handler: async ({ caller, params, body, settle }) => {
      await webhooks.get(db.read, caller.orgId, params.id);
      return db.tx('webhooks.test', async (tx) => {
        await tx.lock('webhook_endpoint', params.id);
        const reply = { status: 202, body: await webhooks.test(tx, caller.orgId, params.id, body) };
        await settle(tx, reply);
        return reply;
      });
    },
  });
}

function retryRoute({ db, webhooks }: WebhookRouteDeps): Route {
  return route({
    method: 'POST',
    path: '/v1/webhook-endpoints/{id}/deliveries/{delivery_id}/retry',
    operationId: 'retryWebhookDelivery',
    tag,
    summary: 'Try a delivery again at once',
    description:
      'The attempt has the same event id and body. A delivery that waits keeps its schedule after this attempt. A delivery that was given up gets one attempt. If the endpoint is degraded, the attempt is made at once. If the endpoint is disabled, enable it first.',
    scope: 'webhooks:write',
    idempotency: 'optional',
    params: DeliveryParams,
    responses: { 202: { description: 'The delivery as it is now', schema: WebhookDelivery } },
    errors: ['not_found', 'conflict'],
    handler: async ({ caller, params, settle }) => {
      await webhooks.get(db.read, caller.orgId, params.id);
      return db.tx('webhooks.retry', async (tx) => {
        await tx.lock('webhook_endpoint', params.id);
        const ids = { endpointId: params.id, deliveryId: params.delivery_id };
        const reply = { status: 202, body: await webhooks.retry(tx, caller.orgId, ids) };
        await settle(tx, reply);
        return reply;
      });
    },
  });
}
