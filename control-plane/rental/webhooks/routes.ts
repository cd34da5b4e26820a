// The routes for webhook endpoints (specification 4.7; the descriptions say what it leaves open).
import { z } from 'zod';
import { PageQuery, pageSchema } from '../../../shared/api/page.ts';
import {
  ChangeWebhookEndpoint,
  CreateWebhookEndpoint,
  NewWebhookEndpoint,
  WebhookEndpoint,
  WebhookEvent,
} from '../../../shared/api/webhook.ts';
import { type Route, route } from '../../base/http/route.ts';
import { deliveryRoutes, type WebhookRouteDeps } from './delivery-routes.ts';
import { byCreation, type PageStart } from '../../base/http/cursors.ts';

const tag = 'Webhooks';

/** Names an endpoint in the path. */
const EndpointParams = z.strictObject({ id: z.string().describe('The id of the endpoint') });

export function webhookRoutes(deps: WebhookRouteDeps): Route[] {
  return [
    createRoute(deps),
    listRoute(deps),
    getRoute(deps),
    changeRoute(deps),
    rotateRoute(deps),
    deleteRoute(deps),
    ...deliveryRoutes(deps),
  ];
}

const HOW_TO_RECEIVE = `From its creation on, an endpoint gets the events of the instances of the organisation. It gets only the event types that it
names:

- \`instance.creating\`: a launch was accepted and is being placed.
- \`instance.running\`: the instance has booted, SSH works, and charging begins. This event comes once for each instance. It does not come again after an outage.
- \`instance.terminated\`: the instance was ended: by you, by its runtime limit, because the balance was used up, or by the supplier.
- \`instance.failed\`: the instance could not be provided, or it failed permanently. \`status_reason\` says why.

Each event is posted as JSON (the schema \`WebhookEvent\`) with these headers:

- \`Svc-Event-Id\`: the id of the event, the same at every attempt. An event can come twice, so ignore events whose id you have already seen.
- \`Svc-Signature: t=<unix seconds>,v1=<hex>\`: lower-case HMAC-SHA256 over \`<t>.<raw body>\`. The key is the 64 characters of the secret themselves.

To verify an event, compute the HMAC over the body exactly as you received it. Compare it in constant time with every \`v1\` (there are two for a day
after a rotation). Refuse a \`t\` that is more than 300 seconds away from your clock. Answer 400 if anything is wrong, otherwise any 2xx within
10 seconds. Only the first 1 KiB of the answer is read.

A test vector: secret \`${'0123456789abcdef'.repeat(4)}\`, body \`{"id":"evt_1"}\`, t \`1767225600\` give
\`v1=4c19823ff36fbe91381643fe7bccab85e74bc5fcc5e61a4a99b7b001b1ae6faa\`.

After any other answer, also a redirect, the event is sent again after 30 seconds, 5 minutes, 30 minutes and 2 hours. After the fifth attempt the
delivery is given up. A \`Retry-After\` with 429 or 503 makes the wait before the next attempt longer, at most as long as the wait of the next step.
After 20 failures in a row, or a 410, an endpoint is \`degraded\`: it gets one attempt every 5 minutes until one succeeds, and each delivery still
gets its five attempts within 24 hours. An endpoint stays enabled until you disable it. The first attempts of the events of one instance are made
in order. After a failure, a later event can arrive before an earlier one, so keep the greatest \`data.instance.version\`.`;

function createRoute({ db, webhooks }: WebhookRouteDeps): Route {
  return route({
    method: 'POST',
    path: '/v1/webhook-endpoints',
    operationId: 'createWebhookEndpoint',
    tag,
    summary: 'Create a webhook endpoint',
    description: HOW_TO_RECEIVE,
    scope: 'webhooks:write',
    idempotency: 'required',
    secretReply: true,
    body: CreateWebhookEndpoint,
    responses: { 201: { description: 'The endpoint with its secret, shown once', schema: NewWebhookEndpoint } },
    errors: ['conflict'],
    callback: {
      name: 'event',
      url: '{$request.body#/url}',
      description: 'An event of an instance',
      headers: {
        'Svc-Event-Id': 'Id of the event, the same at every attempt',
        'Svc-Signature': '`t=<unix seconds>,v1=<hex>`, with a second `v1` for a day after a rotation of the secret',
      },
      schema: WebhookEvent,
      answer: { status: '2XX', description: 'Any 2xx status within 10 seconds' },
    },
    handler: ({ caller, body, settle }) =>
      db.tx('webhooks.create', async (tx) => {
        await tx.lock('org', caller.orgId);
        const reply = { status: 201, body: await webhooks.create(tx, caller.orgId, body) };
        await settle(tx, reply);
        return reply;
      }),
  });
}

function listRoute({ db, cursors, webhooks }: WebhookRouteDeps): Route {
  return route({
    method: 'GET',
    path: '/v1/webhook-endpoints',
    operationId: 'listWebhookEndpoints',
    tag,
    summary: 'List the webhook endpoints, newest first',
    scope: 'webhooks:read',
    idempotency: 'none',
    query: PageQuery,
    responses: { 200: { description: 'A page of endpoints', schema: pageSchema(WebhookEndpoint) } },
    errors: [],
    handler: async ({ caller, query }) => {
      const name = `webhook-endpoints/${caller.orgId}`;
      const rows = (start: PageStart) => webhooks.page(db.read, caller.orgId, start);
      return { status: 200, body: await cursors.page(name, query, rows, { at: byCreation, show: webhooks.view }) };
    },
  });
}

function getRoute({ db, webhooks }: WebhookRouteDeps): Route {
  return route({
    method: 'GET',
    path: '/v1/webhook-endpoints/{id}',
    operationId: 'getWebhookEndpoint',
    tag,
    summary: 'Show a webhook endpoint and its health',
    scope: 'webhooks:read',
    idempotency: 'none',
    params: EndpointParams,
    responses: { 200: { description: 'The endpoint, without its secret', schema: WebhookEndpoint } },
    errors: ['not_found'],
    handler: async ({ caller, params }) => ({
      status: 200,
      body: await webhooks.get(db.read, caller.orgId, params.id),
    }),
  });
}

function changeRoute({ db, webhooks }: WebhookRouteDeps): Route {
  return route({
    method: 'PATCH',
    path: '/v1/webhook-endpoints/{id}',
    operationId: 'changeWebhookEndpoint',
    tag,
    summary: 'Change, disable, enable or replay a webhook endpoint',
    description:
      'Fields that are left out do not change. Planned deliveries go to the new URL. New event types count from the next event on.',
    scope: 'webhooks:write',
    idempotency: 'optional',
    params: EndpointParams,
    body: ChangeWebhookEndpoint,
    responses: { 200: { description: 'The endpoint as it is now', schema: WebhookEndpoint } },
    errors: ['not_found'],
    handler: async ({ caller, params, body, settle }) => {
      await webhooks.get(db.read, caller.orgId, params.id);
      return db.tx('webhooks.change', async (tx) => {
        await tx.lock('webhook_endpoint', params.id);
        const reply = { status: 200, body: await webhooks.change(tx, caller.orgId, params.id, body) };
        await settle(tx, reply);
        return reply;
      });
    },
  });
}

function rotateRoute({ db, webhooks }: WebhookRouteDeps): Route {
  return route({
    method: 'POST',
    path: '/v1/webhook-endpoints/{id}/rotate-secret',
    operationId: 'rotateWebhookSecret',
    tag,
    summary: 'Make a new secret',
    description:
      'For 24 hours each delivery carries two signatures. The first is made with the new secret, the second with the previous secret.',
    scope: 'webhooks:write',
    idempotency: 'optional',
    secretReply: true,
    params: EndpointParams,
    responses: { 200: { description: 'The endpoint with its new secret, shown once', schema: NewWebhookEndpoint } },
    errors: ['not_found'],
    handler: async ({ caller, params, settle }) => {
      await webhooks.get(db.read, caller.orgId, params.id);
      return db.tx('webhooks.rotate', async (tx) => {
        await tx.lock('webhook_endpoint', params.id);
        const reply = { status: 200, body: await webhooks.rotateSecret(tx, caller.orgId, params.id) };
        await settle(tx, reply);
        return reply;
      });
    },
  });
}

function deleteRoute({ db, webhooks }: WebhookRouteDeps): Route {
  return route({
    method: 'DELETE',
    path: '/v1/webhook-endpoints/{id}',
    operationId: 'deleteWebhookEndpoint',
    tag,
    summary: 'Delete a webhook endpoint',
    description:
      'No more events are sent to the endpoint, and its history is removed. An attempt in progress may still arrive.',
    scope: 'webhooks:write',
    idempotency: 'none',
    params: EndpointParams,
    responses: { 204: { description: 'It is deleted' } },
    errors: ['not_found'],
    handler: async ({ caller, params }) => {
      await webhooks.get(db.read, caller.orgId, params.id);
      await db.tx('webhooks.delete', async (tx) => {
        await tx.lock('webhook_endpoint', params.id);
        await webhooks.remove(tx, caller.orgId, params.id);
      });
      return { status: 204 };
    },
  });
}
