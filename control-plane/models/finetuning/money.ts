// The money of a job: its budget is held before it starts, and the time that trained is charged out of it.
//
// Time is priced from the first report that the program runs, until it ends. If the end is heard late, the run time that the host reports
// decides, but it can only shorten the priced time. Time is charged at each verified checkpoint, up to the moment at which the host announced
// it, and at the end of the job. So time whose work is lost with a machine was never charged, and nothing is ever taken back.
//
//   running        checkpoint at step 100      machine lost       running elsewhere from step 100     end
//      |---------------- charged ---|- - - not charged - - -|          |---------- charged ------------|
//
// The amounts are cumulative over an attempt, so that roundings do not add up. The supplier earns its own price for the charged time, less
// the fee of the platform, as with a rental. The platform gets the rest. A job is placed only on machines whose price is not above that of
// the job. If the budget cuts a charge, it cuts the supplier's part in proportion.
import { accruedUcents, lesserUcents, supplierPartUcents } from '../../../shared/money.ts';
import type { Tx } from '../../base/db/db.ts';
import { clearing, payable, revenue, wallet } from '../../money/ledger/accounts.ts';
import type { Ledger } from '../../money/ledger/ledger.ts';
import { type Attempt, patchAttempt } from './attempts.ts';
import { type Job, patchJob } from './store.ts';

/** The kinds of the transfers. */
export const KINDS = { charge: 'finetune.charge', supplier: 'finetune.supplier', fee: 'finetune.fee' } as const;

/** The ledger's id of the hold for a job. */
export function holdId(jobId: string): string {
  return `finetune:${jobId}`;
}

export interface Due {
  chargeUcents: bigint;
  supplierUcents: bigint;
}

/** The amounts to charge for the attempt up to `throughMs`, without what was charged before. The charge is at most `leftUcents`. */
export function dueOf(attempt: Attempt, throughMs: number, leftUcents: bigint): Due {
  const { started_ms: startedMs, charged_through_ms: chargedMs } = attempt;
  if (startedMs === null || throughMs <= (chargedMs ?? startedMs)) return { chargeUcents: 0n, supplierUcents: 0n };
  const trainedMs = throughMs - startedMs;
  const cost = accruedUcents(attempt.rate_ucents_per_hour, trainedMs) - attempt.charged_ucents;
  // A step of the clock was charged before it was noticed. The next time pays for it.
  if (cost <= 0n) return { chargeUcents: 0n, supplierUcents: 0n };
  const earned = supplierPartUcents(
    accruedUcents(attempt.supplier_rate_ucents_per_hour, trainedMs),
    attempt.supplier_bps,
  );
  // The two cumulative amounts round at different moments. What the supplier gets less now, it gets with the next charge.
  const supplier = lesserUcents(earned - attempt.supplier_ucents, cost);
  if (cost <= leftUcents) return { chargeUcents: cost, supplierUcents: supplier };
  return { chargeUcents: leftUcents, supplierUcents: (supplier * leftUcents) / cost };
}

/** The time for which the rest of the budget pays. */
export function paidMs(leftUcents: bigint, rateUcentsPerHour: bigint): number {
  return Number((leftUcents * 3_600_000n) / rateUcentsPerHour);
}

/** Charges the attempt up to `throughMs` and lowers the hold by the same amount. Returns the job as it is then. */
export async function chargeThrough(
  tx: Tx,
  { job, attempt }: { job: Job; attempt: Attempt },
  throughMs: number,
  ledger: Ledger,
): Promise<Job> {
  const { chargeUcents, supplierUcents } = dueOf(attempt, throughMs, job.budget_ucents - job.charged_ucents);
  if (chargeUcents === 0n) return job;
  const charged = { ...job, charged_ucents: job.charged_ucents + chargeUcents };
  await ledger.setHold(tx, holdId(job.id), wallet(job.org_id), job.budget_ucents - charged.charged_ucents);
  const fromMs = attempt.charged_through_ms ?? attempt.started_ms ?? throughMs;
  const batch = `${holdId(job.id)}:${attempt.id}:${fromMs}-${throughMs}`;
  const common = { subjectId: job.id, effectiveMs: throughMs };
  const legs = [
    { kind: KINDS.charge, debit: wallet(job.org_id), credit: clearing, amountUcents: chargeUcents },
    { kind: KINDS.supplier, debit: clearing, credit: payable(attempt.supplier_id), amountUcents: supplierUcents },
    { kind: KINDS.fee, debit: clearing, credit: revenue, amountUcents: chargeUcents - supplierUcents },
  ].filter(({ amountUcents }) => amountUcents > 0n);
  await ledger.post(
    tx,
    batch,
    legs.map((leg) => ({ ...common, ...leg, id: `${batch}:${leg.kind}` })),
  );
  await patchAttempt(tx, attempt.id, {
    charged_through_ms: throughMs,
    charged_ucents: attempt.charged_ucents + chargeUcents,
    supplier_ucents: attempt.supplier_ucents + supplierUcents,
  });
  await patchJob(tx, job.id, { charged_ucents: charged.charged_ucents });
  return charged;
}
