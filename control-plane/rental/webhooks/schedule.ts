// The rules for retries and for the health of endpoints (specification 6.4, DESIGN section 8). Pure: no I/O, no clock.
import { isoTime } from '../../../shared/clock.ts';
import type { Rng } from '../../../shared/rng.ts';
import type { WebhookDeliveryState, WebhookEndpointState } from '../../../shared/states.ts';
import type { WebhookAttempt } from '../../../shared/api/webhook.ts';

/** Waits after the first, second, ... failed attempt. The last one is used only if the operator allows a sixth attempt. */
const RETRY_DELAYS_MS = [30_000, 300_000, 1_800_000, 7_200_000, 43_200_000] as const;
export const ATTEMPTS_MAX = RETRY_DELAYS_MS.length + 1;
/** The random part that is added to a wait, so that deliveries that failed together are not retried together. */
const JITTER = 0.1;
/** A delivery is given up this long after its event. */
export const DELIVERY_MS_MAX = 24 * 3_600_000;

/** Number of failures in a row, over all deliveries, after which an endpoint gets one probe per period until one succeeds. */
const FAILURES_TO_DEGRADE = 20;
const PROBE_PERIOD_MS = 300_000;
const GONE = 410;

/** Number of deliveries that a healthy endpoint gets at once. After a failure it gets one at a time until one succeeds. */
const AT_ONCE_MAX = 4;
/** Urgent deliveries do not wait for each other, because their attempts would no longer fit into the 24 hours. */
export const URGENT_AT_ONCE_MAX = 32;
/** An attempt becomes urgent this long before the last possible moment, because it may be slow or wait for others. */
const URGENT_MARGIN_MS = 30 * 60_000;

export interface DeliveryOutcome {
  /** The HTTP status; null if there was no answer. */
  status: number | null;
  /** Why the attempt failed; null after a 2xx answer. */
  errorCode: WebhookAttempt['error_code'];
  /** The wait that Retry-After of a 429 or 503 asks for; null if there is none. */
  retryAfterMs: number | null;
}

export interface DeliveryStep {
  to: WebhookDeliveryState;
  /** When the next attempt is due; null if the delivery has ended. */
  nextMs: number | null;
  /** The time from which the delivery is tried even if the circuit is open; null if the delivery has ended. */
  urgentMs: number | null;
}

/** How often a delivery may be tried, how often it was tried, and its deadline. */
export interface Budget {
  /** Includes the attempt that has just ended. */
  attempts: number;
  maxAttempts: number;
  deadlineMs: number;
}

/** `scheduled` is the number of attempts in a whole schedule. Every failure, whatever its kind, is retried until all attempts are used. */
export function deliveryAfter(
  { attempts, maxAttempts, deadlineMs }: Budget,
  outcome: DeliveryOutcome,
  nowMs: number,
  { rng, scheduled }: { rng: Rng; scheduled: number },
): DeliveryStep {
  const over = { nextMs: null, urgentMs: null };
  if (outcome.errorCode === null) return { to: 'succeeded', ...over };
  const left = maxAttempts - attempts;
  if (left <= 0) return { to: 'dead_lettered', ...over };
  const urgentMs = urgentFrom({ deadlineMs, left, scheduled });
  const plannedMs = waitMs(left, scheduled) * (1 + JITTER * rng.float());
  // Retry-After can make a wait longer: at most as long as the wait after the next attempt, and only if all attempts still fit.
  const stretchedMs = Math.min(outcome.retryAfterMs ?? 0, waitMs(left - 1, scheduled), urgentMs - nowMs);
  const nextMs = nowMs + Math.ceil(Math.max(plannedMs, stretchedMs));
  return nextMs >= deadlineMs ? { to: 'dead_lettered', ...over } : { to: 'retrying', nextMs, urgentMs };
}

/** The latest time at which `left` attempts, with the waits between them, still fit before the deadline. */
export function urgentFrom({
  deadlineMs,
  left,
  scheduled,
}: {
  deadlineMs: number;
  left: number;
  scheduled: number;
}): number {
  let urgentMs = deadlineMs - URGENT_MARGIN_MS;
  for (let later = 1; later < left; later += 1) urgentMs -= Math.ceil(waitMs(later, scheduled) * (1 + JITTER));
  return urgentMs;
}

/**
 * The wait before the next attempt if `left` attempts remain. The waits are counted from the end of the schedule, so a replay has all of them
 * again.
 */
function waitMs(left: number, scheduled: number): number {
  const step = Math.min(Math.max(0, scheduled - 1 - left), RETRY_DELAYS_MS.length - 1);
  return RETRY_DELAYS_MS[step] ?? 0;
}

export interface Health {
  status: WebhookEndpointState;
  status_reason: string | null;
  /** Failures in a row. */
  failures: number;
  failing_since_ms: number | null;
  /** No attempt is made before this time; null if attempts are made without a wait. */
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

/** Only the owner disables an endpoint, and an endpoint that was disabled meanwhile stays disabled. */
export function healthAfter(health: Health, outcome: DeliveryOutcome, nowMs: number): Health {
  if (health.status === 'disabled') return health;
  if (outcome.errorCode === null) return HEALTHY;
  const failures = health.failures + 1;
  const sinceMs = health.failing_since_ms ?? nowMs;
  const failing = { ...health, failures, failing_since_ms: sinceMs };
  const isGone = outcome.status === GONE;
  if (health.status === 'healthy' && failures < FAILURES_TO_DEGRADE && !isGone) return failing;
  const what = isGone ? 'It answers 410 Gone.' : `Every attempt since ${isoTime(sinceMs)} has failed.`;
  const reason = `${what} It is tried every 5 minutes until an attempt succeeds, and each delivery gets all of its attempts.`;
  return { ...failing, status: 'degraded', status_reason: reason, open_until_ms: nowMs + PROBE_PERIOD_MS };
}

/** How many deliveries that are not urgent may be in progress to an endpoint of this health; 0 while the circuit is open. */
export function slotsOf(health: Health, nowMs: number): number {
  if (health.status === 'disabled' || (health.open_until_ms ?? 0) > nowMs) return 0;
  return health.failures === 0 ? AT_ONCE_MAX : 1;
}
