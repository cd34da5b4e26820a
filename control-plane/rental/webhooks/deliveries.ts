// Commands of owners for deliveries: read them, and retry one.
import type { WebhookDelivery, WebhookDeliveryDetail } from '../../../shared/api/webhook.ts';
import { fail } from '../../../shared/errors.ts';
import { WEBHOOK_ATTEMPTS_PER_DELIVERY_MAX } from '../../../shared/limits.ts';
import type { Query, Tx } from '../../base/db/db.ts';
import * as store from './delivery-store.ts';
import { makeDue, probeNow } from './endpoint-store.ts';
import { DELIVERY_MS_MAX } from './schedule.ts';
import { deliveryDetail, deliveryView } from './view.ts';

/** Deliveries as the API shows them, each with its attempts. */
export async function show(query: Query, rows: readonly store.DeliveryRow[]): Promise<WebhookDelivery[]> {
  const attempts = await store.attemptsOf(
    query,
    rows.map(({ id }) => id),
  );
  const of = Map.groupBy(attempts, (attempt) => attempt.delivery_id);
  return rows.map((row) => deliveryView(row, of.get(row.id) ?? []));
}

/** One delivery with what was sent. @throws ServiceError `not_found` */
export async function showOne(query: Query, endpointId: string, id: string): Promise<WebhookDeliveryDetail> {
  const row = await store.findDelivery(query, id);
  if (row?.endpoint_id !== endpointId) return fail('not_found', 'This endpoint has no such delivery.');
  return deliveryDetail(row, await store.attemptsOf(query, [id]));
}

/**
 * Makes one more attempt due at once. A waiting delivery keeps its schedule afterwards. A delivery that was given up gets this one attempt.
 * @throws ServiceError `not_found`, `conflict` if it has succeeded or has had too many attempts
 */
export async function retry(tx: Tx, endpointId: string, id: string, nowMs: number): Promise<WebhookDelivery> {
  const row = await store.findDelivery(tx, id);
  if (row?.endpoint_id !== endpointId) return fail('not_found', 'This endpoint has no such delivery.');
  if (row.status === 'succeeded') return fail('conflict', 'This delivery has succeeded; there is nothing to retry.');
  if (row.attempts >= WEBHOOK_ATTEMPTS_PER_DELIVERY_MAX) {
    fail('conflict', `This delivery was tried ${row.attempts} times; it is not tried again.`);
  }
  if (row.status === 'dead_lettered') {
    const patch = {
      max_attempts: row.attempts + 1,
      next_trigger: 'manual',
      deadline_ms: nowMs + DELIVERY_MS_MAX,
    } as const;
    await store.moveDelivery(tx, row, { to: 'retrying', nextMs: nowMs, urgentMs: nowMs, nowMs, patch });
  } else {
    await store.hurryDelivery(tx, id, nowMs);
  }
  await probeNow(tx, endpointId);
  await makeDue(tx, [endpointId], { nowMs, urgentMs: row.urgent_ms ?? nowMs });
  const [shown] = await show(tx, [(await store.findDelivery(tx, id)) ?? row]);
  return shown ?? deliveryView(row, []);
}
