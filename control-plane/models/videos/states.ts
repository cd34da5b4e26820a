// The states of a video job, and the only function that changes them. Status, hold and charge change together or not at all. The result of a step
// is stored here too: a change, a later retry, or the end of the job.
import { mayMove, VIDEO_STATES, type VideoState } from '../../../shared/states.ts';
import type { Tx } from '../../base/db/db.ts';
import { revenue, wallet } from '../../money/ledger/accounts.ts';
import type { Events, EventType } from '../../base/events/events.ts';
import type { Ledger } from '../../money/ledger/ledger.ts';
import { type Job, type Patch, setStatus, patchJob } from './store.ts';
import type { ErrorCode } from '../../../shared/errors.ts';
import type { StepDeps } from './deps.ts';

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
 * Moves a job. `completed` charges what was held; every other end releases it. False if the table forbids the move, or if the job has changed
 * since it was read. The job is due at once if something is left to do. `event` is written in place of the event of the new status.
 */
export async function move(
  tx: Tx,
  job: Job,
  { to, patch = {}, event = `video.${to}` }: { to: VideoState; patch?: Patch; event?: EventType },
  deps: { ledger: Ledger; events: Pick<Events, 'append'>; nowMs: number },
): Promise<boolean> {
  const moved = mayMove(VIDEO_STATES, job.status, to) && (await settle(tx, job, { to, patch }, deps));
  if (!moved) return false;
  const data = { status: to, reason: patch.error_message ?? null };
  await deps.events.append(tx, { type: event, subjectId: job.id, orgId: job.org_id, data });
  return true;
}

/** Writes the status together with what it does to the money of the job. False if the job has changed since it was read. */
async function settle(
  tx: Tx,
  job: Job,
  { to, patch }: { to: VideoState; patch: Patch },
  { ledger, nowMs }: { ledger: Ledger; nowMs: number },
): Promise<boolean> {
  const keepsPrompt = isOpen({ status: to }) || to === 'completed';
  const common = { failures: 0, due_ms: nowMs, ...(keepsPrompt ? {} : { request: null }), ...patch };
  if (!isOpen(job) || isOpen({ status: to })) return setStatus(tx, job, to, common);
  const charged = to === 'completed' ? job.held_ucents : 0n;
  const ended = { ...common, charged_ucents: charged, ended_ms: nowMs };
  if (!(await setStatus(tx, job, to, ended))) return false;
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
    evidence: job.model_id,
    effectiveMs: nowMs,
  };
  await ledger.post(tx, holdId(job.id), [transfer]);
  return true;
}

export interface Failure {
  code: ErrorCode;
  /** The text for the customer, in whole sentences. */
  message: string;
}

/** The longest wait while a server does not answer. */
const WAIT_MS_MAX = 30_000;

/** Does nothing if the job has changed since it was read. */
export async function note(job: Job, patch: Patch, { db }: StepDeps): Promise<void> {
  await db.tx('videos.note', (tx) => patchJob(tx, job, patch));
}

/** Schedules a retry. The wait grows with each failure in a row. The plan decides when to give up. */
export async function noteSilence(job: Job, reason: string, deps: StepDeps): Promise<void> {
  const failures = job.failures + 1;
  deps.counts.failed(job.upstream ?? '');
  deps.log.warn({ video: job.id, upstream: job.upstream, failures, reason }, 'a server does not answer about a video');
  await note(job, { failures, due_ms: deps.clock.now() + waitMs(failures) }, deps);
}

/** The wait after a number of failures in a row. */
export function waitMs(failures: number): number {
  return Math.min(500 * 2 ** Math.min(failures, 10), WAIT_MS_MAX);
}

/** Fails a job. Nothing is charged, and the message says so. */
export async function failJob(job: Job, { code, message }: Failure, deps: StepDeps): Promise<void> {
  await endJob(job, 'failed', { error_code: code, error_message: `${message} Nothing was charged.` }, deps);
}

/** False if the job has changed since it was read. */
export async function endJob(job: Job, to: VideoState, patch: Patch, deps: StepDeps): Promise<boolean> {
  const nowMs = deps.clock.now();
  const isEnded = await deps.db.tx('videos.end', async (tx) => {
    await tx.lock('video', job.id);
    return move(tx, job, { to, patch }, { ...deps, nowMs });
  });
  // A file that expires later is not counted as another end.
  if (isEnded && isOpen(job)) deps.counts.ended(job.model_id, to);
  return isEnded;
}
