// Cancels and deletes video jobs for their owner.
import { fail } from '../../../shared/errors.ts';
import { removeUnnamed } from '../../base/blobs/blobs.ts';
import type { Tx } from '../../base/db/db.ts';
import type { StepDeps } from './deps.ts';
import { isOpen, move } from './states.ts';
import { findJob, type Job, patchJob } from './store.ts';

interface Named {
  orgId: string;
  id: string;
}

/** Cancels a job. The engine stops the work at the server later. @throws ServiceError `not_found` */
export async function cancelJob(
  named: Named,
  settle: (tx: Tx, job: Job) => Promise<void>,
  deps: StepDeps,
): Promise<Job> {
  const nowMs = deps.clock.now();
  const { job, isCancelled } = await deps.db.tx('videos.cancel', async (tx) => {
    await tx.lock('video', named.id);
    const found = await ownJob(tx, named);
    // After `committed_ms` the video is finished, and only its file is still being fetched.
    const mayEnd = isOpen(found) && found.committed_ms === null;
    const isEnded = mayEnd && (await move(tx, found, { to: 'cancelled' }, { ...deps, nowMs }));
    const after = isEnded ? await ownJob(tx, named) : found;
    await settle(tx, after);
    return { job: after, isCancelled: isEnded };
  });
  if (isCancelled) {
    deps.counts.ended(job.model_id, 'cancelled');
    deps.nudge();
  }
  return job;
}

/** @throws ServiceError `not_found`, `conflict` for a job that has not ended */
export async function deleteJob(named: Named, deps: StepDeps): Promise<void> {
  const nowMs = deps.clock.now();
  const blobKey = await deps.db.tx('videos.delete', async (tx) => {
    await tx.lock('video', named.id);
    const job = await ownJob(tx, named);
    if (isOpen(job)) {
      return fail(
        'conflict',
        `The video ${job.id} is ${job.status}. Cancel it first with POST /v1/videos/${job.id}/cancel.`,
      );
    }
    const patch = { deleted_ms: nowMs, blob_key: null };
    const event = 'video.deleted';
    if (job.status === 'completed') await move(tx, job, { to: 'expired', patch, event }, { ...deps, nowMs });
    else if (await patchJob(tx, job, patch))
      await deps.events.append(tx, { type: event, subjectId: job.id, orgId: job.org_id, data: {} });
    return job.blob_key;
  });
  if (blobKey !== null) await removeUnnamed(deps.blobs, blobKey);
}

async function ownJob(tx: Tx, { orgId, id }: Named): Promise<Job> {
  const job = await findJob(tx, id);
  if (job?.org_id !== orgId || job.deleted_ms !== null) return fail('not_found', `There is no video ${id}.`);
  return job;
}
