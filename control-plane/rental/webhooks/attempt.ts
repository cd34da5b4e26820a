// One attempt of a delivery: signs the body, posts it, and returns the outcome. It writes nothing to the database.
import { WEBHOOK_ATTEMPT_MS_MAX, WEBHOOK_EXCERPT_BYTES_MAX, WEBHOOK_STATUS_MS_MAX } from '../../../shared/limits.ts';
import type { Clock } from '../../../shared/clock.ts';
import { webhookHeaders } from '../../../shared/webhook-signature.ts';
import { OutboundError } from '../../base/outbound/policy.ts';
import type { Outbound, OutboundResponse } from '../../base/outbound/outbound.ts';
import type { AttemptRow, DeliveryRow, Trigger } from './delivery-store.ts';
import type { DeliveryOutcome } from './schedule.ts';

export interface Attempt {
  row: AttemptRow;
  outcome: DeliveryOutcome;
}

/** Makes one attempt. The request has one signature for each of `secrets`, the newest secret first. */
export async function attempt(
  delivery: DeliveryRow,
  endpoint: { url: string; secrets: readonly string[]; trigger: Trigger },
  deps: { clock: Clock; outbound: Outbound },
): Promise<Attempt> {
  const { clock, outbound } = deps;
  const startedMs = clock.now();
  const monotonicMs = clock.monotonicMs();
  const event = { id: delivery.event_id, body: delivery.body };
  const headers = webhookHeaders(event, endpoint.secrets, startedMs);
  const result = await outbound
    .request({
      method: 'POST',
      url: endpoint.url,
      headers,
      body: delivery.body,
      statusMs: WEBHOOK_STATUS_MS_MAX,
      totalMs: WEBHOOK_ATTEMPT_MS_MAX,
      bodyBytesMax: WEBHOOK_EXCERPT_BYTES_MAX,
    })
    .catch((error: unknown) => {
      if (error instanceof OutboundError) return error;
      throw error;
    });
  const times = { started_ms: startedMs, duration_ms: Math.round(clock.monotonicMs() - monotonicMs) };
  const sent = { request_url: endpoint.url, request_headers: withoutSignatures(headers) };
  const row = { delivery_id: delivery.id, n: delivery.attempts + 1, trigger_kind: endpoint.trigger, ...times, ...sent };
  const response = result instanceof OutboundError ? brokenAnswer(result) : result;
  return response instanceof OutboundError ? unanswered(row, response) : answered(row, response, clock.now());
}

/** An answer whose body broke off counts by its status, which says what the receiver has done (specification 6.2). */
function brokenAnswer(error: OutboundError): OutboundResponse | OutboundError {
  const { code, status, remoteAddress } = error;
  if (code !== 'protocol' || status === null) return error;
  return { status, headers: {}, body: Buffer.alloc(0), truncated: true, remoteAddress: remoteAddress ?? '' };
}

/** Hides the signatures. A person who reads deliveries could otherwise send a request that the endpoint would accept. */
function withoutSignatures(headers: Record<string, string>): Record<string, string> {
  const signature = (headers['svc-signature'] ?? '').replaceAll(/v1=[0-9a-f]+/g, 'v1=[hidden]');
  return { ...headers, 'svc-signature': signature };
}

type RowStart = Pick<
  AttemptRow,
  'delivery_id' | 'n' | 'trigger_kind' | 'started_ms' | 'duration_ms' | 'request_url' | 'request_headers'
>;

function unanswered(row: RowStart, error: OutboundError): Attempt {
  return {
    row: {
      ...row,
      response_status: null,
      response_body_excerpt: null,
      truncated: false,
      error_code: error.code,
      error_detail: error.message,
      remote_ip: error.remoteAddress,
    },
    outcome: { status: null, errorCode: error.code, retryAfterMs: null },
  };
}

function answered(row: RowStart, response: OutboundResponse, nowMs: number): Attempt {
  const { status } = response;
  const errorCode = status >= 200 && status < 300 ? null : 'http_status';
  return {
    row: {
      ...row,
      response_status: status,
      response_body_excerpt: readable(response.body),
      truncated: response.truncated,
      error_code: errorCode,
      error_detail: errorCode === null ? null : `It answered ${status}; any 2xx status is a success.`,
      remote_ip: response.remoteAddress,
    },
    outcome: { status, errorCode, retryAfterMs: retryAfterMs(response, nowMs) },
  };
}

/** PostgreSQL cannot store U+0000. The other control characters would become six bytes each in an answer of the API. */
function readable(body: Buffer): string {
  return body.toString('utf8').replaceAll(/[^\P{Cc}\t\n\r]/gu, '\ufffd');
}

/** Reads Retry-After (seconds or a date), only with the two statuses that define it. */
function retryAfterMs({ status, headers }: OutboundResponse, nowMs: number): number | null {
  const value = headers['retry-after'];
  if (value === undefined || (status !== 429 && status !== 503)) return null;
  if (/^\d{1,9}$/.test(value)) return Number(value) * 1000;
  const atMs = Date.parse(value);
  return Number.isNaN(atMs) ? null : Math.max(0, atMs - nowMs);
}
