// When a delivery is tried again and given up, and when an endpoint is rested or disabled: each bound at both edges.
import { describe, expect, test } from 'vitest';
import {
  deliveryAfter,
  HEALTHY,
  type Health,
  healthAfter,
  type Outcome,
  slotsOf,
} from '../../../../control-plane/rental/webhooks/schedule.ts';
import type { Rng } from '../../../../shared/rng.ts';

const SECOND = 1_000;
const HOUR = 3_600 * SECOND;
const DAY = 24 * HOUR;
const NOW = Date.UTC(2026, 0, 1);
const rngAt = (value: number): Rng => ({ float: () => value, bytes: (count) => new Uint8Array(count) });
const LEAST = rngAt(0);
const MOST = rngAt(1 - 2 ** -32);

const OK: Outcome = { status: 204, errorCode: null, retryAfterMs: null };
const FAILED: Outcome = { status: 500, errorCode: 'http_status', retryAfterMs: null };
const after = (attempts: number, outcome = FAILED, more: { max?: number; deadlineMs?: number; rng?: Rng } = {}) => {
  const { max = 5, deadlineMs = NOW + DAY, rng = LEAST } = more;
  return deliveryAfter({ attempts, maxAttempts: max, deadlineMs }, outcome, NOW, rng);
};
const waitMs = (...args: Parameters<typeof after>): number => (after(...args).nextMs ?? Number.NaN) - NOW;

describe('a delivery', () => {
  test('is tried again after 30 s, 5 min, 30 min and 2 h, and given up after the fifth attempt', () => {
    expect([1, 2, 3, 4].map((n) => waitMs(n))).toEqual([30 * SECOND, 300 * SECOND, 1_800 * SECOND, 2 * HOUR]);
    expect(after(4).to).toBe('retrying');
    expect(after(5)).toEqual({ to: 'dead_lettered', nextMs: null });
  });
  test('has a sixth attempt after 12 h where the operator allows it', () => {
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
    for (const n of [1, 5, 50]) expect(after(n, OK)).toEqual({ to: 'succeeded', nextMs: null });
  });
  test('waits as long as Retry-After asks, never shorter than planned', () => {
    const asked = (retryAfterMs: number): Outcome => ({ status: 503, errorCode: 'http_status', retryAfterMs });
    expect(waitMs(1, asked(10 * SECOND))).toBe(30 * SECOND);
    expect(waitMs(1, asked(HOUR))).toBe(HOUR);
    expect(after(1, asked(DAY)).to).toBe('dead_lettered');
    expect(waitMs(1, asked(DAY - 1))).toBe(DAY - 1);
  });
  test('is given up where its next attempt would be a day after the event', () => {
    expect(after(1, FAILED, { deadlineMs: NOW + 30 * SECOND + 1 }).to).toBe('retrying');
    expect(after(1, FAILED, { deadlineMs: NOW + 30 * SECOND }).to).toBe('dead_lettered');
  });
  test('is given up at once for an address inside: the refusal would only repeat', () => {
    expect(after(1, { status: null, errorCode: 'blocked_address', retryAfterMs: null }).to).toBe('dead_lettered');
    expect(after(1, { status: null, errorCode: 'dns', retryAfterMs: null }).to).toBe('retrying');
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
  test('is disabled after five days of nothing but failures', () => {
    expect(healthAfter(failing(1), FAILED, NOW + 5 * DAY - 1).status).toBe('healthy');
    expect(healthAfter(failing(1), FAILED, NOW + 5 * DAY)).toMatchObject({
      status: 'disabled',
      status_reason: expect.stringContaining('5 days') as string,
    });
    const recovered = healthAfter(healthAfter(failing(1), OK, NOW + DAY), FAILED, NOW + 2 * DAY);
    expect(healthAfter(recovered, FAILED, NOW + 6 * DAY).status).toBe('healthy');
  });
  test('is disabled at once by 410, and not by 404', () => {
    expect(healthAfter(HEALTHY, { ...FAILED, status: 410 }, NOW).status).toBe('disabled');
    expect(healthAfter(HEALTHY, { ...FAILED, status: 404 }, NOW).status).toBe('healthy');
  });
  test('that is disabled stays so, whatever a late attempt says', () => {
    const gone = healthAfter(HEALTHY, { ...FAILED, status: 410 }, NOW);
    expect([healthAfter(gone, OK, NOW), healthAfter(gone, FAILED, NOW + 9 * DAY)]).toEqual([gone, gone]);
  });
  test('takes four deliveries at once while healthy, one after a failure, none while it rests', () => {
    expect(slotsOf(HEALTHY, NOW)).toBe(4);
    expect(slotsOf(failing(1), NOW)).toBe(1);
    expect(slotsOf(failing(20), NOW + 300 * SECOND - 1)).toBe(0);
    expect(slotsOf(failing(20), NOW + 300 * SECOND)).toBe(1);
    expect(slotsOf(healthAfter(HEALTHY, { ...FAILED, status: 410 }, NOW), NOW)).toBe(0);
  });
});
