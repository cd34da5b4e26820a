// Endpoints and deliveries as the API shows them (specification 2.9), without secrets.
import type {
  WebhookAttempt,
  WebhookDelivery,
  WebhookDeliveryDetail,
  WebhookEndpoint,
} from '../../../shared/api/webhook.ts';
import { isoTime } from '../../../shared/clock.ts';
import type { AttemptRow, DeliveryRow } from './delivery-store.ts';
import type { EndpointRow } from './endpoint-store.ts';

export function endpointView(row: EndpointRow, nowMs: number): WebhookEndpoint {
  const { previous_until_ms: untilMs } = row;
  return {
    id: row.id,
    url: row.url,
    event_types: row.event_types,
    enabled: row.status !== 'disabled',
    status: row.status,
    ...(row.status_reason === null ? {} : { status_reason: row.status_reason }),
    ...(untilMs !== null && untilMs > nowMs ? { previous_secret_until: isoTime(untilMs) } : {}),
    created_at: isoTime(row.created_ms),
  };
}

export function deliveryView(row: DeliveryRow, attempts: readonly AttemptRow[]): WebhookDelivery {
  const timeOrNull = (ms: number | null): string | null => (ms === null ? null : isoTime(ms));
  return {
    id: row.id,
    endpoint_id: row.endpoint_id,
    event_id: row.event_id,
    event_type: row.event_type,
    status: row.status,
    attempts: row.attempts,
    max_attempts: row.max_attempts,
    next_attempt_at: timeOrNull(row.next_attempt_ms),
    created_at: isoTime(row.created_ms),
    completed_at: timeOrNull(row.completed_ms),
    is_test: row.is_test,
    attempt_history: attempts.map(attemptView),
  };
}

/** A delivery with what was sent: the body, and the address and headers of each attempt. */
export function deliveryDetail(row: DeliveryRow, attempts: readonly AttemptRow[]): WebhookDeliveryDetail {
  return {
    ...deliveryView(row, attempts),
    body: row.body,
    attempt_history: attempts.map((attempt) => ({
      ...attemptView(attempt),
      request_url: attempt.request_url,
      request_headers: attempt.request_headers,
    })),
  };
}

function attemptView(row: AttemptRow): WebhookAttempt {
  const { n, trigger_kind, started_ms, duration_ms, response_status, response_body_excerpt, ...why } = row;
  return {
    n,
    trigger: trigger_kind,
    started_at: isoTime(started_ms),
    duration_ms,
    response_status,
    response_body_excerpt,
    truncated: why.truncated,
    error_code: why.error_code,
    error_detail: why.error_detail,
    remote_ip: why.remote_ip,
  };
}
