// The console's clock follows the service's, whatever the browser's clock says.
import { afterEach, expect, test, vi } from 'vitest';
import { hearTime, serviceNow } from '../../../control-plane/console/web/core/clock.ts';

const NOON_MS = Date.UTC(2026, 10, 30, 12);
const HOUR_MS = 3_600_000;

const answer = (ms: number): Response => new Response('', { headers: { date: new Date(ms).toUTCString() } });

/** Back to no difference. A difference of no more than three seconds would not be taken over. */
afterEach(() => {
  vi.useFakeTimers({ now: NOON_MS, toFake: ['Date'] });
  hearTime(answer(NOON_MS + HOUR_MS));
  hearTime(answer(NOON_MS));
  vi.useRealTimers();
});

test('a browser whose clock is hours ahead or behind shows the time of the service', () => {
  for (const wrongMs of [26 * HOUR_MS, -26 * HOUR_MS]) {
    vi.useFakeTimers({ now: NOON_MS + wrongMs, toFake: ['Date'] });
    hearTime(answer(NOON_MS));
    expect(serviceNow()).toBe(NOON_MS);
    vi.setSystemTime(NOON_MS + wrongMs + 90_000);
    expect(serviceNow()).toBe(NOON_MS + 90_000);
  }
});

test('a difference of three seconds is the way of the answer, and changes nothing; one of four is taken over', () => {
  vi.useFakeTimers({ now: NOON_MS, toFake: ['Date'] });
  hearTime(answer(NOON_MS - 3_000));
  expect(serviceNow()).toBe(NOON_MS);
  hearTime(answer(NOON_MS - 4_000));
  expect(serviceNow()).toBe(NOON_MS - 4_000);
});

test('an answer without a date, or with one that is no date, changes nothing', () => {
  vi.useFakeTimers({ now: NOON_MS, toFake: ['Date'] });
  hearTime(new Response(''));
  hearTime(new Response('', { headers: { date: 'noon' } }));
  expect(serviceNow()).toBe(NOON_MS);
});
