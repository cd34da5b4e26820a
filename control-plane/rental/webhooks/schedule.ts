// What follows from an attempt, for its delivery and for its endpoint: pure rules (specification 6.4, DESIGN section 8).
import { isoTime } from '../../../shared/clock.ts';
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
const GONE = 410;

/** A healthy endpoint gets this many deliveries at once; one that failed last, a single one until it succeeds again. */
const AT_ONCE_MAX = 4;
/** Urgent ones do not wait for each other: their attempts would not fit into the day. */
export const URGENT_AT_ONCE_MAX = 32;
/** An attempt is urgent this long before the last moment: it may take its whole time, and others may wait for it. */
const URGENT_MARGIN_MS = 30 * 60_000;

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
  /** From then on it is tried although its endpoint rests; null where it is over. */
  urgentMs: number | null;
}

/** How often a delivery may be tried, how often it was, and until when. */
export interface Budget {
  /** The one that is over now included. */
  attempts: number;
  maxAttempts: number;
  deadlineMs: number;
}

/** `scheduled`: attempts of a whole schedule. What failed for whatever reason is tried again until all of its attempts are made. */
export function deliveryAfter(
  { attempts, maxAttempts, deadlineMs }: Budget,
  outcome: Outcome,
  nowMs: number,
  { rng, scheduled }: { rng: Rng; scheduled: number },
): DeliveryStep {
  const over = { nextMs: null, urgentMs: null };
  if (outcome.errorCode === null) return { to: 'succeeded', ...over };
  const left = maxAttempts - attempts;
  if (left <= 0) return { to: 'dead_lettered', ...over };
  const urgentMs = urgentFrom({ deadlineMs, left, scheduled });
  const plannedMs = waitMs(left, scheduled) * (1 + JITTER * rng.float());
  // Retry-After stretches a wait to that of the next step at most, and never so far that an attempt is lost.
  const stretchedMs = Math.min(outcome.retryAfterMs ?? 0, waitMs(left - 1, scheduled), urgentMs - nowMs);
  const nextMs = nowMs + Math.ceil(Math.max(plannedMs, stretchedMs));
  return nextMs >= deadlineMs ? { to: 'dead_lettered', ...over } : { to: 'retrying', nextMs, urgentMs };
}

/** The latest moment at which `left` attempts still fit in before the deadline, with the waits between them. */
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

/** The wait before the next attempt if `left` attempts remain. It counts from the end of the schedule, so a replay has a whole one again. */
function waitMs(left: number, scheduled: number): number {
  const step = Math.min(Math.max(0, scheduled - 1 - left), RETRY_DELAYS_MS.length - 1);
  return RETRY_DELAYS_MS[step] ?? 0;
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

/** Only its owner disables an endpoint, and one that was disabled meanwhile stays so. */
export function healthAfter(health: Health, outcome: Outcome, nowMs: number): Health {
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

/** How many deliveries that are not urgent may be under way to an endpoint of this health; 0 while the circuit is open. */
export function slotsOf(health: Health, nowMs: number): number {
  if (health.status === 'disabled' || (health.open_until_ms ?? 0) > nowMs) return 0;
  return health.failures === 0 ? AT_ONCE_MAX : 1;
}
