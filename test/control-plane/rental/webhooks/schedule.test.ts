// When a delivery is tried again and given up, and when an endpoint is rested or disabled: each bound at both edges.
import { describe, expect, test } from 'vitest';
import {
  deliveryAfter,
  disabled,
  HEALTHY,
  type Health,
  healthAfter,
  type DeliveryOutcome,
  slotsOf,
  urgentFrom,
} from '../../../../control-plane/rental/webhooks/schedule.ts';
import type { Rng } from '../../../../shared/rng.ts';

const SECOND = 1_000;
const HOUR = 3_600 * SECOND;
const DAY = 24 * HOUR;
const NOW = Date.UTC(2026, 0, 1);
const rngAt = (value: number): Rng => ({ float: () => value, bytes: (count) => new Uint8Array(count) });
const LEAST = rngAt(0);
const MOST = rngAt(1 - 2 ** -32);

const OK: DeliveryOutcome = { status: 204, errorCode: null, retryAfterMs: null };
const FAILED: DeliveryOutcome = { status: 500, errorCode: 'http_status', retryAfterMs: null };
interface More {
  max?: number;
  scheduled?: number;
  deadlineMs?: number;
  rng?: Rng;
}
const after = (attempts: number, outcome = FAILED, more: More = {}) => {
  const { max = 5, scheduled = max, deadlineMs = NOW + DAY, rng = LEAST } = more;
  return deliveryAfter({ attempts, maxAttempts: max, deadlineMs }, outcome, NOW, { rng, scheduled });
};
const waitMs = (...args: Parameters<typeof after>): number => (after(...args).nextMs ?? Number.NaN) - NOW;

describe('a delivery', () => {
  // Specification 6.4: 5 attempts, 30 seconds, 5 minutes, 30 minutes and 2 hours apart, then dead_lettered.
  // Specification 8: Webhook attempts: 5.
  test('is tried again after 30 s, 5 min, 30 min and 2 h, and given up after the fifth attempt', () => {
    expect([1, 2, 3, 4].map((n) => waitMs(n))).toEqual([30 * SECOND, 300 * SECOND, 1_800 * SECOND, 2 * HOUR]);
    expect(after(4).to).toBe('retrying');
    expect(after(5)).toEqual({ to: 'dead_lettered', nextMs: null, urgentMs: null });
  });
  // Specification 6.4: A sixth attempt 12 hours later if it is configured.
  test('has a sixth attempt after 12 h if the operator allows it', () => {
    expect(waitMs(5, FAILED, { max: 6 })).toBe(12 * HOUR);
    expect(after(6, FAILED, { max: 6 }).to).toBe('dead_lettered');
  });
  test('waits at most a tenth longer, and never less', () => {
    for (const n of [1, 2, 3, 4]) {
      expect(waitMs(n, FAILED, { rng: MOST })).toBeGreaterThan(waitMs(n) * 1.09);
      expect(waitMs(n, FAILED, { rng: MOST })).toBeLessThanOrEqual(waitMs(n) * 1.1);
    }
  });
  test('is over with a success, at any attempt', () => {
    for (const n of [1, 5, 50]) expect(after(n, OK)).toEqual({ to: 'succeeded', nextMs: null, urgentMs: null });
  });
  test('waits as long as Retry-After asks, at most as long as at the next step, and never shorter than planned', () => {
    const asked = (retryAfterMs: number): DeliveryOutcome => ({ status: 503, errorCode: 'http_status', retryAfterMs });
    expect(waitMs(1, asked(10 * SECOND))).toBe(30 * SECOND);
    expect(waitMs(1, asked(100 * SECOND))).toBe(100 * SECOND);
    expect([1, 2, 3, 4].map((n) => waitMs(n, asked(9 * DAY)))).toEqual([
      300 * SECOND,
      1_800 * SECOND,
      2 * HOUR,
      12 * HOUR,
    ]);
  });
  // Specification 6.4: A Retry-After ends no delivery: all attempts come within a day.
  test.each([5, 6])('of %d attempts gets all of them within a day, whatever Retry-After asks', (max) => {
    let nowMs = NOW;
    for (let attempts = 1; attempts < max; attempts += 1) {
      const outcome: DeliveryOutcome = { status: 429, errorCode: 'http_status', retryAfterMs: 99 * DAY };
      const budget = { attempts, maxAttempts: max, deadlineMs: NOW + DAY };
      const step = deliveryAfter(budget, outcome, nowMs, { rng: MOST, scheduled: max });
      expect(step.to).toBe('retrying');
      // The attempt takes its whole time.
      nowMs = (step.nextMs ?? 0) + 30 * SECOND;
    }
    expect(nowMs).toBeLessThan(NOW + DAY);
  });
  test('that is replayed has a whole schedule again, however often it was tried', () => {
    const waits = [20, 21, 22, 23].map((n) => waitMs(n, FAILED, { max: 24, scheduled: 5 }));
    expect(waits).toEqual([30 * SECOND, 300 * SECOND, 1_800 * SECOND, 2 * HOUR]);
  });
  test('is urgent while its attempts just fit into its day with the longest waits, and half an hour to spare', () => {
    const waits = [30 * SECOND, 300 * SECOND, 1_800 * SECOND, 2 * HOUR].map((ms) => ms * 1.1);
    const spare = 1_800 * SECOND;
    expect(urgentFrom({ deadlineMs: NOW, left: 1, scheduled: 5 })).toBe(NOW - spare);
    expect(urgentFrom({ deadlineMs: NOW, left: 2, scheduled: 5 })).toBe(NOW - spare - Math.ceil(waits[3] ?? 0));
    const all = waits.reduce((sum, ms) => sum + Math.ceil(ms), 0);
    expect(urgentFrom({ deadlineMs: NOW, left: 5, scheduled: 5 })).toBe(NOW - spare - all);
  });
  test('is given up if its next attempt would be a day after the event', () => {
    expect(after(1, FAILED, { deadlineMs: NOW + 30 * SECOND + 1 }).to).toBe('retrying');
    expect(after(1, FAILED, { deadlineMs: NOW + 30 * SECOND }).to).toBe('dead_lettered');
  });
  // Specification 6.4: Any non-2xx response, any timeout and any other failure is retried: five attempts for each of them.
  test('is tried again after every kind of failure', () => {
    const kinds = ['blocked_address', 'dns', 'connect', 'tls', 'timeout', 'protocol', 'http_status'] as const;
    for (const errorCode of kinds)
      for (const status of [null, 301, 400, 404, 410, 500])
        expect(after(1, { status, errorCode, retryAfterMs: null }).to).toBe('retrying');
  });
});

describe('an endpoint', () => {
  const failing = (count: number, sinceMs = NOW): Health => {
    let health = HEALTHY;
    for (let i = 0; i < count; i += 1) health = healthAfter(health, FAILED, sinceMs);
    return health;
  };
  test('is degraded by 20 failures in a row and probed every five minutes, until one succeeds', () => {
    expect(failing(19)).toMatchObject({ status: 'healthy', open_until_ms: null });
    expect(failing(20)).toMatchObject({ status: 'degraded', open_until_ms: NOW + 300 * SECOND });
    expect(healthAfter(failing(19), OK, NOW)).toEqual(HEALTHY);
    expect(healthAfter(failing(20), OK, NOW)).toEqual(HEALTHY);
    expect(healthAfter(failing(20), FAILED, NOW + 300 * SECOND).open_until_ms).toBe(NOW + 600 * SECOND);
  });
  test('stays enabled however long it fails: only its owner disables it', () => {
    expect(healthAfter(failing(1), FAILED, NOW + 300 * DAY).status).toBe('healthy');
    expect(healthAfter(failing(20), FAILED, NOW + 300 * DAY).status).toBe('degraded');
  });
  test('is degraded at once by 410 with the reason, and not by 404', () => {
    const gone = healthAfter(HEALTHY, { ...FAILED, status: 410 }, NOW);
    expect(gone).toMatchObject({ status: 'degraded', open_until_ms: NOW + 300 * SECOND });
    expect(gone.status_reason).toContain('410 Gone');
    // Another failure does not bring it back, a success does.
    expect(healthAfter(gone, FAILED, NOW).status).toBe('degraded');
    expect(healthAfter(gone, OK, NOW)).toEqual(HEALTHY);
    expect(healthAfter(HEALTHY, { ...FAILED, status: 404 }, NOW).status).toBe('healthy');
  });
  test('that is disabled stays so, whatever a late attempt says', () => {
    const off = disabled(HEALTHY, 'Disabled by its owner.');
    expect([healthAfter(off, OK, NOW), healthAfter(off, FAILED, NOW + 9 * DAY)]).toEqual([off, off]);
  });
  test('takes four deliveries at once while healthy, one after a failure, none while it rests', () => {
    expect(slotsOf(HEALTHY, NOW)).toBe(4);
    expect(slotsOf(failing(1), NOW)).toBe(1);
    expect(slotsOf(failing(20), NOW + 300 * SECOND - 1)).toBe(0);
    expect(slotsOf(failing(20), NOW + 300 * SECOND)).toBe(1);
    expect(slotsOf(disabled(HEALTHY, 'Disabled by its owner.'), NOW)).toBe(0);
  });
});
