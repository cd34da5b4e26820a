// The outbox: writes one delivery for each endpoint that subscribes to an event, in the event's transaction.
import { type WebhookEvent, WebhookEventType, WebhookInstance } from '../../../shared/api/webhook.ts';
import { isoTime } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Tx } from '../../base/db/db.ts';
import type { EventRow } from '../../base/events/events.ts';
import { findRental, type RentalRow } from '../instances/store.ts';
import { instanceView } from '../instances/view.ts';
import { insertDelivery } from './delivery-store.ts';
import { endpointsOfOrg, makeDue } from './endpoint-store.ts';
import { DELIVERY_MS_MAX, urgentFrom } from './schedule.ts';

/** The part of the API's instance that an event contains. */
const Sent = WebhookInstance.strip();

/** The body is made here once, so every attempt sends the instance as it was at the event. */
export async function noteEvent(tx: Tx, event: EventRow, deps: { ids: Ids; maxAttempts: number }): Promise<void> {
  const type = WebhookEventType.safeParse(event.type).data;
  if (type === undefined || event.org_id === null) return;
  const endpoints = (await endpointsOfOrg(tx, event.org_id)).filter((row) => row.event_types.includes(type));
  if (endpoints.length === 0) return;
  const instance = await findRental(tx, event.subject_id);
  if (instance === undefined)
    throw new Error(`event ${event.id} tells of the instance ${event.subject_id}, which is none`);
  const body = JSON.stringify(bodyOf({ ...event, type }, instance));
  const { maxAttempts } = deps;
  const deadlineMs = event.created_ms + DELIVERY_MS_MAX;
  const urgentMs = urgentFrom({ deadlineMs, left: maxAttempts, scheduled: maxAttempts });
  for (const endpoint of endpoints) {
    await insertDelivery(tx, {
      id: deps.ids.prefixed('dlv'),
      endpoint_id: endpoint.id,
      event_id: event.id,
      event_type: type,
      instance_id: instance.id,
      instance_version: instance.facts_version,
      body,
      status: 'pending',
      attempts: 0,
      max_attempts: maxAttempts,
      next_trigger: 'schedule',
      next_attempt_ms: event.created_ms,
      urgent_ms: urgentMs,
      deadline_ms: deadlineMs,
      created_ms: event.created_ms,
      completed_ms: null,
      is_test: false,
    });
  }
  await makeDue(
    tx,
    endpoints.map(({ id }) => id),
    { nowMs: event.created_ms, urgentMs },
  );
}

function bodyOf(event: EventRow & { type: WebhookEventType }, row: RentalRow): WebhookEvent {
  // Every move increments the version, so a later event of an instance has a greater version.
  const shown = instanceView(row, { endpoint: undefined, site: undefined });
  const instance = Sent.parse({ ...shown, version: row.facts_version });
  return { id: event.id, type: event.type, created_at: isoTime(event.created_ms), data: { instance } };
}
