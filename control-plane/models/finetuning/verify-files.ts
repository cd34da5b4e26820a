// Reads what a host has uploaded and compares it with what the host has announced. Only a verified file counts: for money, and for success.
import { createHash } from 'node:crypto';
import type { Blobs } from '../../base/blobs/blobs.ts';
import { findAttempt } from './attempts.ts';
import type { FineTuningDeps } from './deps.ts';
import { appendEvents, type NewEvent } from './events.ts';
import { dropBlobs, filesOf, type JobFileRow, moveFile, newestCheckpoint } from './files.ts';
import { chargeThrough } from './money.ts';
import { isOpen } from './states.ts';
import { findJob, type Job, patchJob } from './store.ts';

/** Whether the blob has the announced size and hash. */
export async function blobMatches(file: JobFileRow, blobs: Blobs, signal: AbortSignal): Promise<boolean> {
  const blob = file.blob_key === null ? undefined : await blobs.open(file.blob_key);
  if (blob === undefined) return false;
  if (blob.bytes !== file.bytes) {
    await blob.close();
    return false;
  }
  const hash = createHash('sha256');
  for await (const piece of blob.stream() as AsyncIterable<Buffer>) {
    if (signal.aborted) return false;
    hash.update(piece);
  }
  return hash.digest('hex') === file.sha256;
}

/**
 * Stores the verdict. A right checkpoint charges the time up to its announcement or to the end of the program, whichever was first. The
 * newest one replaces the others: their blobs are removed. A job that has left the machine meanwhile is not charged for it.
 */
export async function noteVerified(
  { id, org_id: orgId }: Job,
  file: JobFileRow,
  isRight: boolean,
  deps: FineTuningDeps,
): Promise<void> {
  const nowMs = deps.clock.now();
  const dropped = await deps.db.tx('finetuning.verified', async (tx) => {
    await tx.lock('org', orgId);
    const job = await findJob(tx, id);
    if (job === undefined) return [];
    if (!(await moveFile(tx, file.id, { from: 'uploaded', to: isRight ? 'verified' : 'wrong' }))) return [];
    await patchJob(tx, id, { due_ms: nowMs });
    if (!isRight) {
      await appendEvents(tx, job, [wrongEvent(file)], { ...deps, nowMs });
      await dropBlobs(tx, [file.id]);
      return [file];
    }
    if (file.kind === 'result') return [];
    const attempt = await findAttempt(tx, file.workload_id);
    const isPresent = job.workload_id === file.workload_id && isOpen(job);
    if (attempt !== undefined && isPresent) {
      const throughMs = Math.min(file.created_ms, attempt.stopped_ms ?? Infinity);
      await chargeThrough(tx, { job, attempt }, throughMs, deps.ledger);
    }
    const event: NewEvent = {
      level: 'info',
      message: `The checkpoint at step ${file.step} is stored.`,
      data: { step: file.step },
    };
    await appendEvents(tx, job, [event], { ...deps, nowMs });
    if (!isPresent) return [];
    const files = await filesOf(tx, id);
    const newest = newestCheckpoint(files);
    // An upload may have taken so long that a later checkpoint is here already. The time up to that one is paid, so it stays.
    const older = files.filter(
      (other) =>
        other.kind === 'checkpoint' && other.id !== newest?.id && other.state === 'verified' && other.blob_key !== null,
    );
    await dropBlobs(
      tx,
      older.map((other) => other.id),
    );
    return older;
  });
  for (const { blob_key: key } of dropped) if (key !== null) await deps.blobs.remove(key);
}

function wrongEvent({ kind, name }: JobFileRow): NewEvent {
  const what = kind === 'result' ? 'A file of the result' : 'A checkpoint';
  return { level: 'warn', message: `${what} (${name}) has not the size and hash that were announced. It is not used.` };
}
