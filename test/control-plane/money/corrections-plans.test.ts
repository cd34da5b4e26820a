// The arithmetic of corrections: what is left to refund, who gives it back, and in which parts.
import { describe, expect, test } from 'vitest';
import { partsOfRefund, partsOfUndone, transfersOf } from '../../../control-plane/money/corrections/posting.ts';
import { splitOf, standingOf, takenFrom } from '../../../control-plane/money/corrections/refundable.ts';
import type { Correction } from '../../../control-plane/money/corrections/store.ts';
import type { SubjectEntry } from '../../../control-plane/money/ledger/wallets.ts';

const entry = (account: string, kind: string, net: bigint): SubjectEntry => ({
  account_id: account,
  kind,
  net_ucents: net,
});
const sum = (amounts: readonly bigint[]): bigint => amounts.reduce((total, ucents) => total + ucents, 0n);
/** A charge of 10: the supplier got 8, and the platform got 2. */
const CHARGE = [
  entry('customer_wallet:o', 'rental.charge', -10n),
  entry('supplier_payable:s', 'rental.supplier', 8n),
  entry('platform_revenue:platform', 'rental.fee', 2n),
];

describe('what stands about a charge', () => {
  test('is that all of it can be refunded, and who got it', () => {
    expect(standingOf(CHARGE, 0n)).toEqual({ orgId: 'o', supplierIds: ['s'], refundableUcents: 10n, excessUcents: 0n });
    expect(splitOf(CHARGE)).toEqual({ totalUcents: 10n, suppliers: [{ supplierId: 's', ucents: 8n }] });
    expect(takenFrom(CHARGE)).toEqual([]);
  });

  test('is less after a refund, and less while a part waits for a decision about a credit', () => {
    const refund = [
      entry('customer_wallet:o', 'correction.refund_fee', 3n),
      entry('supplier_payable:s', 'correction.refund_supplier', -2n),
      entry('platform_revenue:platform', 'correction.refund_fee', -1n),
    ];
    expect(standingOf([...CHARGE, ...refund], 0n)).toMatchObject({ refundableUcents: 7n, excessUcents: 0n });
    // The split of the charge does not change with its refunds.
    expect(splitOf([...CHARGE, ...refund])).toEqual(splitOf(CHARGE));
    expect(takenFrom([...CHARGE, ...refund])).toEqual([{ supplierId: 's', ucents: 2n }]);
    expect(standingOf(CHARGE, 4n).refundableUcents).toBe(6n);
  });

  test('is an excess if more came back than was charged, and nothing without a charge', () => {
    const back = entry('customer_wallet:o', 'rental.refund_charge', 12n);
    expect(standingOf([...CHARGE, back], 0n)).toMatchObject({ orgId: 'o', refundableUcents: 0n, excessUcents: 2n });
    expect(standingOf([], 0n)).toEqual({ orgId: undefined, supplierIds: [], refundableUcents: 0n, excessUcents: 0n });
    expect(standingOf([entry('customer_wallet:o', 'correction.credit', 5n)], 0n).orgId).toBeUndefined();
  });

  test('has suppliers in the order of their ids, and no payment for an outage of our own', () => {
    const more = [
      entry('supplier_payable:s-2', 'rental.supplier', 4n),
      entry('supplier_payable:s-1', 'rental.supplier', 3n),
      entry('supplier_payable:s-1', 'own_outage.supplier', 100n),
      entry('platform_revenue:platform', 'own_outage.supplier', -100n),
    ];
    expect(splitOf(more)).toEqual({
      totalUcents: 7n,
      suppliers: [
        { supplierId: 's-1', ucents: 3n },
        { supplierId: 's-2', ucents: 4n },
      ],
    });
  });
});

describe('the parts of refunds', () => {
  const split = splitOf(CHARGE);

  test('add up to what the supplier got, however the refunds are cut', () => {
    const parts = (beforeUcents: bigint, amountUcents: bigint, taken: bigint): bigint | undefined =>
      partsOfRefund(split, { beforeUcents, amountUcents }, [{ supplierId: 's', ucents: taken }])[0]?.ucents;
    expect([parts(0n, 3n, 0n), parts(3n, 3n, 2n), parts(6n, 4n, 4n), parts(0n, 10n, 0n)]).toEqual([2n, 2n, 4n, 8n]);
  });

  test.each([
    ['two suppliers and no fee', [133_333_333n, 166_666_667n], 0n],
    ['three suppliers and a fee of a microcent', [1n, 1n, 2n], 1n],
    ['three suppliers, of which one got nothing', [5n, 0n, 4n], 3n],
  ])('of %s are never more than the refund, and give back what each got in the end', (_, gots, fee) => {
    const suppliers = gots.map((ucents, i) => ({ supplierId: `s-${i}`, ucents }));
    const totalUcents = sum(gots) + fee;
    for (let first = 1n; first < totalUcents; first += totalUcents > 100n ? 1_234_567n : 1n) {
      const taken = new Map<string, bigint>();
      let feeTaken = 0n;
      const cuts = [0n, first, (first + totalUcents) / 2n, totalUcents];
      for (const [i, beforeUcents] of cuts.slice(0, -1).entries()) {
        const amountUcents = (cuts[i + 1] ?? 0n) - beforeUcents;
        if (amountUcents === 0n) continue;
        const before = [...taken].map(([supplierId, ucents]) => ({ supplierId, ucents }));
        const parts = partsOfRefund({ totalUcents, suppliers }, { beforeUcents, amountUcents }, before);
        for (const { supplierId, ucents } of parts) taken.set(supplierId, (taken.get(supplierId) ?? 0n) + ucents);
        feeTaken += amountUcents - sum(parts.map(({ ucents }) => ucents));
        expect(feeTaken >= 0n && feeTaken <= fee).toBe(true);
        expect(parts.every(({ ucents }) => ucents >= 0n)).toBe(true);
      }
      expect([...taken.values()]).toEqual(gots);
    }
  });

  test('of two suppliers that are undone are together never more than is undone', () => {
    const both = {
      totalUcents: 6n,
      suppliers: [
        { supplierId: 'a', ucents: 3n },
        { supplierId: 'b', ucents: 3n },
      ],
    };
    const taken = [
      { supplierId: 'a', ucents: 5n },
      { supplierId: 'b', ucents: 5n },
    ];
    const parts = partsOfUndone(both, { beforeUcents: 9n, undoneUcents: 4n }, taken);
    expect(parts.map(({ ucents }) => ucents)).toEqual([-3n, -1n]);
  });

  test('that are undone go back to the supplier down to what the rest takes from it, and no further', () => {
    const undone = (undoneUcents: bigint, taken: bigint, of = split): bigint | undefined =>
      partsOfUndone(of, { beforeUcents: 10n, undoneUcents }, [{ supplierId: 's', ucents: taken }])[0]?.ucents;
    expect([undone(5n, 8n), undone(10n, 8n), undone(5n, 4n), undone(5n, 3n)]).toEqual([-4n, -8n, 0n, 0n]);
    // Never more than is undone.
    expect(undone(1n, 8n)).toBe(-1n);
    // The whole charge was taken back, so nothing of the rest is the supplier's.
    expect(undone(5n, 8n, { totalUcents: 0n, suppliers: [] })).toBe(-5n);
    const stranger = partsOfUndone(split, { beforeUcents: 10n, undoneUcents: 5n }, [
      { supplierId: 'other', ucents: 2n },
    ]);
    expect(stranger).toEqual([{ supplierId: 'other', ucents: -2n }]);
  });
});

describe('the transfers of a correction', () => {
  const ROW: Correction = {
    id: 'cor_1',
    kind: 'refund',
    org_id: 'o',
    subject_id: 'i',
    reference: 'r',
    reason: 'slow disk',
    amount_ucents: 10n,
    supplier_ucents: 8n,
    bad_debt_ucents: 0n,
    from_platform: false,
    created_ms: 7,
  };
  const legs = (patch: Partial<Correction>, parts: Parameters<typeof transfersOf>[1] = []): string[] =>
    transfersOf({ ...ROW, ...patch }, parts).map(
      ({ id, debit, credit, amountUcents: ucents }) => `${id}: ${ucents} from ${debit.kind} to ${credit.kind}`,
    );
  const suppliers = (ucents: bigint) => [{ supplierId: 's', ucents }];

  test('take a refund from those who got the charge, and leave out what is nothing', () => {
    expect(legs({}, suppliers(8n))).toEqual([
      'cor_1:correction.refund_supplier:s: 8 from supplier_payable to customer_wallet',
      'cor_1:correction.refund_fee: 2 from platform_revenue to customer_wallet',
    ]);
    expect(legs({ supplier_ucents: 10n }, suppliers(10n))).toHaveLength(1);
    expect(legs({ supplier_ucents: 0n })).toEqual([
      'cor_1:correction.refund_fee: 10 from platform_revenue to customer_wallet',
    ]);
  });

  test('give back what an undone refund has taken', () => {
    expect(legs({ amount_ucents: -10n, supplier_ucents: -8n }, suppliers(-8n))).toEqual([
      'cor_1:correction.undone_supplier:s: 8 from customer_wallet to supplier_payable',
      'cor_1:correction.undone_fee: 2 from customer_wallet to platform_revenue',
    ]);
    expect(legs({ amount_ucents: -8n, supplier_ucents: -8n }, suppliers(-8n))).toHaveLength(1);
  });

  test('pay a credit from the revenue, and an adjustment from or to the funds of the operator', () => {
    expect(legs({ kind: 'credit' })).toEqual(['cor_1:correction.credit: 10 from platform_revenue to customer_wallet']);
    expect(legs({ kind: 'adjustment' })).toEqual(['cor_1:correction.up: 10 from operator_funding to customer_wallet']);
    expect(legs({ kind: 'adjustment', amount_ucents: -6n, bad_debt_ucents: 4n })).toEqual([
      'cor_1:correction.down: 6 from customer_wallet to operator_funding',
      'cor_1:correction.down_shortfall: 4 from bad_debt to operator_funding',
    ]);
  });

  test('name their subject, their reason and their time', () => {
    expect(transfersOf(ROW, suppliers(8n))).toMatchObject([
      { subjectId: 'i', evidence: 'slow disk', effectiveMs: 7 },
      { subjectId: 'i', evidence: 'slow disk', effectiveMs: 7 },
    ]);
  });
});
