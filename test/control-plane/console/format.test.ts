// How the console writes money, times and sizes: nothing is lost, and nothing looks like what it is not.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  bytes,
  cents,
  count,
  date,
  dollars,
  duration,
  gpus,
  plural,
  rate,
  relative,
  shortId,
  time,
} from '../../../control-plane/console/web/core/format.ts';
import { createIds } from '../../../shared/ids.ts';
import { seededRng } from '../../../shared/rng.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

const NOON_MS = Date.UTC(2026, 10, 22, 12);
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const ago = (ms: number): string => new Date(NOON_MS - ms).toISOString();

describe('dollars', () => {
  test.each([
    [12.1, 2, '$12.10'],
    ['0.005', 2, '$0.01'],
    [1_234_567.891, 2, '$1,234,567.89'],
    [1.2345, 4, '$1.2345'],
    [-0.02, 2, '−$0.02'],
    [-0.001, 2, '$0.00'],
    [0, 2, '$0.00'],
  ])('%s with %i digits is %s', (amount, digits, text) => {
    expect(dollars(amount, digits)).toBe(text);
  });

  test('of whole cents are exact', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 1e12 }), (amount) => {
        const digits = cents(amount).replaceAll(/[$,.]/g, '');
        expect(Number(digits)).toBe(amount);
      }),
    );
  });
});

describe('a rate', () => {
  test.each([
    [2.19, '$2.19'],
    [2, '$2.00'],
    [0.001221, '$0.001221'],
    [0.00000001, '$0.00000001'],
    [0.3000000000000004, '$0.30'],
  ])('of %d is %s', (amount, text) => {
    expect(rate(amount)).toBe(text);
  });

  test('loses no microcent, and has no needless zero', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 1e12 }), (ucents) => {
        const text = rate(ucents / 1e8);
        expect(text).toMatch(/^\$[\d,]+\.(\d\d|\d\d+[1-9])$/);
        expect(Math.round(Number(text.replaceAll(/[$,]/g, '')) * 1e8)).toBe(ucents);
      }),
    );
  });
});

describe('a duration', () => {
  test.each([
    [-5, '0 s'],
    [0, '0 s'],
    [59.9, '59 s'],
    [60, '1 m 0 s'],
    [3_599, '59 m 59 s'],
    [3_600, '1 h 0 m'],
    [86_399, '23 h 59 m'],
    [86_400, '1 d 0 h'],
    [10 * 86_400 + 3_600, '10 d 1 h'],
  ])('of %d seconds is %s', (seconds, text) => {
    expect(duration(seconds)).toBe(text);
  });

  test('is never more than it says, and less than one of its smaller unit off', () => {
    const lengths: Record<string, number> = { d: 86_400, h: 3_600, m: 60, s: 1 };
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 400 * 86_400 }), (seconds) => {
        const parts = [...duration(seconds).matchAll(/(\d+) ([dhms])/g)];
        const said = parts.reduce((sum, [, amount, unit = '']) => sum + Number(amount) * (lengths[unit] ?? NaN), 0);
        const smallest = lengths[parts.at(-1)?.[2] ?? ''] ?? NaN;
        expect(seconds - said).toBeGreaterThanOrEqual(0);
        expect(seconds - said).toBeLessThan(smallest);
      }),
    );
  });
});

describe('a moment', () => {
  test('of today is a time, of another day a date and a time, in UTC', () => {
    expect(time('2026-11-22T00:00:00Z', NOON_MS)).toBe('00:00:00');
    expect(time('2026-11-22T23:59:59Z', NOON_MS)).toBe('23:59:59');
    expect(time('2026-11-21T23:59:59Z', NOON_MS)).toBe('21 Nov 23:59');
    expect(time('2026-11-23T00:30:00+02:00', NOON_MS)).toBe('22:30:00');
  });

  test('has its year if that is another one', () => {
    expect(date('2026-01-01T00:00:00Z', NOON_MS)).toBe('1 Jan');
    expect(date('2025-12-31T23:59:59Z', NOON_MS)).toBe('31 Dec 2025');
  });

  test.each([
    [999, 'now'],
    [-999, 'now'],
    [1_000, '1 s ago'],
    [4 * MINUTE_MS + 10_000, '4 m 10 s ago'],
    [-(3 * HOUR_MS + 2 * MINUTE_MS), 'in 3 h 2 m'],
    [DAY_MS, '1 d 0 h ago'],
  ])('%i ms before now is %s', (ms, text) => {
    expect(relative(ago(ms), NOON_MS)).toBe(text);
  });
});

describe('a size', () => {
  test.each([
    [0, '0 B'],
    [999, '999 B'],
    [1_000, '1.0 kB'],
    [9_949, '9.9 kB'],
    [9_999, '10 kB'],
    [999_999, '1.0 MB'],
    [6_100_000_000, '6.1 GB'],
    [5e15, '5000 TB'],
  ])('of %d bytes is %s', (amount, text) => {
    expect(bytes(amount)).toBe(text);
  });

  test('has at most three digits before its unit, and is right to a twentieth', () => {
    const units = ['B', 'kB', 'MB', 'GB', 'TB'];
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 9.9e14 }), (amount) => {
        const [, digits = '', unit = ''] = /^(\d{1,3}(?:\.\d)?) (\w+)$/.exec(bytes(amount)) ?? [];
        const said = Number(digits) * 1_000 ** units.indexOf(unit);
        expect(Math.abs(said - amount) / amount).toBeLessThanOrEqual(0.05);
      }),
    );
  });
});

test('counts have separators, and one thing is not several', () => {
  expect(count(1_234_567)).toBe('1,234,567');
  expect([plural(0, 'image'), plural(1, 'image'), plural(2_000, 'image')]).toEqual([
    '0 images',
    '1 image',
    '2,000 images',
  ]);
  expect(gpus(4, 'H100_SXM_80')).toBe('4 × H100 SXM 80');
});

test('short forms of ids of the same minute differ', () => {
  const ids = createIds(virtualClock(NOON_MS), seededRng(1));
  const shown = Array.from({ length: 100 }, () => shortId(ids.uuid()));
  expect(new Set(shown).size).toBe(100);
  expect(shortId('01a22b84-7c1e-7000-8000-0123456789ab')).toBe('456789ab');
});
