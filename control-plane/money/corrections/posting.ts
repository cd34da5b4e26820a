// Pure: the transfers of an operator's corrections.
//
// A refund is taken back from those who got the charge, in proportion to what earlier refunds have left to each. So several refunds of one
// charge add up to exactly what each side got. Example: 10 was charged, the supplier got 8 and we got 2.
//
//   refund    left of the charge    left to the supplier    supplier now       fee now
//      3              10                      8             3 * 8 / 10 = 2        1
//      3               7                      6             3 * 6 / 7 = 2         1
//      4               4                      4             4 * 4 / 4 = 4         0
//
// The fee gets what the rounded parts of the suppliers leave of the refund. If that is more than is left of the fee, some suppliers give back a
// microcent more.
//
// What must never happen: more is refunded than the wallet has paid (corrections.ts refuses it, and verify.ts proves it).
import { lesserUcents } from '../../../shared/money.ts';
import { type AccountRef, badDebt, funding, payable, revenue, wallet } from '../ledger/accounts.ts';
import type { Billed } from '../ledger/wallets.ts';
import type { NewTransfer } from '../ledger/store.ts';
import type { Correction } from './store.ts';

/** The ledger has an index of the kinds that begin with `correction.`. */
const KIND = {
  refundSupplier: 'correction.refund_supplier',
  refundFee: 'correction.refund_fee',
  undoneSupplier: 'correction.undone_supplier',
  undoneFee: 'correction.undone_fee',
  credit: 'correction.credit',
  up: 'correction.up',
  down: 'correction.down',
  shortfall: 'correction.down_shortfall',
} as const;

export const BILLED: Billed = {
  [KIND.refundSupplier]: { section: 'refund', by: 'batch' },
  [KIND.refundFee]: { section: 'refund', by: 'batch' },
  [KIND.undoneSupplier]: { section: 'refund', by: 'batch' },
  [KIND.undoneFee]: { section: 'refund', by: 'batch' },
  [KIND.credit]: { section: 'adjustment', by: 'batch' },
  [KIND.up]: { section: 'adjustment', by: 'batch' },
  [KIND.down]: { section: 'adjustment', by: 'batch' },
};

export interface SupplierPart {
  supplierId: string;
  ucents: bigint;
}

/** How a charge was split: the suppliers' parts and the total. */
export interface ChargeSplit {
  totalUcents: bigint;
  suppliers: readonly SupplierPart[];
}

/**
 * The suppliers' parts of a refund of `amountUcents`, after `beforeUcents` was refunded in proportion. `taken` is what the refunds have taken from
 * each supplier so far.
 */
export function partsOfRefund(
  split: ChargeSplit,
  { beforeUcents, amountUcents }: { beforeUcents: bigint; amountUcents: bigint },
  taken: readonly SupplierPart[],
): SupplierPart[] {
  const leftUcents = split.totalUcents - beforeUcents;
  const suppliers = split.suppliers.map(({ supplierId, ucents }) => {
    const left = ucents - ucentsOf(taken, supplierId);
    return { supplierId, left: left > 0n ? left : 0n };
  });
  const feeLeft = leftUcents - sumOf(suppliers.map(({ left }) => left));
  const rounded = suppliers.map(({ left }) => (amountUcents * left) / leftUcents);
  let excess = amountUcents - sumOf(rounded) - feeLeft;
  return suppliers.map(({ supplierId, left }, i) => {
    const part = rounded[i] ?? 0n;
    const more = excess > 0n && part < left ? 1n : 0n;
    excess -= more;
    return { supplierId, ucents: part + more };
  });
}

/**
 * The parts of an undone refund that the suppliers get back, after charges of the subject were reversed. Refunds of `beforeUcents` were
 * made in proportion, and `undoneUcents` of them are undone now. `taken` is what the refunds have taken from each supplier so far. All
 * returned amounts are negative, like the amount of an undone refund.
 */
export function partsOfUndone(
  split: ChargeSplit,
  { beforeUcents, undoneUcents }: { beforeUcents: bigint; undoneUcents: bigint },
  taken: readonly SupplierPart[],
): SupplierPart[] {
  const left = beforeUcents - undoneUcents;
  let restUcents = undoneUcents;
  return taken.map(({ supplierId, ucents }) => {
    const of = ucentsOf(split.suppliers, supplierId);
    const due = split.totalUcents > 0n ? (left * of) / split.totalUcents : 0n;
    const back = ucents > due ? lesserUcents(ucents - due, restUcents) : 0n;
    restUcents -= back;
    return { supplierId, ucents: -back };
  });
}

function ucentsOf(parts: readonly SupplierPart[], supplierId: string): bigint {
  return parts.find((part) => part.supplierId === supplierId)?.ucents ?? 0n;
}

function sumOf(amounts: readonly bigint[]): bigint {
  return amounts.reduce((sum, ucents) => sum + ucents, 0n);
}

/** `parts` are the suppliers' parts of a refund, and empty for every other correction. */
export function transfersOf(row: Correction, parts: readonly SupplierPart[]): NewTransfer[] {
  const customer = wallet(row.org_id);
  const leg = (
    kind: string,
    [debit, credit]: readonly [AccountRef, AccountRef],
    amountUcents: bigint,
    suffix = '',
  ): NewTransfer => ({
    id: `${row.id}:${kind}${suffix}`,
    debit,
    credit,
    amountUcents,
    kind,
    subjectId: row.subject_id,
    evidence: row.reason,
    effectiveMs: row.created_ms,
  });
  if (row.kind === 'credit') return [leg(KIND.credit, [revenue, customer], row.amount_ucents)];
  if (row.kind === 'refund' && row.amount_ucents < 0n) {
    return [
      ...parts.map(({ supplierId, ucents }) =>
        leg(KIND.undoneSupplier, [customer, payable(supplierId)], -ucents, `:${supplierId}`),
      ),
      leg(KIND.undoneFee, [customer, revenue], row.supplier_ucents - row.amount_ucents),
    ].filter(({ amountUcents }) => amountUcents > 0n);
  }
  const legs =
    row.kind === 'refund'
      ? [
          ...parts.map(({ supplierId, ucents }) =>
            leg(KIND.refundSupplier, [payable(supplierId), customer], ucents, `:${supplierId}`),
          ),
          leg(KIND.refundFee, [revenue, customer], row.amount_ucents - row.supplier_ucents),
        ]
      : [
          leg(KIND.up, [funding, customer], row.amount_ucents),
          leg(KIND.down, [customer, funding], -row.amount_ucents),
          leg(KIND.shortfall, [badDebt, funding], row.bad_debt_ucents),
        ];
  return legs.filter(({ amountUcents }) => amountUcents > 0n);
}
