// Jobs, events and checkpoints as customers see them (specification 2.15), without machines and suppliers.
import type { FineTuningCheckpoint, FineTuningEvent, FineTuningJob } from '../../../shared/api/fine-tuning.ts';
import { dollarsFromUcents } from '../../../shared/money.ts';
import type { EventRow } from './events.ts';
import { type JobFileRow, newestCheckpoint } from './files.ts';
import type { Job } from './store.ts';

export function jobView(job: Job, resultFiles: string[]): FineTuningJob {
  const { request, error_code: code } = job;
  return {
    id: job.id,
    object: 'fine_tuning.job',
    model: job.model,
    created_at: unixSeconds(job.created_ms),
    finished_at: job.finished_ms === null ? null : unixSeconds(job.finished_ms),
    status: job.status,
    training_file: job.training_file,
    result_files: resultFiles,
    error: code === null ? null : { code, message: job.error_message ?? '', param: null },
    fine_tuned_model: null,
    metadata: request.metadata ?? {},
    method: request.method,
    seed: request.seed,
    suffix: request.suffix ?? null,
    svc: {
      max_budget_usd: dollarsFromUcents(job.budget_ucents),
      gpu_preference: request.gpu_preference,
      cost_usd: dollarsFromUcents(job.charged_ucents),
    },
  };
}

/**
 * Returns the files of the result. A job that ended without a result has its newest checkpoint. So has one that failed otherwise than by its budget,
 * because its result is not charged.
 */
export function resultsOf(job: Job, files: readonly JobFileRow[]): JobFileRow[] {
  if (job.finished_ms === null) return [];
  const isPaid = job.status !== 'failed' || job.error_code === 'budget_exceeded';
  const results = files.filter(
    ({ kind, state, blob_key: key, workload_id: id }) =>
      isPaid && kind === 'result' && state === 'verified' && key !== null && id === job.workload_id,
  );
  if (results.length > 0 || job.status === 'succeeded') return results;
  const checkpoint = newestCheckpoint(files);
  return checkpoint === undefined ? [] : [checkpoint];
}

export function eventView({ id, level, type, message, data, created_ms: createdMs }: EventRow): FineTuningEvent {
  return { id, object: 'fine_tuning.job.event', created_at: unixSeconds(createdMs), level, message, type, data };
}

export function checkpointView({
  id,
  job_id: jobId,
  step,
  loss,
  created_ms: createdMs,
}: JobFileRow): FineTuningCheckpoint {
  return {
    id,
    object: 'fine_tuning.job.checkpoint',
    created_at: unixSeconds(createdMs),
    fine_tuning_job_id: jobId,
    fine_tuned_model_checkpoint: null,
    step_number: step,
    metrics: { step, ...(loss === null ? {} : { train_loss: loss }) },
  };
}

function unixSeconds(ms: number): number {
  return Math.floor(ms / 1000);
}
