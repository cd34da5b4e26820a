// The steps that only jobs have: their container, their start, their limit and their end.
import { JOB_GRACE_MS, JOB_RAN_MS_MAX } from '../../shared/limits.ts';
import type { Log } from '../../shared/log.ts';
import type { DesiredWorkload } from '../../shared/protocol/workload.ts';
import type { Desired } from './desired.ts';
import type { Engine, LocalImage, Mount } from './engine.ts';
import { isOver } from './over.ts';
import { type JobRecord, newJobRecord, type Records } from './records.ts';
import { jobShapeOf, type Machine } from './shape.ts';

/** Function of agent/jobs that the steps call. */
export interface JobInputs {
  /** Fetches what the job reads; resolves with the mounts. */
  prepare(workload: DesiredWorkload): Promise<Mount[]>;
}

export interface JobStepsDeps {
  jobs: JobInputs;
  desired: Pick<Desired, 'serverNowMs' | 'knowsTime' | 'held'>;
  log: Log;
  engine: Engine;
  records: Records;
  machine: () => Machine;
}

export function isJob(workloadId: string, { desired }: JobStepsDeps): boolean {
  return desired.held()?.workloads.find(({ workload_id: id }) => id === workloadId)?.job !== undefined;
}

/** Resolves with the container's id; undefined if the job has ended while its inputs came. */
export async function createJob(
  workload: DesiredWorkload,
  image: LocalImage,
  deps: JobStepsDeps,
): Promise<string | undefined> {
  const { engine, records, jobs, log, machine } = deps;
  const { workload_id } = workload;
  const mounts = await jobs.prepare(workload);
  if (isOver(workload_id, deps)) return undefined;
  const containerId = await engine.create(jobShapeOf(workload, image, mounts, machine()));
  const made = { container_id: containerId, image_digest: image.digest, made_ms: deps.desired.serverNowMs() };
  await records.change(workload_id, made);
  log.info({ workload_id, container_id: containerId, image: workload.image }, 'the container of a job was created');
  return containerId;
}

/**
 * Records the start of a job before it happens, so that a crash cannot lose it. The job counts as running at once: it has no guest that connects.
 */
export async function noteStart(workloadId: string, { records, desired }: JobStepsDeps): Promise<void> {
  await records.change(workloadId, {
    ever_running: true,
    job: newJobRecord(desired.serverNowMs()),
  });
}

/**
 * Whether a job that is recorded as started may really have been started: the record is written first, and the answer to a start may be lost.
 * Only the engine knows it. True too if the engine does not answer, or knows no such container.
 */
export async function hasJobStarted(workloadId: string, { engine }: JobStepsDeps): Promise<boolean> {
  const containers = await engine.list().catch(() => []);
  return containers.find((one) => one.workload_id === workloadId)?.started !== false;
}

/** The time of a job is over: it may write a checkpoint, then it must end. */
export async function stopAtLimit(workloadId: string, { engine, records, log }: JobStepsDeps): Promise<void> {
  const job = records.all().get(workloadId)?.job;
  if (job !== undefined) await records.change(workloadId, { job: { ...job, stopped_at_limit: true } });
  log.info({ workload_id: workloadId }, 'the time of a job is over: it is stopped');
  await engine.stop(workloadId, JOB_GRACE_MS);
}

/** The program of a job has ended. Its files are carried by agent/jobs. */
export async function noteExit(
  workloadId: string,
  containerId: string,
  { desired, engine, records, log }: JobStepsDeps,
): Promise<void> {
  const { code, reason, ran_ms: ranMs = Infinity } = await engine.lastExit(containerId);
  const job = records.all().get(workloadId)?.job;
  if (job === undefined) return;
  const detail = code === 0 ? job.detail : reason;
  // The engine, or this agent, may have been away since the end of the program.
  const ran = desired.knowsTime() ? runTimeOf(Math.min(ranMs, desired.serverNowMs() - job.started_ms)) : {};
  await records.change(workloadId, { job: { ...job, ...ran, exit_code: code, detail } });
  log.info({ workload_id: workloadId, exit_code: code }, 'a job has ended');
}

/** A time that cannot be true says nothing: the control plane may have set its own clock. */
function runTimeOf(ms: number): Pick<JobRecord, 'ran_ms'> {
  return ms >= 0 && ms <= JOB_RAN_MS_MAX ? { ran_ms: ms } : {};
}
