// Decides the next step for every workload of this machine: a pure function of the desired state, the observed state and the time.
//
// Silence ends nothing. A workload that the list no longer contains is left alone, and only `desired: removed` ends one. If the engine
// does not answer (`containers: null`), that does not mean that it has no containers.
import { AUTO_TERMINATE_GRACE_MS, GUEST_SILENT_MS_MAX } from '../../shared/limits.ts';
import type { DesiredJob } from '../../shared/protocol/job.ts';
import type { DesiredWorkload } from '../../shared/protocol/workload.ts';
import type { LocalContainer } from './engine.ts';
import type { PullStatus, Wanted } from './pulls.ts';
import type { WorkloadRecord } from './records.ts';

export type Step =
  | { kind: 'pull'; workload_id: string; workload: DesiredWorkload }
  | { kind: 'create'; workload_id: string; workload: DesiredWorkload }
  | { kind: 'start'; workload_id: string; container_id: string; gpu_uuids: readonly string[] }
  /** Somebody has paused the container by hand. */
  | { kind: 'resume'; workload_id: string; container_id: string }
  | { kind: 'holder'; workload_id: string }
  /** Nobody may get in any more, until the container runs again. */
  | { kind: 'end-holder'; workload_id: string }
  /** A job's time is over: it may write a checkpoint and must end. */
  | { kind: 'limit'; workload_id: string }
  /** The container of a program that runs once has died. */
  | { kind: 'died'; workload_id: string; container_id: string }
  /** A job's program has ended. */
  | { kind: 'exited'; workload_id: string; container_id: string }
  | {
      kind: 'fail';
      workload_id: string;
      workload: DesiredWorkload;
      code: 'gpu_unavailable' | 'image_pull_failed' | 'engine_unavailable' | 'guest_silent' | 'start_failed';
      detail: string;
    }
  | { kind: 'stop'; workload_id: string }
  | { kind: 'remove'; workload_id: string };

/** The GPUs of this machine. */
export interface GpuStanding {
  gpuUuids: ReadonlySet<string>;
  /** Why a GPU is not fit to be rented, by UUID. */
  gpuFaults: ReadonlyMap<string, string>;
}

/** The input of the plan. Times are epoch ms. */
export interface Facts extends GpuStanding {
  desired: readonly DesiredWorkload[];
  records: ReadonlyMap<string, WorkloadRecord>;
  /** Our containers, or null while the engine does not answer. */
  containers: readonly LocalContainer[] | null;
  /** Milliseconds for which the engine has not answered; 0 if it answers. */
  engineAwayMs: number;
  /** Workloads whose holder process answers. */
  holdersUp: ReadonlySet<string>;
  /** Milliseconds that the container and holder of each workload have run although the guest has never connected. */
  silentMs: ReadonlyMap<string, number>;
  /** Milliseconds for which neither the guest nor the engine has shown that the container of a workload that has run still runs. */
  deadMs: ReadonlyMap<string, number>;
  /**
   * Workloads (and `holder <id>`) with a step at work, and the GPUs of the container that the step starts. The facts about these workloads are
   * out of date.
   */
  busy: ReadonlyMap<string, readonly string[]>;
  pulls: (wanted: Wanted) => PullStatus;
  /** Epoch ms before which no step for a key begins. The delay grows with each failure. */
  retryAtMs: ReadonlyMap<string, number>;
  nowMs: number;
  /** The control plane's time, so that a change of the host's clock does not change a quarantine. */
  serverNowMs: number;
  quarantineMs: number;
}

/** Failure code by the cause of a failed pull. If the host was the cause, another host may succeed. */
const PULL_FAULT = { image: 'image_pull_failed', host: 'start_failed' } as const;
const ENGINE_AWAY_MS_MAX = 2 * 60_000;
const DEAD_MS_MAX = 2 * 60_000;
const SILENT = `nothing inside the container has answered within ${GUEST_SILENT_MS_MAX / 60_000} minutes of its start: the image keeps it from starting`;

/** The steps that are due: at most one per workload and one for its holder. The order between workloads has no meaning. */
export function plan(facts: Facts): Step[] {
  const wanted = new Map(facts.desired.map((workload) => [workload.workload_id, workload]));
  const ids = new Set([...wanted.keys(), ...facts.records.keys()]);
  return withoutSharedGpus(
    [...ids].flatMap((id) => planWorkload(id, wanted.get(id), facts)),
    facts,
  );
}

/**
 * Replaces or drops the steps that would give a GPU a second container. The control plane may ask for one: a copy of this host may have reported that
 * a container is gone, although it still runs here.
 *
 * - A new container whose GPU has a running container of another workload fails, so that another host is tried.
 * - An older container waits instead, because it may hold a customer's data.
 * - Both wait if a step at work gives the GPU to another container. That step may be of a workload that the desired state has lost meanwhile.
 */
function withoutSharedGpus(steps: readonly Step[], { desired, containers, busy }: Facts): Step[] {
  const running = new Map((containers ?? []).filter((one) => one.running).flatMap(gpusWithUser));
  const ofBusyWorkloads = desired.filter(({ workload_id: id }) => busy.has(id)).flatMap(gpusWithUser);
  const ofBusySteps = [...busy].flatMap(([id, uuids]) => gpusWithUser({ workload_id: id, gpu_uuids: uuids }));
  const coming = new Map([...ofBusyWorkloads, ...ofBusySteps]);
  return steps.flatMap((step): Step[] => {
    if (step.kind !== 'create' && step.kind !== 'start') return [step];
    const { workload_id: id } = step;
    const uuids = gpusOf(step);
    const shared = uuids.find((uuid) => (running.get(uuid) ?? id) !== id);
    if (shared !== undefined && step.kind === 'create') {
      const detail = `${shared} is in use by the container of ${running.get(shared)}, which still runs`;
      return [{ kind: 'fail', workload_id: id, workload: step.workload, code: 'gpu_unavailable', detail }];
    }
    if (shared !== undefined || uuids.some((uuid) => (coming.get(uuid) ?? id) !== id)) return [];
    for (const uuid of uuids) coming.set(uuid, id);
    return [step];
  });
}

/** The GPUs that a step gives to a container that it starts. */
export function gpusOf(step: Step): readonly string[] {
  if (step.kind === 'create') return step.workload.gpu_uuids;
  return step.kind === 'start' ? step.gpu_uuids : [];
}

/** Pairs of a GPU and the workload that uses it. */
function gpusWithUser({
  gpu_uuids: uuids,
  workload_id: id,
}: Pick<LocalContainer, 'gpu_uuids' | 'workload_id'>): [string, string][] {
  return uuids.map((uuid) => [uuid, id]);
}

function planWorkload(id: string, workload: DesiredWorkload | undefined, facts: Facts): Step[] {
  const record = facts.records.get(id);
  if (record?.gone === true) return planStray(id, record, facts);
  if (workload?.desired === 'removed' || record?.removing === true || hasEnded(workload, facts)) {
    return planRemoval(id, record, facts);
  }
  if (workload === undefined) return [];
  if (record?.failure) return [];
  if (isMissing(id, record, facts)) return [];
  const steps = planContainer(workload, facts);
  return workload.job === undefined ? [...steps, ...planHolder(id, facts)] : steps;
}

/**
 * A holder lets people in without the guest, because the tenant may have ended the guest. If the container itself is dead for longer than an
 * engine takes to restart, the holder ends. Then the probes of the control plane fail, and the rental is not charged.
 */
function planHolder(id: string, facts: Facts): Step[] {
  const isDead = (facts.deadMs.get(id) ?? 0) >= DEAD_MS_MAX;
  if (isDead !== facts.holdersUp.has(id) || !isDue(holderKey(id), facts)) return [];
  return [{ kind: isDead ? 'end-holder' : 'holder', workload_id: id }];
}

/**
 * True if the workload had a container and the engine no longer knows it. This is reported and the container is never replaced: a
 * second one would be an empty disk under the old name.
 */
export function isMissing(
  id: string,
  record: WorkloadRecord | undefined,
  facts: Pick<Facts, 'containers' | 'busy'>,
): boolean {
  if (facts.containers === null || facts.busy.has(id) || record === undefined || record.container_id === null)
    return false;
  return !facts.containers.some((one) => one.workload_id === id);
}

/** True after the workload's end time and a grace period. So the workload ends even if this host has no link to the control plane. */
function hasEnded(workload: DesiredWorkload | undefined, { serverNowMs }: Facts): boolean {
  const endsAtMs = workload?.ends_at_ms ?? null;
  return endsAtMs !== null && serverNowMs >= endsAtMs + AUTO_TERMINATE_GRACE_MS;
}

/** The key of a workload's holder. It differs from the container's key, so that steps for both can run in parallel. */
export function holderKey(workloadId: string): string {
  return `holder ${workloadId}`;
}

/**
 * The key of a step: of the steps with one key, at most one is at work. A failure because of an engine that hangs has a key of its own. Another step
 * of the workload may hang in that engine, and the failure must not wait for it.
 */
export function keyOf(step: Step): string {
  const { kind, workload_id: id } = step;
  if (kind === 'holder' || kind === 'end-holder') return holderKey(id);
  return kind === 'fail' && step.code === 'engine_unavailable' ? `fail ${id}` : id;
}

function isDue(key: string, facts: Facts): boolean {
  return !facts.busy.has(key) && (facts.retryAtMs.get(key) ?? 0) <= facts.nowMs;
}

function planContainer(workload: DesiredWorkload, facts: Facts): Step[] {
  const id = workload.workload_id;
  if (facts.containers === null) return planWithoutEngine(workload, facts);
  if (!isDue(id, facts)) return [];
  const container = facts.containers.find((one) => one.workload_id === id);
  if (container?.paused === true) return [{ kind: 'resume', workload_id: id, container_id: container.id }];
  const isThere = container !== undefined && !mayBeHalfMade(container, facts);
  return isThere ? planExisting(workload, container, facts) : planNew(workload, facts);
}

/**
 * Starts a container that does not run. It is not started again if its program runs once and has begun, which it does when the guest connects for the
 * first time.
 */
function planExisting(workload: DesiredWorkload, container: LocalContainer, facts: Facts): Step[] {
  const id = workload.workload_id;
  if (workload.job !== undefined && container.started) return planJob(workload.job, container, facts);
  if (!container.running) {
    const hasBegun = container.started && facts.records.get(id)?.ever_running === true;
    if (workload.runs_once === true && hasBegun) return [{ kind: 'died', workload_id: id, container_id: container.id }];
    return [{ kind: 'start', workload_id: id, container_id: container.id, gpu_uuids: container.gpu_uuids }];
  }
  if (!isSilent(id, facts)) return [];
  return [{ kind: 'fail', workload_id: id, workload, code: 'guest_silent', detail: SILENT }];
}

/** Pulls the image, then creates the container. */
function planNew(workload: DesiredWorkload, facts: Facts): Step[] {
  const id = workload.workload_id;
  const lacking = gpuLack(workload, facts);
  if (lacking !== undefined)
    return [{ kind: 'fail', workload_id: id, workload, code: 'gpu_unavailable', detail: lacking }];
  const pull = facts.pulls(workload);
  switch (pull.state) {
    case 'none':
      return [{ kind: 'pull', workload_id: id, workload }];
    case 'pulling':
      return [];
    case 'failed':
      return [{ kind: 'fail', workload_id: id, workload, code: PULL_FAULT[pull.fault], detail: pull.detail }];
    case 'ready':
      return [{ kind: 'create', workload_id: id, workload }];
  }
}

/**
 * True if the creation of the container may have been interrupted before its folders were there: its id is stored after them. It has never been
 * started, so it holds no data and is created again.
 */
function mayBeHalfMade({ workload_id: id, started }: LocalContainer, { records }: Facts): boolean {
  return !started && (records.get(id)?.container_id ?? null) === null;
}

/** A job is started once. It ends by itself or at its limit, and its end is never followed by another start. */
function planJob(job: DesiredJob, container: LocalContainer, { records, serverNowMs }: Facts): Step[] {
  const { workload_id: id } = container;
  const record = records.get(id)?.job;
  if (!container.running)
    return record?.exit_code === null ? [{ kind: 'exited', workload_id: id, container_id: container.id }] : [];
  const isOver = record !== undefined && serverNowMs >= record.started_ms + job.run_ms_max;
  return isOver ? [{ kind: 'limit', workload_id: id }] : [];
}

/** True if the guest has been silent for too long. Never true once it has connected: after that, only the tenant can have ended it. */
function isSilent(id: string, { silentMs, records }: Facts): boolean {
  return records.get(id)?.ever_running !== true && (silentMs.get(id) ?? 0) >= GUEST_SILENT_MS_MAX;
}

function gpuLack({ gpu_uuids }: DesiredWorkload, { gpuUuids, gpuFaults }: GpuStanding): string | undefined {
  const faulty = gpu_uuids.flatMap((uuid) => {
    const fault = gpuFaults.get(uuid);
    return fault === undefined ? [] : [`${uuid}: ${fault}`];
  });
  if (faulty.length > 0) return faulty.join('; ');
  const absent = gpu_uuids.filter((uuid) => !gpuUuids.has(uuid));
  return absent.length > 0 ? `this machine has no GPU ${absent.join(', ')}` : undefined;
}

/** Fails workloads that have never run, so that another host may start them. An engine that only restarts is back much earlier. */
function planWithoutEngine(workload: DesiredWorkload, { engineAwayMs, records }: Facts): Step[] {
  const { workload_id } = workload;
  if (engineAwayMs < ENGINE_AWAY_MS_MAX || records.get(workload_id)?.ever_running === true) return [];
  const detail = `the container engine of the host has not answered for ${ENGINE_AWAY_MS_MAX / 60_000} minutes`;
  return [{ kind: 'fail', workload_id, workload, code: 'engine_unavailable', detail }];
}

/**
 * The engine may still have a container of a workload that is gone, for one of two reasons:
 * - The agent died after it had asked for the container, and a slow engine made it after the removal. The container was never started and holds no
 *   data, so it is removed at once.
 * - The engine did not list the container while the disk with its data was away. It is removed in two phases, like any other.
 */
function planStray(id: string, record: WorkloadRecord, facts: Facts): Step[] {
  const stray = facts.containers?.find((one) => one.workload_id === id);
  if (stray === undefined) return [];
  if (stray.started) return planRemoval(id, record, facts);
  return isDue(id, facts) ? [{ kind: 'remove', workload_id: id }] : [];
}

/** Two phases: stop and cut off now, remove container and disk after the quarantine. */
function planRemoval(id: string, record: WorkloadRecord | undefined, facts: Facts): Step[] {
  if (facts.containers === null || !isDue(id, facts)) return [];
  const container = facts.containers.find((one) => one.workload_id === id);
  if (container === undefined) return [{ kind: 'remove', workload_id: id }];
  if (container.running || record === undefined || record.stopped_ms === null)
    return [{ kind: 'stop', workload_id: id }];
  return isQuarantineOver(record, facts) ? [{ kind: 'remove', workload_id: id }] : [];
}

/**
 * True if the container was stopped for its removal so long ago that it may be removed. It is kept for the quarantine, but for no longer than it
 * existed: otherwise somebody who rents a large disk for a second, again and again, would take the disks of all hosts for almost nothing.
 */
export function isQuarantineOver(
  { stopped_ms: stoppedMs, made_ms: madeMs }: Pick<WorkloadRecord, 'stopped_ms' | 'made_ms'>,
  { quarantineMs, serverNowMs }: Pick<Facts, 'quarantineMs' | 'serverNowMs'>,
): boolean {
  if (stoppedMs === null) return false;
  const existedMs = madeMs == null ? quarantineMs : Math.max(0, stoppedMs - madeMs);
  return stoppedMs + Math.min(quarantineMs, existedMs) <= serverNowMs;
}
