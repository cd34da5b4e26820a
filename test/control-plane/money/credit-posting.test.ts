// The transfers of held credits and of decisions about them: whatever the amounts, nothing is left over and nothing is lost.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { decisionOf, holdingOf } from '../../../control-plane/money/credits/posting.ts';
import type { HeldCredit } from '../../../control-plane/money/credits/store.ts';

const ROW: HeldCredit = {
  id: 'crd_1',
  kind: 'credit',
  why: 'org_bound',
  state: 'held',
  subject_id: 'i-1',
  org_id: 'o',
  supplier_id: 's',
  free_time_id: null,
  cause: 'outage',
  amount_ucents: 1n,
  wallet_ucents: 1n,
  supplier_bps: 8_000,
  from_ms: 0,
  until_ms: 1,
  evidence: 'probes',
  note: null,
  created_ms: 0,
  decided_ms: null,
};

/** Amounts of a few microcents, so that each leg is often 0 or 1. */
const anyRow = fc
  .record({
    wallet: fc.bigInt({ min: 0n, max: 3n }),
    shortfall: fc.bigInt({ min: 0n, max: 3n }),
    bps: fc.constantFrom(0, 8_000, 10_000),
    cause: fc.constantFrom('outage' as const, 'gpu_fault' as const, 'own_outage' as const),
  })
  .map(({ wallet, shortfall, bps, cause }) => ({
    ...ROW,
    amount_ucents: wallet + shortfall,
    wallet_ucents: wallet,
    supplier_bps: bps,
    cause,
  }));

test('what a credit holds, its decision takes out again, to the microcent', () => {
  fc.assert(
    fc.property(anyRow, fc.constantFrom('released' as const, 'refused' as const), (row, state) => {
      const legs = [...holdingOf(row), ...decisionOf(row, state)];
      expect(legs.every(({ amountUcents }) => amountUcents > 0n)).toBe(true);
      const held = legs.map(({ debit, credit, amountUcents }) =>
        credit.kind === 'credit_suspense' ? amountUcents : debit.kind === 'credit_suspense' ? -amountUcents : 0n,
      );
      expect(held.filter((ucents) => ucents > 0n).reduce((sum, ucents) => sum + ucents, 0n)).toBe(row.amount_ucents);
      expect(held.reduce((sum, ucents) => sum + ucents, 0n)).toBe(0n);
    }),
  );
});
