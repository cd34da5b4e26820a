// Bounds on credits: the tightest one decides, and only an organisation that fails on machines that serve others well is suspected.
import { describe, expect, test } from 'vitest';
import { type Bound, isSuspect, splitAt } from '../../../control-plane/money/credits/bounds.ts';

describe('a credit', () => {
  const org = (usedUcents: bigint, maxUcents = 100n): Bound => ({ why: 'org_bound', usedUcents, maxUcents });
  const supplier = (usedUcents: bigint): Bound => ({ why: 'supplier_bound', usedUcents, maxUcents: 500n });

  test.each([
    ['far below', { used: 0n, worth: 60n }, [60n, 0n]],
    ['that fills the bound exactly', { used: 40n, worth: 60n }, [60n, 0n]],
    ['one above the bound', { used: 40n, worth: 61n }, [60n, 1n]],
    ['when nothing is left', { used: 100n, worth: 1n }, [0n, 1n]],
    ['when more was given than the bound, because it was lowered', { used: 700n, worth: 5n }, [0n, 5n]],
    ['of nothing', { used: 100n, worth: 0n }, [0n, 0n]],
  ] as const)('is split at the bound: %s', (_what, { used, worth }, [grantedUcents, heldUcents]) => {
    expect(splitAt(worth, [org(used), supplier(0n)])).toEqual({ grantedUcents, heldUcents, why: 'org_bound' });
  });

  test('is limited by the tightest bound', () => {
    expect(splitAt(90n, [org(0n), supplier(450n)])).toEqual({
      grantedUcents: 50n,
      heldUcents: 40n,
      why: 'supplier_bound',
    });
    expect(splitAt(90n, [org(99n), supplier(450n)])).toEqual({ grantedUcents: 1n, heldUcents: 89n, why: 'org_bound' });
  });
});

describe('a tenant is suspected', () => {
  const well = new Set(['a', 'b', 'c']);
  test.each([
    ['for five outages on two machines that serve others well', ['a', 'a', 'a', 'b', 'b'], true],
    ['not for four', ['a', 'a', 'b', 'b'], false],
    ['not for many on one machine', ['a', 'a', 'a', 'a', 'a', 'a', 'a'], false],
    ['not for outages on machines that serve others badly or not at all', ['x', 'x', 'y', 'y', 'y', 'a', 'b'], false],
    ['for five telling ones among others', ['x', 'a', 'y', 'b', 'c', 'a', 'b'], true],
    ['not without outages', [], false],
  ])('%s', (_what, machineIds, expected) => {
    expect(isSuspect(machineIds, well)).toBe(expected);
  });
});
