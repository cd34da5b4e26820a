// Stores the result of a step: a change, a later retry, or the end of the job.
import type { ErrorCode } from '../../../shared/errors.ts';
import type { VideoState } from '../../../shared/states.ts';
import type { StepDeps } from './deps.ts';
import { isOpen, move } from './states.ts';
import { type Job, type Patch, patchJob } from './store.ts';

export interface Failure {
  code: ErrorCode;
  /** Whole sentences. */
  message: string;
}

/** The longest wait while a server does not answer. */
const WAIT_MS_MAX = 30_000;

/** Does nothing if the status of the job has changed meanwhile. */
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

/** The wait after so many failures in a row. */
export function waitMs(failures: number): number {
  return Math.min(500 * 2 ** Math.min(failures, 10), WAIT_MS_MAX);
}

/** Fails a job. Nothing is charged, and the message says so. */
export async function failJob(job: Job, { code, message }: Failure, deps: StepDeps): Promise<void> {
  await endJob(job, 'failed', { error_code: code, error_message: `${message} Nothing was charged.` }, deps);
}

/** False if the status of the job has changed meanwhile. */
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
