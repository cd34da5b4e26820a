// Computes the report to the control plane about each workload, from the same facts that the plan uses. Pure.
import { WORKLOADS_PER_MACHINE_MAX } from '../../shared/limits.ts';
import type { ObservedJob } from '../../shared/protocol/job.ts';
import type { ObservedMessage } from '../../shared/protocol/link.ts';
import type { ObservedWorkload } from '../../shared/protocol/workload.ts';
import { isMissing, type Facts } from './plan.ts';
import type { JobRecord, WorkloadRecord } from './records.ts';

/** What is known of a workload's holder. */
export interface HolderStatus {
  /** The holder process answers. */
  up: boolean;
  /** The guest inside the container is connected to it. */
  guest: boolean;
  host_key: string | null;
  main_exit: ObservedWorkload['main_exit'];
}

export interface ObservedFacts extends Facts {
  holders: ReadonlyMap<string, HolderStatus>;
  /** The last failure to start, per workload. */
  startErrors: ReadonlyMap<string, string>;
}

/**
 * Reports every desired or recorded workload. A workload with no known state (no engine answer since our start) is left out. A day of short
 * rentals leaves more tombstones than a report may contain. They come last, because a restored control plane must find what is still here.
 */
export function observe(facts: ObservedFacts): Pick<ObservedMessage, 'workloads' | 'unknown_workload_ids'> {
  const recorded = [...facts.records.values()].toSorted((a, b) => Number(a.gone) - Number(b.gone));
  const ids = new Set([...facts.desired, ...recorded].map((workload) => workload.workload_id));
  const workloads = [...ids].flatMap((id) => {
    const phase = phaseOf(id, facts);
    return phase === undefined ? [] : [describe(id, phase, facts)];
  });
  const unknown = (facts.containers ?? []).map((one) => one.workload_id).filter((id) => !ids.has(id));
  return {
    workloads: workloads.slice(0, WORKLOADS_PER_MACHINE_MAX),
    unknown_workload_ids: [...new Set(unknown)].slice(0, WORKLOADS_PER_MACHINE_MAX),
  };
}

type Phase = ObservedWorkload['phase'];

/** Undefined if the state of the workload is not known. The first rule that applies decides. */
function phaseOf(id: string, facts: ObservedFacts): Phase | undefined {
  const record = facts.records.get(id);
  const container = facts.containers?.find((one) => one.workload_id === id);
  if (record?.gone === true) return 'removed';
  if (record?.stopped_ms != null && container?.running !== true) return 'stopped';
  if (record?.failure && !record.removing) return 'failed';
  const ofJob = record?.job === undefined ? undefined : phaseOfJob(record, record.job, facts);
  if (ofJob !== undefined) return ofJob;
  if (container !== undefined) return container.running && isReachable(id, record, facts) ? 'running' : 'starting';
  if (facts.containers === null) return undefined;
  if (isMissing(id, record, facts)) return 'missing';
  const wanted = facts.desired.find((workload) => workload.workload_id === id);
  if (wanted === undefined || wanted.desired === 'removed') return undefined;
  return facts.pulls(wanted).state === 'ready' ? 'creating' : 'pulling';
}

/** Undefined if the job is not known to have started: its container decides then, as for a rental. */
function phaseOfJob(record: WorkloadRecord, job: JobRecord, facts: ObservedFacts): Phase | undefined {
  const { workload_id: id } = record;
  if (job.finished) return 'finished';
  // The files that were not uploaded yet are gone with the container.
  if (job.exit_code !== null) return isMissing(id, record, facts) ? 'missing' : 'finishing';
  const container = facts.containers?.find((one) => one.workload_id === id);
  return container?.started === true ? 'running' : undefined;
}

/** Once the guest has connected, a workload stays `running` without it: from then on only the tenant can have ended the guest. */
function isReachable(id: string, record: WorkloadRecord | undefined, facts: ObservedFacts): boolean {
  const holder = facts.holders.get(id);
  return holder?.up === true && (holder.guest || record?.ever_running === true);
}

function describe(id: string, phase: Phase, facts: ObservedFacts): ObservedWorkload {
  const record = facts.records.get(id);
  const holder = facts.holders.get(id);
  const wanted = facts.desired.find((workload) => workload.workload_id === id);
  const pull = phase === 'pulling' && wanted !== undefined ? facts.pulls(wanted) : undefined;
  return {
    workload_id: id,
    phase,
    pull: pull?.state === 'pulling' ? pull.progress : null,
    image_digest: record?.image_digest ?? null,
    host_key: holder?.host_key ?? null,
    main_exit: holder?.main_exit ?? null,
    failure_code: phase === 'failed' ? (record?.failure?.code ?? null) : null,
    detail: detailOf(id, phase, facts),
    ...(wanted?.job === undefined && record?.job === undefined ? {} : { job: jobOf(record?.job, phase) }),
  };
}

/** A removed job has no files in its report: a day of short jobs leaves so many files that the report would be too large. */
function jobOf(job: WorkloadRecord['job'], phase: Phase): ObservedJob {
  return {
    exit_code: job?.exit_code ?? null,
    stopped_at_limit: job?.stopped_at_limit ?? false,
    results: phase === 'removed' ? null : (job?.results ?? null),
    detail: job?.detail?.slice(0, 512) ?? null,
    skipped_lines: job?.skipped_lines ?? 0,
    ...(job?.ran_ms === undefined ? {} : { ran_ms: job.ran_ms }),
  };
}

function detailOf(id: string, phase: Phase, facts: ObservedFacts): string | null {
  const record = facts.records.get(id);
  if (phase === 'failed') return record?.failure?.detail.slice(0, 2048) ?? null;
  if (phase === 'starting') return facts.startErrors.get(id)?.slice(0, 2048) ?? null;
  if (phase === 'running' && facts.holders.get(id)?.guest === false)
    return 'the helper inside the container does not answer';
  return null;
}
