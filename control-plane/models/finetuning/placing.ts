// Places a job on a machine, at first and again after a machine was lost.
import { JOB_GRACE_MS } from '../../../shared/limits.ts';
import { dollarText } from '../../../shared/money.ts';
import type { DesiredJob } from '../../../shared/protocol/job.ts';
import type { Tx } from '../../base/db/db.ts';
import { pauseOf } from '../../base/db/pauses.ts';
import { ucentsPerHour } from '../catalog/fine-tuning.ts';
import { insertAttempt } from './attempts.ts';
import type { FineTuningDeps } from './deps.ts';
import { appendEvents } from './events.ts';
import { newestCheckpoint, type JobFileRow } from './files.ts';
import { paidMs } from './money.ts';
import { preferredTypes, takePlace } from './place.ts';
import { type Facts, planUnplaced } from './plan.ts';
import { failure, move } from './states.ts';
import * as store from './store.ts';

/** The names of the inputs in `/job`. */
export const INPUTS = { data: 'train.jsonl', checkpoint: 'resume.ckpt' } as const;

/**
 * Places the job on a machine. The job goes on from its last verified checkpoint. If no machine is free for it, or while operators have paused
 * launches, the search is repeated soon. Returns the ids of waiting jobs that should search now: the one that comes first for a free place, or the
 * next ones in the queue.
 */
export async function placeJob(tx: Tx, { job, files }: Facts, nowMs: number, deps: FineTuningDeps): Promise<string[]> {
  const rate = ucentsPerHour(job.terms);
  const runMs = paidMs(job.budget_ucents - job.charged_ucents, rate) - JOB_GRACE_MS;
  if (runMs < JOB_GRACE_MS) {
    const message = `The rest of the budget of $${dollarText(job.budget_ucents)} does not pay for another start.`;
    await move(tx, { job, attempt: undefined }, { ...failure('budget_exceeded', message), nowMs }, deps);
    return [];
  }
  const workloadId = deps.ids.prefixed('wl');
  const isPaused = (await pauseOf(tx, 'launches')) !== undefined;
  const { place: found, firstId } = isPaused ? {} : await takePlace(tx, { job, workloadId, nowMs }, deps);
  if (found === undefined) {
    const step = planUnplaced(job, nowMs);
    await store.patchJob(tx, job.id, { due_ms: step.do === 'wait' ? step.untilMs : nowMs });
    return firstId === undefined ? [] : [firstId];
  }
  const checkpoint = newestCheckpoint(files);
  await deps.workloads.want(tx, found.machineId, {
    workload_id: workloadId,
    instance_id: job.id,
    image: job.terms.image,
    pull_login: false,
    command: { entrypoint: null, cmd: null },
    sealed_env: deps.workloads.sealEnv(job.id, { JOB_ID: job.id }),
    gpu_uuids: found.gpuUuids,
    disk_gb: found.diskGb,
    ends_at_ms: null,
    job: desiredJob(job, checkpoint, runMs),
  });
  await insertAttempt(tx, {
    id: workloadId,
    job_id: job.id,
    machine_id: found.machineId,
    supplier_id: found.supplierId,
    gpu_type: found.gpuType,
    rate_ucents_per_hour: rate,
    supplier_rate_ucents_per_hour: found.supplierUcentsPerHour,
    supplier_bps: 10_000 - deps.platformFeeBps,
    resume_file_id: checkpoint?.id ?? null,
    resume_step: checkpoint?.step ?? 0,
    run_ms_max: runMs,
    created_ms: nowMs,
  });
  if (job.tried_machine_ids.length === 0) await store.noteTurn(tx, job.org_id, nowMs);
  await notePlaced(tx, job, { ...found, workloadId, nowMs, resumeStep: checkpoint?.step }, deps);
  const heads = await store.headsOfQueue(tx, nowMs);
  return heads.map(({ id }) => id);
}

async function notePlaced(
  tx: Tx,
  job: store.Job,
  at: { machineId: string; gpuType: string; workloadId: string; nowMs: number; resumeStep: number | undefined },
  deps: FineTuningDeps,
): Promise<void> {
  const tried = JSON.stringify([...job.tried_machine_ids, at.machineId]);
  await store.patchJob(tx, job.id, { workload_id: at.workloadId, tried_machine_ids: tried, due_ms: at.nowMs });
  const message = placedText(job, at);
  await appendEvents(tx, job, [{ level: 'info', message, data: { gpu_type: at.gpuType } }], {
    ...deps,
    nowMs: at.nowMs,
  });
}

function placedText(
  { request, terms }: store.Job,
  { gpuType, resumeStep }: { gpuType: string; resumeStep: number | undefined },
): string {
  const preferred = preferredTypes(request.gpu_preference);
  const rank = preferred.indexOf(gpuType);
  const why =
    preferred.length === 0
      ? 'the cheapest type that fits'
      : rank === 0
        ? 'the preferred type'
        : rank > 0
          ? `number ${rank + 1} of the preferred types, as none before it was free`
          : 'the cheapest type that fits, as none of the preferred types was free';
  const from = resumeStep === undefined ? '' : ` It goes on from the checkpoint at step ${resumeStep}.`;
  return `Placed on ${terms.gpu_count} x ${gpuType}: ${why}.${from}`;
}

/** The job on the wire. Its `job.json` is part of the trainer contract (docs/trainers.md). */
function desiredJob(job: store.Job, checkpoint: JobFileRow | undefined, runMs: number): DesiredJob {
  const { terms, request } = job;
  const data = { name: INPUTS.data, bytes: job.file_bytes, sha256: job.file_sha256 };
  const resume = checkpoint && { name: INPUTS.checkpoint, bytes: checkpoint.bytes, sha256: checkpoint.sha256 };
  const { type, lora } = request.method;
  const config = {
    job_id: job.id,
    base_model: job.model,
    base_model_path: terms.base_model_path,
    train_file: `/job/${INPUTS.data}`,
    resume_file: resume === undefined ? null : `/job/${INPUTS.checkpoint}`,
    resume_step: checkpoint?.step ?? 0,
    method: type,
    lora: { r: lora.lora_r, alpha: lora.lora_alpha, dropout: lora.lora_dropout },
    seed: request.seed,
    epochs: terms.epochs,
    seconds_max: Math.floor(runMs / 1000),
  };
  return { inputs: resume === undefined ? [data] : [data, resume], config: JSON.stringify(config), run_ms_max: runMs };
}
