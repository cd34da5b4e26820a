// What follows from an attempt, for its delivery and for its endpoint: pure rules (specification 6.4, DESIGN section 8).
import type { Rng } from '../../../shared/rng.ts';
import type { WebhookDeliveryState, WebhookEndpointState } from '../../../shared/states.ts';
import type { WebhookAttempt } from '../../../shared/api/webhook.ts';

/** Waits after the first, second, ... failed attempt. The last is used where the operator allows a sixth attempt. */
const RETRY_DELAYS_MS = [30_000, 300_000, 1_800_000, 7_200_000, 43_200_000] as const;
export const ATTEMPTS_MAX = RETRY_DELAYS_MS.length + 1;
/** Added to a wait at random, so that what failed together does not come back together. Never below the stated wait. */
const JITTER = 0.1;
/** Whatever happened, a delivery is given up this long after its event. */
export const DELIVERY_MS_MAX = 24 * 3_600_000;

/** So many failures in a row, over all deliveries, and an endpoint gets one probe per period until one succeeds. */
const FAILURES_TO_DEGRADE = 20;
const PROBE_PERIOD_MS = 300_000;
/** Nothing but failures for this long, and it is disabled until its owner enables it. */
const FAILING_MS_MAX = 5 * 24 * 3_600_000;
const GONE = 410;

/** A healthy endpoint gets this many deliveries at once; one that failed last, a single one until it succeeds again. */
const AT_ONCE_MAX = 4;

export interface Outcome {
  /** Null: no answer. */
  status: number | null;
  /** Null: a 2xx answer. */
  errorCode: WebhookAttempt['error_code'];
  /** What the endpoint asked for with 429 or 503. */
  retryAfterMs: number | null;
}

export interface DeliveryStep {
  to: WebhookDeliveryState;
  /** Null where the delivery is over. */
  nextMs: number | null;
}

/** `attempts` counts the one that is over now. */
export function deliveryAfter(
  delivery: { attempts: number; maxAttempts: number; deadlineMs: number },
  outcome: Outcome,
  nowMs: number,
  rng: Rng,
): DeliveryStep {
  if (outcome.errorCode === null) return { to: 'succeeded', nextMs: null };
  const delayMs = RETRY_DELAYS_MS[delivery.attempts - 1] ?? RETRY_DELAYS_MS[RETRY_DELAYS_MS.length - 1] ?? 0;
  const nextMs = nowMs + Math.ceil(Math.max(delayMs * (1 + JITTER * rng.float()), outcome.retryAfterMs ?? 0));
  // An address inside is refused for what it is: trying again only repeats the refusal.
  const over = outcome.errorCode === 'blocked_address' || delivery.attempts >= delivery.maxAttempts;
  return over || nextMs >= delivery.deadlineMs ? { to: 'dead_lettered', nextMs: null } : { to: 'retrying', nextMs };
}

export interface Health {
  status: WebhookEndpointState;
  status_reason: string | null;
  /** In a row. */
  failures: number;
  failing_since_ms: number | null;
  /** No attempt before then. */
  open_until_ms: number | null;
}

export const HEALTHY: Health = {
  status: 'healthy',
  status_reason: null,
  failures: 0,
  failing_since_ms: null,
  open_until_ms: null,
};

export function disabled(health: Health, reason: string): Health {
  return { ...health, status: 'disabled', status_reason: reason, open_until_ms: null };
}

/** An endpoint that was disabled meanwhile stays so: only its owner enables it. */
export function healthAfter(health: Health, outcome: Outcome, nowMs: number): Health {
  if (health.status === 'disabled') return health;
  if (outcome.errorCode === null) return HEALTHY;
  const failures = health.failures + 1;
  const sinceMs = health.failing_since_ms ?? nowMs;
  const failing = { ...health, failures, failing_since_ms: sinceMs };
  if (outcome.status === GONE) return disabled(failing, 'It answered 410 Gone. Enable it to send events to it again.');
  if (nowMs - sinceMs >= FAILING_MS_MAX) {
    return disabled(failing, 'Every delivery failed for 5 days. Enable it once it works again.');
  }
  if (failures < FAILURES_TO_DEGRADE) return failing;
  const reason = `The last ${failures} attempts failed. One is made every 5 minutes until one succeeds.`;
  return { ...failing, status: 'degraded', status_reason: reason, open_until_ms: nowMs + PROBE_PERIOD_MS };
}

/** How many deliveries may be under way to an endpoint of this health; 0 while the circuit is open. */
export function slotsOf(health: Health, nowMs: number): number {
  if (health.status === 'disabled' || (health.open_until_ms ?? 0) > nowMs) return 0;
  return health.failures === 0 ? AT_ONCE_MAX : 1;
}
