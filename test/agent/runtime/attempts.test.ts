// When a failed step is tried again: its timer decides, whatever the wall clock shows.
import { expect, test } from 'vitest';
import { createAttempts } from '../../../agent/runtime/attempts.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

test('a step is due when its timer fires, even if the wall clock is a moment behind', () => {
  const clock = virtualClock(1_000_000);
  const due: boolean[] = [];
  let behindMs = 0;
  const late = { ...clock, now: () => clock.now() - behindMs };
  const attempts = createAttempts(late, () => due.push((attempts.retryAtMs.get('a') ?? 0) <= late.now()));
  attempts.delay('a');
  behindMs = 1;
  clock.jump(999);
  expect(due).toEqual([]);
  clock.jump(1);
  expect(due).toEqual([true]);
});

test('each failure waits twice as long as the one before, until it works', () => {
  const clock = virtualClock(1_000_000);
  const attempts = createAttempts(clock, () => undefined);
  const delays: number[] = [];
  for (let i = 0; i < 8; i += 1) {
    attempts.delay('a');
    delays.push((attempts.retryAtMs.get('a') ?? 0) - clock.now());
  }
  expect(delays).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
  attempts.forget('a');
  attempts.delay('a');
  expect((attempts.retryAtMs.get('a') ?? 0) - clock.now()).toBe(1_000);
});

test('a timer of an earlier failure does not make a later one due', () => {
  const clock = virtualClock(1_000_000);
  const attempts = createAttempts(clock, () => undefined);
  attempts.delay('a');
  attempts.forget('a');
  expect([attempts.count('a'), attempts.retryAtMs.has('a')]).toEqual([0, false]);
  clock.jump(500);
  attempts.delay('a');
  attempts.delay('b');
  clock.jump(500);
  expect(attempts.retryAtMs.has('a')).toBe(true);
  clock.jump(500);
  expect(attempts.retryAtMs.size).toBe(0);
  expect([attempts.count('a'), attempts.count('b')]).toEqual([1, 1]);
});
