// The term of a contract: when it begins and ends, what follows it, and when its end is soon. Both edges of each bound.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { daysUntilEnd, nextStep, type Standing, standing } from '../../../control-plane/rental/reservations/term.ts';
import { mayMove, RESERVATION_STATES } from '../../../shared/states.ts';

const DAY_MS = 24 * 3_600_000;
const at = (text: string): number => Date.parse(`${text}Z`);
const contract = (patch: Partial<Standing> = {}): Standing => ({
  status: 'pending',
  renewal: 'none',
  starts_ms: at('2026-01-01T00:00'),
  ends_ms: at('2026-02-01T00:00'),
  first_ms: patch.starts_ms ?? at('2026-01-01T00:00'),
  ...patch,
});

describe('a contract', () => {
  // Specification 2.7: starts_at is the term start, ends_at its end, exclusive.
  test('is active from starts_at on, and no longer at ends_at: the end is exclusive', () => {
    const statusAt = (text: string): string => standing(contract(), at(text)).status;
    expect(statusAt('2025-12-31T23:59:59.999')).toBe('pending');
    expect(statusAt('2026-01-01T00:00')).toBe('active');
    expect(statusAt('2026-01-31T23:59:59.999')).toBe('active');
    expect(statusAt('2026-02-01T00:00')).toBe('expired');
  });

  test('that is suspended is not renewed and expires at its end; one that is over stays over', () => {
    const late = at('2026-06-01T00:00');
    expect(standing(contract({ status: 'suspended', renewal: 'auto_renew' }), late).status).toBe('expired');
    expect(standing(contract({ status: 'suspended' }), at('2026-01-15T00:00')).status).toBe('suspended');
    expect(standing(contract({ status: 'cancelled', renewal: 'auto_renew' }), late).status).toBe('cancelled');
    expect(standing(contract({ status: 'active', renewal: 'manual' }), late).status).toBe('expired');
  });

  // Specification 2.7: renewal.mode auto_renew: a term of the same length follows.
  test.each([
    ['a month', '2026-01-01T00:00', '2026-02-01T00:00', '2026-03-01T00:00'],
    ['three months with a time of day', '2026-01-15T09:30', '2026-04-15T09:30', '2026-07-15T09:30'],
    ['a year over a leap day', '2027-03-01T00:00', '2028-03-01T00:00', '2029-03-01T00:00'],
    ['two months to a day that the month lacks', '2026-07-31T00:00', '2026-08-31T00:00', '2026-09-30T00:00'],
    ['ten days', '2026-01-01T00:00', '2026-01-11T00:00', '2026-01-21T00:00'],
    ['a month and an hour', '2026-01-01T00:00', '2026-02-01T01:00', '2026-03-04T02:00'],
  ])('with auto_renew is followed by a term of the same length: %s', (_what, starts, ends, next) => {
    const term = { starts_ms: at(starts), ends_ms: at(ends) };
    const renewed = standing(contract({ status: 'active', renewal: 'auto_renew', ...term }), at(ends));
    expect(renewed).toMatchObject({ status: 'active', starts_ms: at(ends), ends_ms: at(next) });
  });

  test('with auto_renew keeps the day of its first term, also after a month that lacks it', () => {
    const term = { starts_ms: at('2026-01-31T08:00'), ends_ms: at('2026-02-28T08:00') };
    const first = contract({ status: 'active', renewal: 'auto_renew', ...term });
    const ends = ['2026-02-28T08:00', '2026-03-31T08:00', '2026-04-30T08:00', '2026-05-31T08:00'];
    const renewed = ends.map((end) => standing(first, at(end)).ends_ms);
    expect(renewed).toEqual([...ends.slice(1), '2026-06-30T08:00'].map(at));
  });

  test('with auto_renew whose end was moved is followed by terms of that length', () => {
    const moved = contract({ status: 'active', renewal: 'auto_renew', ends_ms: at('2026-02-11T00:00') });
    const second = standing(moved, moved.ends_ms);
    expect(second).toMatchObject({ starts_ms: moved.ends_ms, ends_ms: at('2026-03-24T00:00') });
    expect(standing(second, second.ends_ms)).toMatchObject({ ends_ms: at('2026-05-04T00:00') });
  });

  test('with auto_renew catches up over several terms', () => {
    const renewed = standing(contract({ renewal: 'auto_renew' }), at('2026-12-24T18:00'));
    expect(renewed).toMatchObject({ status: 'active', starts_ms: at('2026-12-01T00:00') });
  });

  test('takes only steps that the table allows, and always comes to rest', () => {
    const anyContract = fc.record({
      status: fc.constantFrom<Standing['status']>('pending', 'active', 'suspended', 'expired', 'cancelled'),
      renewal: fc.constantFrom<Standing['renewal']>('auto_renew', 'manual', 'none'),
      starts_ms: fc.integer({ min: 0, max: 1000 * DAY_MS }),
      length: fc.integer({ min: DAY_MS, max: 400 * DAY_MS }),
    });
    fc.assert(
      fc.property(anyContract, fc.integer({ min: 0, max: 3000 * DAY_MS }), ({ length, ...facts }, nowMs) => {
        const whole = { ...facts, first_ms: facts.starts_ms, ends_ms: facts.starts_ms + length };
        let now: Standing = whole;
        for (let step = nextStep(now, nowMs); step !== undefined; step = nextStep(now, nowMs)) {
          const allowed =
            'status' in step
              ? mayMove(RESERVATION_STATES, now.status, step.status)
              : step.starts_ms === now.ends_ms && step.ends_ms > step.starts_ms;
          expect(allowed).toBe(true);
          now = { ...now, ...step };
        }
        expect(now).toEqual(standing(whole, nowMs));
        expect(now.status !== 'active' || nowMs < now.ends_ms).toBe(true);
      }),
      { seed: 21 },
    );
  });
});

// Specification 2.7: renewal.days_until_end counts begun days, and is never negative.
test('a contract expires soon from 14 days before its end, not a moment earlier, and never has less than 0 days', () => {
  const { ends_ms: endsMs } = contract();
  expect(daysUntilEnd(contract(), endsMs - 14 * DAY_MS - 1)).toEqual({ days: 15, isSoon: false });
  expect(daysUntilEnd(contract(), endsMs - 14 * DAY_MS)).toEqual({ days: 14, isSoon: true });
  expect(daysUntilEnd(contract(), endsMs - 1)).toEqual({ days: 1, isSoon: true });
  expect(daysUntilEnd(contract(), endsMs + DAY_MS)).toEqual({ days: 0, isSoon: true });
});
