// An operator corrects a mistake: refunds a charge, gives a credit, or changes a balance. Each decision has a reference. The same decision
// under the same reference has no second effect.
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { dollarText, lesserUcents } from '../../../shared/money.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import { waitingCreditOf } from '../credits/store.ts';
import { wallet } from '../ledger/accounts.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { subjectEntries } from '../ledger/wallets.ts';
import { segmentsOf } from '../metering/store.ts';
import { disputesOf } from '../payouts/disputes.ts';
import { partsOfRefund, partsOfUndone, transfersOf } from './posting.ts';
import { splitOf, standingOf, takenFrom } from './refundable.ts';
import * as store from './store.ts';

interface Named {
  /** A second correction of the same kind with this reference has no effect. */
  reference: string;
  /** The customer reads it on the bill. */
  reason: string;
}

export interface NewRefund extends Named {
  /** Id of the rental, the receipt or the video that was charged. */
  subjectId: string;
  /** Null: all that was not refunded yet. */
  amountUcents: bigint | null;
  /** True: the supplier keeps its part of the charge, and the platform pays the whole refund. */
  fromPlatform: boolean;
}

export interface NewCredit extends Named {
  orgId: string;
  amountUcents: bigint;
}

export interface NewAdjustment extends NewCredit {
  direction: 'up' | 'down';
  /** True: the part of a deduction that the balance does not cover becomes bad debt. False: such a deduction is refused. */
  allowDebt: boolean;
}

export interface Corrections {
  /** @throws ServiceError `not_found`, `conflict` if more would be refunded than was charged, or while the amount may still change */
  refund(refund: NewRefund): Promise<store.Correction>;
  /** The platform's revenue pays the credit. @throws ServiceError `conflict` if the reference was used for another credit */
  credit(credit: NewCredit): Promise<store.Correction>;
  /** @throws ServiceError `conflict` if the balance does not cover a deduction, or the reference was used for another adjustment */
  adjust(adjustment: NewAdjustment): Promise<store.Correction>;
  /**
   * Called in the transaction that has reversed charges of the subject. If earlier refunds have already given back a part of these charges,
   * that part of the refunds is undone, for suppliers and platform too. Otherwise the customer would get the same amount twice. The caller
   * has locked the organisation.
   */
  keepRefundsWithinCharge(tx: Tx, subjectId: string, evidence: string): Promise<void>;
}

interface CorrectionsDeps {
  db: Db;
  clock: Clock;
  ids: Ids;
  ledger: Pick<Ledger, 'post' | 'availableNow'>;
}

export function openCorrections(deps: CorrectionsDeps): Corrections {
  const { db } = deps;
  return {
    refund: async (refund) => {
      // Read before the transaction: the organisation and the suppliers of a charge never change.
      const { orgId, supplierIds } = standingOf(await subjectEntries(db.read, refund.subjectId), 0n);
      if (orgId === undefined) return fail('not_found', `Nothing was charged for ${refund.subjectId}.`);
      return db.tx('corrections.refund', async (tx) => {
        await tx.lock('org', orgId);
        // Waits until a transaction that pays one of these suppliers has ended.
        await tx.lock('supplier', ...supplierIds);
        return refundNow(tx, orgId, refund, deps);
      });
    },
    credit: (credit) =>
      db.tx('corrections.credit', async (tx) => {
        await tx.lock('org', credit.orgId);
        return correct(tx, { ...credit, kind: 'credit', subjectId: credit.orgId }, deps);
      }),
    adjust: (adjustment) =>
      db.tx('corrections.adjust', async (tx) => {
        await tx.lock('org', adjustment.orgId);
        return adjustNow(tx, adjustment, deps);
      }),
    keepRefundsWithinCharge: (tx, subjectId, evidence) => keepWithinCharge(tx, { subjectId, evidence }, deps),
  };
}

async function refundNow(tx: Tx, orgId: string, refund: NewRefund, deps: CorrectionsDeps): Promise<store.Correction> {
  const { subjectId, fromPlatform, reference } = refund;
  const known = await store.findByReference(tx, { orgId, kind: 'refund', reference });
  if (known !== undefined) {
    const isSame =
      known.subject_id === subjectId &&
      known.from_platform === fromPlatform &&
      (refund.amountUcents ?? known.amount_ucents) === known.amount_ucents;
    return isSame ? known : usedAlready(reference);
  }
  await assertFinal(tx, subjectId);
  const entries = await subjectEntries(tx, subjectId);
  const { refundableUcents } = standingOf(entries, await waitingCreditOf(tx, subjectId));
  const amountUcents = refund.amountUcents ?? refundableUcents;
  if (refundableUcents <= 0n) return fail('conflict', `Nothing of ${subjectId} is left to refund.`);
  if (amountUcents > refundableUcents) {
    return fail('conflict', `At most $${dollarText(refundableUcents)} of ${subjectId} is left to refund.`);
  }
  const about = { beforeUcents: await store.refundedOf(tx, subjectId, false), amountUcents };
  const parts = fromPlatform ? [] : partsOfRefund(splitOf(entries), about, takenFrom(entries));
  const supplierUcents = parts.reduce((sum, { ucents }) => sum + ucents, 0n);
  return write(tx, { ...refund, kind: 'refund', orgId, amountUcents, supplierUcents, parts }, deps);
}

async function keepWithinCharge(
  tx: Tx,
  { subjectId, evidence }: { subjectId: string; evidence: string },
  deps: CorrectionsDeps,
): Promise<void> {
  const inParts = await store.refundedOf(tx, subjectId, false);
  const byPlatform = await store.refundedOf(tx, subjectId, true);
  if (inParts + byPlatform === 0n) return;
  const entries = await subjectEntries(tx, subjectId);
  const { orgId, excessUcents } = standingOf(entries, await waitingCreditOf(tx, subjectId));
  if (orgId === undefined || excessUcents === 0n) return;
  const undo = async (fromPlatform: boolean, ucents: bigint): Promise<void> => {
    if (ucents === 0n) return;
    const about = { beforeUcents: inParts, undoneUcents: ucents };
    const parts = fromPlatform ? [] : partsOfUndone(splitOf(entries), about, takenFrom(entries));
    const supplierUcents = parts.reduce((sum, part) => sum + part.ucents, 0n);
    const reason = `refunded before, and not charged any more: ${evidence}`;
    const reference = `undone ${deps.ids.uuid()}`;
    const named = { kind: 'refund', orgId, subjectId, fromPlatform, reference, reason } as const;
    await write(tx, { ...named, amountUcents: -ucents, supplierUcents, parts }, deps);
  };
  const partsUndone = lesserUcents(excessUcents, inParts);
  await undo(false, partsUndone);
  await undo(true, lesserUcents(excessUcents - partsUndone, byPlatform));
}

/** The charge of a rental can still change while it runs or is disputed. Together with a refund, more could be given back than was charged. */
async function assertFinal(tx: Tx, subjectId: string): Promise<void> {
  if ((await segmentsOf(tx, [subjectId])).some((segment) => segment.ended_ms === null)) {
    fail('conflict', `The instance ${subjectId} still runs. End it first, or give a credit to its organisation.`);
  }
  const open = (await disputesOf(tx, subjectId)).find(({ state }) => state === 'open');
  if (open !== undefined) fail('conflict', `The instance ${subjectId} is disputed. Resolve ${open.id} instead.`);
}

async function adjustNow(tx: Tx, adjustment: NewAdjustment, deps: CorrectionsDeps): Promise<store.Correction> {
  const { orgId, direction, amountUcents, allowDebt, reference } = adjustment;
  const about = { ...adjustment, kind: 'adjustment' as const, subjectId: orgId };
  if (direction === 'up') return correct(tx, about, deps);
  const known = await store.findByReference(tx, { orgId, kind: 'adjustment', reference });
  if (known !== undefined) {
    return known.bad_debt_ucents - known.amount_ucents === amountUcents ? known : usedAlready(reference);
  }
  const availableUcents = await deps.ledger.availableNow(tx, wallet(orgId));
  const takenUcents = lesserUcents(amountUcents, availableUcents);
  if (takenUcents < amountUcents && !allowDebt) {
    const available = dollarText(availableUcents);
    return fail('conflict', `Only $${available} is available. With --allow-debt, the rest is written off as bad debt.`);
  }
  return write(tx, { ...about, amountUcents: -takenUcents, badDebtUcents: amountUcents - takenUcents }, deps);
}

/** Adds to a balance. A second call with the same reference and amount has no effect. */
async function correct(tx: Tx, correction: NewCorrection, deps: CorrectionsDeps): Promise<store.Correction> {
  const known = await store.findByReference(tx, correction);
  if (known === undefined) return write(tx, correction, deps);
  return known.amount_ucents === correction.amountUcents ? known : usedAlready(correction.reference);
}

interface NewCorrection extends Named, Pick<store.Correction, 'kind'> {
  orgId: string;
  subjectId: string;
  amountUcents: bigint;
  supplierUcents?: bigint;
  badDebtUcents?: bigint;
  fromPlatform?: boolean;
  parts?: Parameters<typeof transfersOf>[1];
}

async function write(
  tx: Tx,
  { parts = [], ...given }: NewCorrection,
  { clock, ids, ledger }: CorrectionsDeps,
): Promise<store.Correction> {
  const row: store.Correction = {
    id: ids.prefixed('cor'),
    kind: given.kind,
    org_id: given.orgId,
    subject_id: given.subjectId,
    reference: given.reference,
    reason: given.reason,
    amount_ucents: given.amountUcents,
    supplier_ucents: given.supplierUcents ?? 0n,
    bad_debt_ucents: given.badDebtUcents ?? 0n,
    from_platform: given.fromPlatform ?? false,
    created_ms: clock.now(),
  };
  await store.insertCorrection(tx, row);
  await ledger.post(tx, row.id, transfersOf(row, parts));
  return row;
}

function usedAlready(reference: string): never {
  return fail(
    'conflict',
    `The reference ${reference} was used for something else. Nothing was changed: name a new one.`,
  );
}
