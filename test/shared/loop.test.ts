// Loops: they run at once, on their period and on a nudge, never twice at a time, and survive a throw.
import { expect, test } from 'vitest';
import { createLog } from '../../shared/log.ts';
import { startLoop } from '../../shared/loop.ts';
import { virtualClock } from '../kit/virtual-clock.ts';

const log = createLog('test', 'silent');

test('a loop with a period of a minute runs 1,441 times in a day', async () => {
  const clock = virtualClock();
  let runs = 0;
  const loop = startLoop({ name: 'l', periodMs: 60_000, run: async () => void (runs += 1) }, { clock, log });
  await clock.advance(24 * 3_600_000);
  expect(runs).toBe(24 * 60 + 1);
  await loop.stop();
});

test('nudges during a run lead to exactly one more run, after it', async () => {
  const clock = virtualClock();
  let runs = 0;
  let atOnce = 0;
  let atOnceMax = 0;
  const run = async (): Promise<void> => {
    atOnce += 1;
    atOnceMax = Math.max(atOnceMax, atOnce);
    runs += 1;
    await clock.sleep(1000);
    atOnce -= 1;
  };
  const loop = startLoop({ name: 'l', periodMs: 3_600_000, run }, { clock, log });
  await clock.advance(500);
  loop.nudge();
  loop.nudge();
  await clock.advance(10_000);
  expect([runs, atOnceMax]).toEqual([2, 1]);
  loop.nudge();
  await clock.advance(10_000);
  expect(runs).toBe(3);
  await loop.stop();
});

test('a loop with a gap answers the first nudge at once, and all nudges within the gap with one run after it', async () => {
  const clock = virtualClock();
  let runs = 0;
  const run = async (): Promise<void> => void (runs += 1);
  const loop = startLoop({ name: 'l', periodMs: 3_600_000, gapMs: 200, run }, { clock, log });
  await clock.advance(1_000);
  loop.nudge();
  await clock.advance(0);
  expect(runs).toBe(2);
  loop.nudge();
  await clock.advance(100);
  loop.nudge();
  await clock.advance(99);
  expect(runs).toBe(2);
  await clock.advance(1);
  expect(runs).toBe(3);
  await clock.advance(10_000);
  expect(runs).toBe(3);
  await loop.stop();
});

test.each([
  ['so many times as long as it took', 30, 600],
  ['and at least the shortest pause', 5, 200],
  ['and at most a period', 500, 5_000],
])('after a run, a loop that nudges wake pauses %s', async (_what, tookMs, pauseMs) => {
  const clock = virtualClock();
  let runs = 0;
  const run = (): Promise<void> => {
    runs += 1;
    return clock.sleep(tookMs);
  };
  const loop = startLoop({ name: 'l', periodMs: 5_000, gapMs: 200, gapOfRun: 20, run }, { clock, log });
  loop.nudge();
  await clock.advance(tookMs + pauseMs - 1);
  expect(runs).toBe(1);
  await clock.advance(1);
  expect(runs).toBe(2);
  const stopped = loop.stop();
  await clock.advance(tookMs);
  await stopped;
});

test('a run that throws is visible and tried again', async () => {
  const clock = virtualClock();
  let runs = 0;
  const run = async (): Promise<void> => {
    runs += 1;
    if (runs === 1) throw new Error('once');
  };
  const loop = startLoop({ name: 'l', periodMs: 1000, run }, { clock, log });
  await clock.advance(0);
  expect(loop.status()).toMatchObject({ runs: 1, last_error: 'once', running: false });
  await clock.advance(1000);
  expect(loop.status()).toMatchObject({ runs: 2, last_error: null });
  await loop.stop();
});

test('a failure that is reported elsewhere is in the status, and not in the log', async () => {
  const clock = virtualClock();
  const lines: string[] = [];
  const heard = createLog('test', 'info', { write: (line) => void lines.push(line) });
  const failures = [new Error('known'), new Error('new')];
  const run = async (): Promise<void> => {
    throw failures.shift() ?? new Error('none is left');
  };
  const isReported = (error: unknown): boolean => error instanceof Error && error.message === 'known';
  const loop = startLoop({ name: 'l', periodMs: 1000, run }, { clock, log: heard, isReported });
  await clock.advance(0);
  expect(loop.status()).toMatchObject({ runs: 1, last_error: 'known' });
  expect(lines).toEqual([]);
  await clock.advance(1000);
  expect(lines).toHaveLength(1);
  await loop.stop();
});

test('stop waits for the run under way and lets no other begin', async () => {
  const clock = virtualClock();
  let finished = 0;
  const run = async (): Promise<void> => {
    await clock.sleep(1000);
    finished += 1;
  };
  const loop = startLoop({ name: 'l', periodMs: 1000, run }, { clock, log });
  await clock.advance(10);
  const stopping = loop.stop();
  loop.nudge();
  await clock.advance(10_000);
  await stopping;
  expect(finished).toBe(1);
});

test.each([3_600_000, -3_600_000])(
  'a step of the wall clock by %i ms makes no loop look as if it had run at another time',
  async (stepMs) => {
    const clock = virtualClock();
    const loop = startLoop({ name: 'l', periodMs: 60_000, run: async () => undefined }, { clock, log });
    await clock.advance(90_000);
    clock.step(stepMs);
    const ranMs = clock.now() - 30_000;
    expect(loop.status()).toMatchObject({ last_started_ms: ranMs, last_success_ms: ranMs });
    await loop.stop();
  },
);
