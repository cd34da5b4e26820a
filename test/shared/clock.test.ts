// The real clock: a time to wait for that is over already, and one that is longer than a timer of Node.
import { expect, test, vi } from 'vitest';
import { systemClock } from '../../shared/clock.ts';

test('a time that is over is not waited for, and Node has nothing to warn about', async () => {
  const warnings: string[] = [];
  const note = ({ name }: Error): void => void warnings.push(name);
  process.on('warning', note);
  const clock = systemClock();
  await clock.sleep(-1_000);
  await new Promise<void>((resolve) => void clock.after(-1_000, resolve));
  await clock.nextTurn();
  process.off('warning', note);
  expect(warnings).toEqual([]);
});

test('a time of more than 24 days, which Node would turn into one millisecond, is waited for as a whole', async () => {
  const DAYS_30_MS = 30 * 24 * 3_600_000;
  vi.useFakeTimers();
  try {
    const [late, never, cancelled] = [vi.fn<() => void>(), vi.fn<() => void>(), vi.fn<() => void>()];
    const clock = systemClock();
    clock.after(DAYS_30_MS, late);
    clock.after(Infinity, never);
    const cancel = clock.after(DAYS_30_MS, cancelled);
    const slept = vi.fn<() => void>();
    void clock.sleep(DAYS_30_MS).then(slept);
    await vi.advanceTimersByTimeAsync(DAYS_30_MS - 1);
    expect([late.mock.calls.length, slept.mock.calls.length]).toEqual([0, 0]);
    cancel();
    await vi.advanceTimersByTimeAsync(1);
    expect([late.mock.calls.length, slept.mock.calls.length]).toEqual([1, 1]);
    await vi.advanceTimersByTimeAsync(2 * DAYS_30_MS);
    expect([never.mock.calls.length, cancelled.mock.calls.length]).toEqual([0, 0]);
  } finally {
    vi.useRealTimers();
  }
});
