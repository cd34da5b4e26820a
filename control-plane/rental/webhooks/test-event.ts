// A test event: a made-up instance that goes through the queue, the signature and the attempts of any event.
import type { TestWebhookEndpoint, WebhookDelivery, WebhookEvent } from '../../../shared/api/webhook.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { fail, failField } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { WEBHOOK_TESTS_PER_HOUR_MAX } from '../../../shared/limits.ts';
import type { Tx } from '../../base/db/db.ts';
import { isCounted, type WindowCounts } from '../../base/db/window-counts.ts';
import { type DeliveryRow, insertDelivery } from './delivery-store.ts';
import { type EndpointRow, makeDue, probeNow } from './endpoint-store.ts';
import { DELIVERY_MS_MAX } from './schedule.ts';
import { deliveryView } from './view.ts';

/**
 * It does not matter to which endpoints the tests of an organisation go: anybody may make many endpoints with the address of a stranger, and delete
 * them again.
 */
const TESTS: WindowCounts = { table: 'webhook_test_counts', id: 'org_id', count: 'tests', windowMs: 3_600_000 };
/** No instance has this id. */
const TEST_INSTANCE_ID = 'i-testtesttesttesttest';

/** @throws ServiceError `conflict`, `validation_failed`, `rate_limit_exceeded` */
export async function sendTest(
  tx: Tx,
  endpoint: EndpointRow,
  { event_type: wanted }: TestWebhookEndpoint,
  { clock, ids }: { clock: Clock; ids: Ids },
): Promise<WebhookDelivery> {
  const nowMs = clock.now();
  const type = wanted ?? endpoint.event_types[0];
  if (type === undefined || !endpoint.event_types.includes(type))
    return failField('event_type', `must be one that the endpoint receives: ${endpoint.event_types.join(', ')}`);
  if (endpoint.status === 'disabled') fail('conflict', 'The endpoint is disabled; enable it first.');
  if (!(await isCounted(tx, TESTS, { of: endpoint.org_id, most: WEBHOOK_TESTS_PER_HOUR_MAX, nowMs }))) {
    const detail = `An organisation may send ${WEBHOOK_TESTS_PER_HOUR_MAX} tests in an hour.`;
    fail('rate_limit_exceeded', { detail, retryAfterSeconds: 60 });
  }
  const eventId = ids.prefixed('evt');
  const row: DeliveryRow = {
    id: ids.prefixed('dlv'),
    endpoint_id: endpoint.id,
    event_id: eventId,
    event_type: type,
    instance_id: TEST_INSTANCE_ID,
    // Tests of one endpoint have growing versions, as the events of one instance have.
    instance_version: nowMs,
    body: JSON.stringify(bodyOf({ id: eventId, type, nowMs })),
    status: 'pending',
    attempts: 0,
    max_attempts: 1,
    next_trigger: 'manual',
    next_attempt_ms: nowMs,
    urgent_ms: nowMs,
    deadline_ms: nowMs + DELIVERY_MS_MAX,
    created_ms: nowMs,
    completed_ms: null,
    is_test: true,
  };
  await insertDelivery(tx, row);
  await probeNow(tx, endpoint.id);
  await makeDue(tx, [endpoint.id], { nowMs, urgentMs: nowMs });
  return deliveryView(row, []);
}

/** The body of a test event. Its instance has the status that the event type reports. */
function bodyOf({ id, type, nowMs }: { id: string; type: WebhookEvent['type']; nowMs: number }): WebhookEvent {
  const at = isoTime(nowMs);
  const STATUS = {
    'instance.creating': 'allocating',
    'instance.running': 'running',
    'instance.terminated': 'terminated',
    'instance.failed': 'error',
  } as const;
  const hasRun = type === 'instance.running' || type === 'instance.terminated';
  const instance: WebhookEvent['data']['instance'] = {
    id: TEST_INSTANCE_ID,
    status: STATUS[type],
    gpu_type: 'H100_SXM',
    gpu_count: 1,
    region: 'test',
    tier: 'on_demand',
    name: 'webhook-test',
    price_per_hour: 0,
    created_at: at,
    ready_at: hasRun ? at : null,
    terminated_at: type === 'instance.terminated' ? at : null,
    status_reason: 'This is a test: there is no such instance.',
    version: nowMs,
  };
  return { id, type, created_at: at, test: true, data: { instance } };
}
