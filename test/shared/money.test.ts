// Exact money: cumulative amounts add up, whatever the pieces, and dollars come in and go out without loss.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  accruedUcents,
  centsFloor,
  dollarsFromUcents,
  dollarText,
  nearestUcents,
  shortDollarText,
  supplierPartUcents,
  ucentsFromDollars,
} from '../../shared/money.ts';

const rate = fc.bigInt({ min: 0n, max: 25_000_000_000n });
const cuts = fc.array(fc.integer({ min: 0, max: 31 * 24 * 3_600_000 }), { minLength: 1, maxLength: 50 });

describe('cumulative amounts', () => {
  test('cut anywhere add up to the whole', () => {
    fc.assert(
      fc.property(rate, cuts, fc.integer({ min: 0, max: 10_000 }), (ucentsPerHour, times, bps) => {
        const points = [0, ...times.toSorted((a, b) => a - b)];
        let cost = 0n;
        let supplier = 0n;
        let cents = 0n;
        for (const [i, until] of points.entries()) {
          const before = accruedUcents(ucentsPerHour, points[i - 1] ?? 0);
          const after = accruedUcents(ucentsPerHour, until);
          cost += after - before;
          supplier += supplierPartUcents(after, bps) - supplierPartUcents(before, bps);
          cents += centsFloor(after) - centsFloor(before);
        }
        const whole = accruedUcents(ucentsPerHour, points.at(-1) ?? 0);
        expect([cost, supplier, cents]).toEqual([whole, supplierPartUcents(whole, bps), centsFloor(whole)]);
        expect(supplier).toBeLessThanOrEqual(cost);
      }),
    );
  });

  test('of thirty days at $0.37 an hour are $266.40, not what rounding by the minute makes of it', () => {
    expect(accruedUcents(37_000_000n, 30 * 24 * 3_600_000)).toBe(26_640_000_000n);
  });

  test('of a credit round the same way as those of a charge', () => {
    expect([centsFloor(-1n), centsFloor(-1_000_000n), centsFloor(-1_000_001n)]).toEqual([-1n, -1n, -2n]);
  });
});

describe('dollars', () => {
  test.each([
    [1.29, 129_000_000n],
    [0.00000001, 1n],
    [0.1, 10_000_000n],
    [19.99, 1_999_000_000n],
    [1_000_000, 100_000_000_000_000n],
    [-2.5, -250_000_000n],
  ])('%d are %d microcents, and back', (dollars, ucents) => {
    expect(ucentsFromDollars(dollars)).toBe(ucents);
    expect(dollarsFromUcents(ucents)).toBe(dollars);
  });

  test.each([Number.NaN, Number.POSITIVE_INFINITY, 0.123456789, 1.5e-8, 1e-9, 1e21])(
    'that no microcent can say are refused: %d',
    (dollars) => {
      expect(ucentsFromDollars(dollars)).toBeUndefined();
    },
  );

  test.each([
    [3 * 2.49, 747_000_000n],
    [7.469999999999999, 747_000_000n],
    [0.000000014, 1n],
    [1_000_000, 100_000_000_000_000n],
    [999_999.99999999, 99_999_999_999_999n],
  ])('that were worked out, %d, are the nearest microcents', (dollars, ucents) => {
    expect(nearestUcents(dollars)).toBe(ucents);
  });

  test('are written with all that counts', () => {
    const texts = [129_000_000n, 1n, 0n, -1_200n, 100_000_000n].map(dollarText);
    expect(texts).toEqual(['1.29', '0.00000001', '0.00', '-0.000012', '1.00']);
  });
});

test.each([
  [166_666_666n, '1.6667', '1.6666'],
  [200_000_000n, '2.00', '2.00'],
  [13_145_556n, '0.1315', '0.1314'],
  [500n, '0.0001', '0.00'],
  [-500n, '0.00', '-0.0001'],
])('%s microcents have two to four decimals: at most $%s, at least $%s', (ucents, up, down) => {
  expect([shortDollarText(ucents, 'up'), shortDollarText(ucents, 'down')]).toEqual([up, down]);
});
