// The states of a video job, and the only function that changes them. Status, hold and charge change together or not at all.
import { mayMove, VIDEO_STATES, type VideoState } from '../../../shared/states.ts';
import type { Tx } from '../../base/db/db.ts';
import { revenue, wallet } from '../../money/ledger/accounts.ts';
import type { Ledger } from '../../money/ledger/ledger.ts';
import { type Job, type Patch, setStatus } from './store.ts';

/** The kind of the transfers that charge video jobs. */
export const CHARGE_KIND = 'video.charge';

/** The ledger's id of the hold for a job. */
export function holdId(jobId: string): string {
  return `video:${jobId}`;
}

export function isOpen({ status }: Pick<Job, 'status'>): boolean {
  return status === 'queued' || status === 'in_progress';
}

/**
 * Moves a job. `completed` charges what was held; every other end releases it. False if the table forbids the move, or if the status has changed
 * since the job was read. The job is due at once if something is left to do.
 */
export async function move(
  tx: Tx,
  job: Job,
  { to, patch = {} }: { to: VideoState; patch?: Patch },
  { ledger, nowMs }: { ledger: Ledger; nowMs: number },
): Promise<boolean> {
  const from = job.status;
  if (!mayMove(VIDEO_STATES, from, to)) return false;
  const common = { failures: 0, due_ms: nowMs, ...patch };
  if (!isOpen(job) || isOpen({ status: to })) return setStatus(tx, job.id, { from, to }, common);
  const charged = to === 'completed' ? job.held_ucents : 0n;
  const ended = { ...common, charged_ucents: charged, ended_ms: nowMs, request: null };
  if (!(await setStatus(tx, job.id, { from, to }, ended))) return false;
  const customer = wallet(job.org_id);
  await ledger.setHold(tx, holdId(job.id), customer, 0n);
  if (charged === 0n) return true;
  const transfer = {
    id: `${holdId(job.id)}:charge`,
    debit: customer,
    credit: revenue,
    amountUcents: charged,
    kind: CHARGE_KIND,
    subjectId: job.id,
    effectiveMs: nowMs,
  };
  await ledger.post(tx, holdId(job.id), [transfer]);
  return true;
}
