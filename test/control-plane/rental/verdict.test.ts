// The rules of verdicts on a series of probes, each at both edges.
import { expect, test } from 'vitest';
import {
  afterProbe,
  type FleetView,
  isDown,
  type ProbeOutcome,
  reprobeMs,
  type Series,
  verdict,
  WELL,
} from '../../../control-plane/rental/outages/verdict.ts';
import { QUIET_AFTER_START_MS, type Quiet } from '../../../control-plane/rental/instances/quiet.ts';
import { GRACE_MS } from '../../../shared/limits.ts';

const START_MS = 1_000_000_000;
const fleet: FleetView = {
  quiet: cameBack(START_MS - QUIET_AFTER_START_MS),
  togetherSinceMs: null,
  togetherUntilMs: null,
  steps: [],
};

/** The quiet time if the control plane came back then. */
function cameBack(fromMs: number): Quiet {
  return { fromMs, untilMs: fromMs + QUIET_AFTER_START_MS };
}

/** A probe that began at this time and took half a second. The last proof of life was five seconds before the first one. */
function look(atMs: number, patch: Partial<ProbeOutcome> = {}): ProbeOutcome {
  return {
    ok: false,
    startMs: START_MS + atMs,
    endMs: START_MS + atMs + 500,
    lifeMs: START_MS - 5_000,
    hostFailedMs: null,
    ...patch,
  };
}

const after = (...looks: ProbeOutcome[]): Series => looks.reduce(afterProbe, WELL);
const standing = (atMs: number, isAnswering: boolean, unreachableSinceMs: number | null = null) => ({
  isAnswering,
  isSettled: true,
  unreachableSinceMs,
  nowMs: START_MS + atMs,
});

test('a silent host is down after two failures, twenty seconds after its last proof of life', () => {
  const series = after(look(0), look(10_000));
  expect(verdict(series, standing(14_999, false), fleet)).toBe('as it is');
  expect(verdict(series, standing(15_000, false), fleet)).toBe('confirm');
  expect(verdict(after(look(0)), standing(60_000, false), fleet)).toBe('as it is');
  expect(series.lifeMs).toBe(START_MS - 5_000);
});

test('one late login replaces no holder, because that would end the sessions of the customer', () => {
  expect(verdict(after(look(0)), standing(5_000, true), fleet)).toBe('as it is');
  expect(verdict(after(look(0), look(2_500)), standing(3_000, true), fleet)).toBe('repair');
  const said = after(look(0, { hostFailedMs: START_MS - 2_000 }));
  expect(verdict(said, standing(500, true), fleet)).toBe('repair');
});

test('a host that answers replaces the holder first, and only what fails after that is an outage', () => {
  const repaired = { ...after(look(0), look(2_500), look(12_000)), repairMs: START_MS + 11_000 };
  expect(verdict(repaired, standing(20_999, true), fleet)).toBe('as it is');
  expect(verdict(repaired, standing(21_000, true), fleet)).toBe('confirm');
  const never = { ...repaired, repairMs: null };
  expect(verdict(never, standing(600_000, true), fleet)).toBe('repair');
  const two = { ...after(look(0), look(2_500)), repairMs: START_MS };
  expect(verdict(two, standing(600_000, true), fleet)).toBe('as it is');
});

test('a host whose link has just come up replaces nothing: its agent finds the holders first', () => {
  const two = after(look(0), look(2_500));
  expect(verdict(two, { ...standing(3_000, true), isSettled: false }, fleet)).toBe('as it is');
  expect(verdict(two, standing(3_000, true), fleet)).toBe('repair');
});

test('a host that opens a new link every few seconds replaces its holder twenty seconds after the first failure', () => {
  const two = after(look(0), look(2_500));
  const unsettled = (atMs: number) => ({ ...standing(atMs, true), isSettled: false });
  expect(verdict(two, unsettled(19_999), fleet)).toBe('as it is');
  expect(verdict(two, unsettled(20_000), fleet)).toBe('repair');
});

test('a repair is requested once in a series of failures, and again in the next series', () => {
  const repaired = { ...after(look(0), look(2_500)), repairMs: START_MS + 3_000 };
  expect(verdict(afterProbe(repaired, look(5_000)), standing(5_500, true), fleet)).toBe('as it is');
  const well = afterProbe(repaired, look(5_000, { ok: true }));
  const again = afterProbe(afterProbe(well, look(30_000)), look(32_500));
  expect(verdict(again, standing(33_000, true), fleet)).toBe('repair');
});

test('an outage begins with the last proof of life, however it was shown, and never after the first failure', () => {
  expect(after(look(0, { lifeMs: START_MS - 300 })).lifeMs).toBe(START_MS - 300);
  expect(after(look(0, { lifeMs: START_MS + 400 })).lifeMs).toBe(START_MS);
  // A proof of life during the failures does not move the beginning of the outage.
  expect(after(look(0), look(2_500, { lifeMs: START_MS + 2_000 })).lifeMs).toBe(START_MS - 5_000);
  expect(after(look(0, { lifeMs: null })).lifeMs).toBe(START_MS);
});

test('a proof of life that is old because there was no probe credits one minute at most', () => {
  expect(after(look(0, { lifeMs: START_MS - 60_000 })).lifeMs).toBe(START_MS - 60_000);
  expect(after(look(0, { lifeMs: START_MS - 60_001 })).lifeMs).toBe(START_MS - 60_000);
});

test('a report of the host itself counts as the first failure, as soon as a probe fails too', () => {
  const said = after(look(0, { hostFailedMs: START_MS - 2_000 }));
  expect(said).toMatchObject({ firstFailureMs: START_MS - 2_000, failures: 2 });
  const good = after(look(0, { ok: true, hostFailedMs: START_MS - 2_000 }));
  expect(good).toMatchObject({ firstFailureMs: null, failures: 0 });
});

test('two good probes end an outage, which lasted until the first of them', () => {
  const down = after(look(0), look(10_000));
  const once = afterProbe(down, look(60_000, { ok: true }));
  expect(verdict(once, standing(60_500, true, START_MS), fleet)).toBe('as it is');
  const twice = afterProbe(once, look(62_500, { ok: true }));
  expect(verdict(twice, standing(63_000, true, START_MS), fleet)).toBe('recover');
  expect(twice.firstSuccessMs).toBe(START_MS + 60_500);
  const relapsed = afterProbe(afterProbe(once, look(62_500)), look(65_000, { ok: true }));
  expect(relapsed).toMatchObject({ successes: 1, firstSuccessMs: START_MS + 65_500 });
});

test('a rental is given up at the end of its grace, and not before', () => {
  const down = after(look(0), look(10_000));
  expect(verdict(down, standing(GRACE_MS - 1, false, START_MS), fleet)).toBe('as it is');
  expect(verdict(down, standing(GRACE_MS, false, START_MS), fleet)).toBe('give up');
});

test('an outage is held while the control plane has just started, and while many machines fail together', () => {
  const down = after(look(0), look(10_000));
  const fresh = { ...fleet, quiet: cameBack(START_MS + 20_000 - QUIET_AFTER_START_MS + 1) };
  expect(verdict(down, standing(20_000, false), fresh)).toBe('as it is');
  expect(isDown(down, standing(20_000, false))).toBe(true);
  const together = { ...fleet, togetherSinceMs: START_MS };
  expect(verdict(down, standing(599_999, false), together)).toBe('hold');
  expect(verdict({ ...down, isHeld: true }, standing(599_999, false), together)).toBe('as it is');
  expect(verdict(down, standing(600_000, false), together)).toBe('confirm');
  const both = { ...together, quiet: fresh.quiet };
  expect(verdict(down, standing(20_000, false), both)).toBe('as it is');
});

test('an outage that was held is made good after two good probes in a row, and its beginning stays', () => {
  const together = { ...fleet, togetherSinceMs: START_MS };
  const held = { ...after(look(0), look(10_000)), isHeld: true };
  const once = afterProbe(held, look(60_000, { ok: true }));
  expect(verdict(once, standing(60_500, true), fleet)).toBe('as it is');
  const twice = afterProbe(once, look(62_500, { ok: true }));
  for (const seen of [fleet, together]) expect(verdict(twice, standing(63_000, true), seen)).toBe('make good');
  expect(twice).toMatchObject({ lifeMs: START_MS - 5_000, firstSuccessMs: START_MS + 60_500 });
  // It goes on. The hold ends, or a link that is back shows that the holder is broken.
  const relapsed = afterProbe(once, look(62_500));
  expect(relapsed).toMatchObject({ lifeMs: START_MS - 5_000, failures: 3, successes: 0, isHeld: true });
  expect(verdict(relapsed, standing(63_000, true), fleet)).toBe('confirm');
  expect(verdict(relapsed, standing(63_000, true), together)).toBe('repair');
  expect(isDown(relapsed, standing(63_000, true))).toBe(true);
});

test('a failing instance is probed every two seconds for two minutes, then every ten, and soon again after a good probe', () => {
  const failing = after(look(0));
  const nextMs = (atMs: number, series = failing): number => reprobeMs(series, START_MS + atMs) - START_MS - atMs;
  expect([nextMs(500), nextMs(120_000), nextMs(120_001)]).toEqual([2_000, 2_000, 10_000]);
  const held = { ...failing, isHeld: true };
  expect(nextMs(600_000, afterProbe(held, look(599_000, { ok: true })))).toBe(2_000);
});

test('no rental is given up while the control plane has just started: its host may still reconnect', () => {
  const down = after(look(0), look(10_000));
  const fresh = { ...fleet, quiet: cameBack(START_MS + GRACE_MS - QUIET_AFTER_START_MS + 1) };
  expect(verdict(down, standing(GRACE_MS, false, START_MS), fresh)).toBe('as it is');
  expect(verdict(down, standing(GRACE_MS + 1, false, START_MS), fresh)).toBe('give up');
});

test('time that a wall clock has skipped since the outage began does not end a rental', () => {
  const down = after(look(0), look(10_000));
  const step = (fromMs: number, untilMs: number) => ({ fromMs: START_MS + fromMs, untilMs: START_MS + untilMs });
  const stepped = { ...fleet, steps: [step(-60_000, 5_000), step(60_000, 70_000), step(GRACE_MS, 2 * GRACE_MS)] };
  const lastedMs = 2 * GRACE_MS + 15_000;
  expect(verdict(down, standing(lastedMs - 1, false, START_MS), stepped)).toBe('as it is');
  expect(verdict(down, standing(lastedMs, false, START_MS), stepped)).toBe('give up');
});

test.each([
  ['before it', -GRACE_MS],
  ['in it', 1],
])('an outage ends after half an hour, also if the clock was set far forward %s and back again', (_when, fromMs) => {
  const down = after(look(0), look(10_000));
  const stepped = { ...fleet, steps: [{ fromMs: START_MS + fromMs, untilMs: START_MS + 100 * GRACE_MS }] };
  expect(verdict(down, standing(GRACE_MS - 1, false, START_MS), stepped)).toBe('as it is');
  expect(verdict(down, standing(GRACE_MS, false, START_MS), stepped)).toBe('give up');
});

test('no rental is given up while many machines fail together, for a day at most, and until two minutes after that', () => {
  const down = after(look(0), look(10_000));
  const together = { ...fleet, togetherSinceMs: START_MS, togetherUntilMs: START_MS + GRACE_MS };
  const DAY_MS = 24 * 3_600_000;
  expect(verdict(down, standing(GRACE_MS, false, START_MS), together)).toBe('as it is');
  expect(verdict(down, standing(DAY_MS - 1, false, START_MS), together)).toBe('as it is');
  expect(verdict(down, standing(DAY_MS, false, START_MS), together)).toBe('give up');
  const apart = { ...together, togetherSinceMs: null };
  expect(verdict(down, standing(GRACE_MS + 119_999, false, START_MS), apart)).toBe('as it is');
  expect(verdict(down, standing(GRACE_MS + 120_000, false, START_MS), apart)).toBe('give up');
});
