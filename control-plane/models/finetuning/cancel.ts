// Cancels a job for its owner. It is `cancelled` once its host has stopped it.
import { fail } from '../../../shared/errors.ts';
import type { Tx } from '../../base/db/db.ts';
import { findAttempt } from './attempts.ts';
import type { FineTuningDeps } from './deps.ts';
import { appendEvents } from './events.ts';
import { isOpen, move } from './states.ts';
import { findJob, type Job, patchJob } from './store.ts';

/**
 * Orders the stop, calls `settle` with the job, and resolves with the result of `settle`. A job that has ended, or that is being cancelled
 * already, stays unchanged.
 * @throws ServiceError `not_found`
 */
export async function cancelJob<T>(
  { orgId, id }: { orgId: string; id: string },
  settle: (tx: Tx, job: Job) => Promise<T>,
  deps: FineTuningDeps,
): Promise<T> {
  const nowMs = deps.clock.now();
  const { settled, machineId } = await deps.db.tx('finetuning.cancel', async (tx) => {
    await tx.lock('org', orgId);
    const found = await findJob(tx, id);
    if (found?.org_id !== orgId) return failMissing(id);
    const isNews = isOpen(found) && found.cancel_ms === null;
    const touched = isNews ? await order(tx, found, nowMs, deps) : undefined;
    const after = (await findJob(tx, id)) ?? found;
    return { settled: await settle(tx, after), machineId: touched };
  });
  if (machineId !== undefined) deps.push(machineId);
  deps.nudge();
  return settled;
}

export function failMissing(id: string): never {
  return fail('not_found', `There is no fine-tuning job ${id}.`);
}

/** Orders the stop. A program that runs is sent SIGTERM, so that its last checkpoint arrives. Returns the machine to notify. */
async function order(tx: Tx, job: Job, nowMs: number, deps: FineTuningDeps): Promise<string | undefined> {
  const attempt = job.workload_id === null ? undefined : await findAttempt(tx, job.workload_id);
  if (attempt === undefined) {
    const event = { level: 'info' as const, message: 'The job was cancelled.' };
    await move(tx, { job, attempt }, { to: 'cancelled', nowMs, event }, deps);
    return undefined;
  }
  if (attempt.started_ms === null) await deps.workloads.remove(tx, attempt.id);
  else await deps.workloads.stopJob(tx, attempt.id);
  await patchJob(tx, job.id, { cancel_ms: nowMs, due_ms: nowMs });
  await appendEvents(tx, job, [{ level: 'info', message: 'The job is being stopped.' }], { ...deps, nowMs });
  return attempt.machine_id;
}
