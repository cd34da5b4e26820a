// The interface of this room: webhook endpoints of customers, the outbox that stores deliveries, and the courier that sends them.
import type {
  ChangeWebhookEndpoint,
  CreateWebhookEndpoint,
  NewWebhookEndpoint,
  TestWebhookEndpoint,
  WebhookDelivery,
  WebhookDeliveryDetail,
  WebhookEndpoint,
} from '../../../shared/api/webhook.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Db, Query, Tx } from '../../base/db/db.ts';
import type { EventRow } from '../../base/events/events.ts';
import type { PageStart } from '../../base/http/cursors.ts';
import type { Sealing } from '../../base/http/sealing.ts';
import { type Courier, type CourierDeps, openCourier } from './courier.ts';
import * as deliveries from './deliveries.ts';
import {
  type DeliveryRow,
  type Forgettable,
  pageOfDeliveries,
  forgetDeliveries,
  forgettable,
} from './delivery-store.ts';
import { type EndpointRow, markDeleted, pageOfEndpoints, deletedEndpoints, forgetEndpoint } from './endpoint-store.ts';
import * as endpoints from './endpoints.ts';
import { noteEvent } from './outbox.ts';
import { openSecrets } from './endpoints.ts';
import { sendTest } from './test-event.ts';
import { endpointView } from './view.ts';
import type { Clock } from '../../../shared/clock.ts';

/** Every function with an endpoint id throws `not_found` for an endpoint of another organisation. */
export interface Webhooks {
  create(tx: Tx, orgId: string, request: CreateWebhookEndpoint): Promise<NewWebhookEndpoint>;
  page(query: Query, orgId: string, start: PageStart): Promise<EndpointRow[]>;
  get(query: Query, orgId: string, id: string): Promise<WebhookEndpoint>;
  change(tx: Tx, orgId: string, id: string, request: ChangeWebhookEndpoint): Promise<WebhookEndpoint>;
  /** Begins a replay for an operator: of the deliveries that were made since `sinceMs` and given up. The caller has locked the endpoint. */
  replay(tx: Tx, id: string, sinceMs: number): Promise<void>;
  remove(tx: Tx, orgId: string, id: string): Promise<void>;
  /** The new secret is shown in this answer only. */
  rotateSecret(tx: Tx, orgId: string, id: string): Promise<NewWebhookEndpoint>;
  view(row: EndpointRow): WebhookEndpoint;
  deliveries(query: Query, endpointId: string, start: PageStart): Promise<DeliveryRow[]>;
  showDeliveries(query: Query, rows: readonly DeliveryRow[]): Promise<WebhookDelivery[]>;
  /** The delivery, with what was sent. @throws ServiceError `not_found` */
  delivery(
    query: Query,
    orgId: string,
    ids: { endpointId: string; deliveryId: string },
  ): Promise<WebhookDeliveryDetail>;
  /** Sends a made-up event. @throws ServiceError `conflict`, `validation_failed`, `rate_limit_exceeded` */
  test(tx: Tx, orgId: string, id: string, request: TestWebhookEndpoint): Promise<WebhookDelivery>;
  retry(tx: Tx, orgId: string, ids: { endpointId: string; deliveryId: string }): Promise<WebhookDelivery>;
  /** Called in the transaction of the event. */
  noteEvent(tx: Tx, event: EventRow): Promise<void>;
  courier: Courier;
  /** Resolves with the number of removed deliveries. */
  purge(signal: AbortSignal): Promise<number>;
}

interface Deps extends Omit<CourierDeps, 'secrets'> {
  ids: Ids;
  sealing: Sealing;
}

export function openWebhooks(options: Deps): Webhooks {
  const deps = { ...options, secrets: openSecrets(options) };
  const { clock } = deps;
  return {
    create: (tx, orgId, request) => endpoints.create(tx, orgId, request, deps),
    page: pageOfEndpoints,
    get: async (query, orgId, id) => endpointView(await endpoints.ownEndpoint(query, orgId, id), clock.now()),
    change: async (tx, orgId, id, request) =>
      endpoints.change(tx, await endpoints.ownEndpoint(tx, orgId, id), request, deps),
    replay: (tx, id, sinceMs) => deliveries.beginReplay(tx, id, sinceMs, deps),
    remove: async (tx, orgId, id) => markDeleted(tx, (await endpoints.ownEndpoint(tx, orgId, id)).id, clock.now()),
    rotateSecret: async (tx, orgId, id) => endpoints.rotateSecret(tx, await endpoints.ownEndpoint(tx, orgId, id), deps),
    view: (row) => endpointView(row, clock.now()),
    deliveries: pageOfDeliveries,
    showDeliveries: deliveries.show,
    delivery: async (query, orgId, { endpointId, deliveryId }) => {
      const { id } = await endpoints.ownEndpoint(query, orgId, endpointId);
      return deliveries.showOne(query, id, deliveryId);
    },
    test: async (tx, orgId, id, request) => sendTest(tx, await endpoints.ownEndpoint(tx, orgId, id), request, deps),
    retry: async (tx, orgId, { endpointId, deliveryId }) => {
      const { id } = await endpoints.ownEndpoint(tx, orgId, endpointId);
      return deliveries.retry(tx, id, deliveryId, clock.now());
    },
    noteEvent: (tx, event) => noteEvent(tx, event, deps),
    courier: openCourier(deps),
    purge: (signal) => purge(deps, signal),
  };
}

const HISTORY_MS = 30 * 24 * 3_600_000;
/** Number of deliveries that one transaction removes. It is small, because other writers wait for the transaction. */
const PIECE = 200;
/** Number of deleted endpoints that one query reads. */
const ENDPOINTS_PER_PIECE = 100;

/**
 * Removes the history of deleted endpoints, and deliveries that ended long ago. Ends early if the signal aborts. Resolves with the number of removed
 * deliveries.
 */
async function purge({ db, clock }: { db: Db; clock: Clock }, signal: AbortSignal): Promise<number> {
  let gone = 0;
  // An organisation can make and delete endpoints much faster than one piece for each run.
  for (let ids = await deletedEndpoints(db.read, ENDPOINTS_PER_PIECE); ids.length > 0;) {
    for (const endpointId of ids) {
      gone += await forgetAll(db, { endpointId }, signal);
      if (signal.aborted) return gone;
      await db.tx('webhooks.forget_endpoint', async (tx) => {
        await tx.lock('webhook_endpoint', endpointId);
        await forgetEndpoint(tx, endpointId);
      });
    }
    ids = await deletedEndpoints(db.read, ENDPOINTS_PER_PIECE);
  }
  return gone + (await forgetAll(db, { completedUntilMs: clock.now() - HISTORY_MS }, signal));
}

async function forgetAll(db: Db, which: Forgettable, signal: AbortSignal): Promise<number> {
  let gone = 0;
  while (!signal.aborted) {
    const rows = await forgettable(db.read, which, PIECE);
    if (rows.length === 0) break;
    await db.tx('webhooks.forget', async (tx) => {
      await tx.lock('webhook_endpoint', ...new Set(rows.map((row) => row.endpoint_id)));
      await forgetDeliveries(
        tx,
        which,
        rows.map(({ id }) => id),
      );
    });
    gone += rows.length;
  }
  return gone;
}
