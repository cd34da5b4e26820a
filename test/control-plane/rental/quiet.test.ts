// The quiet time after an absence of the control plane.
import { expect, test } from 'vitest';
import {
  isQuiet,
  openQuiet,
  OWN_OUTAGE_MS_MIN,
  QUIET_AFTER_START_MS,
} from '../../../control-plane/rental/instances/quiet.ts';

const START_MS = 1_000_000_000;

/** A clock that a test sets, and the quiet time of a process that starts now. */
function startNow() {
  let nowMs = START_MS;
  const quiet = openQuiet({ now: () => nowMs });
  return { quiet, wait: (ms: number): number => (nowMs += ms) };
}

test('the quiet time follows the start, and what began before the start is not judged in it', () => {
  const { quiet } = startNow();
  const endMs = START_MS + QUIET_AFTER_START_MS;
  expect(quiet).toMatchObject({ fromMs: START_MS, untilMs: endMs });
  expect(isQuiet(START_MS - 1, quiet, endMs - 1)).toBe(true);
  expect(isQuiet(START_MS - 1, quiet, endMs)).toBe(false);
  expect(isQuiet(START_MS, quiet, START_MS)).toBe(false);
});

test.each([
  ['a minute', OWN_OUTAGE_MS_MIN, false],
  ['a millisecond more', OWN_OUTAGE_MS_MIN + 1, true],
])('a process that stood still for %s sees that at the first look, before its next beat', (_, stillMs, isAway) => {
  const { quiet, wait } = startNow();
  wait(10_000);
  quiet.noteAlive();
  const backMs = wait(stillMs);
  const fromMs = isAway ? backMs : START_MS;
  expect(quiet.fromMs).toBe(fromMs);
  quiet.noteAlive();
  wait(1_000);
  expect(quiet).toMatchObject({ fromMs, untilMs: fromMs + QUIET_AFTER_START_MS });
});

test('a secondary that becomes the primary begins it anew, however long it has run', () => {
  const { quiet, wait } = startNow();
  const leadMs = wait(3_600_000);
  quiet.begin();
  wait(OWN_OUTAGE_MS_MIN - 1);
  quiet.noteAlive();
  wait(1_000);
  expect(quiet).toMatchObject({ fromMs: leadMs, untilMs: leadMs + QUIET_AFTER_START_MS });
});

test('the beat itself sees that the process stood still', () => {
  const { quiet, wait } = startNow();
  quiet.noteAlive();
  const backMs = wait(3_600_000);
  quiet.noteAlive();
  wait(10_000);
  expect(quiet.fromMs).toBe(backMs);
});

test('the quiet time lasts while the process cannot write its beat, and two minutes longer', () => {
  const { quiet, wait } = startNow();
  quiet.noteAlive();
  for (let minute = 0; minute < 60; minute += 1) {
    expect(quiet.untilMs).toBeGreaterThan(wait(61_000));
  }
  const backMs = wait(59_000);
  quiet.noteAlive();
  wait(1_000);
  expect(quiet.untilMs).toBe(backMs + QUIET_AFTER_START_MS);
});

test('beats that come in time never renew the quiet time', () => {
  const { quiet, wait } = startNow();
  for (let beat = 0; beat < 1_000; beat += 1) {
    quiet.noteAlive();
    wait(OWN_OUTAGE_MS_MIN);
  }
  expect(quiet.fromMs).toBe(START_MS);
});

test('a clock that is set back makes the quiet time no longer', () => {
  const { quiet, wait } = startNow();
  quiet.noteAlive();
  const backMs = wait(-3_600_000);
  expect(quiet.untilMs).toBe(backMs + QUIET_AFTER_START_MS);
});
