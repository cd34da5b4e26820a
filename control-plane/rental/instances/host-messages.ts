// What messages of a host do for its instances: it reports a broken GPU, or requests the login to pull a private image.
import { GRACE_MS } from '../../../shared/limits.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import { openRowFailures } from '../../base/db/row-failures.ts';
import type { HeldGpus } from '../../fleet/supply/intake.ts';
import { findWorkload, instancesOf } from '../../fleet/workloads/store.ts';
import { type ClockStep, passedMs } from './clock-steps.ts';
import { gpuStatesOf, setGpuFault, setGpuWhole } from './gpu-store.ts';
import type { GpuGrace } from './plan.ts';
import { runningReason } from './view.ts';
import { appendEvent, chargeFrom, lockRental, type MoveDeps } from './states.ts';
import * as store from './store.ts';
import type { PullLogin } from '../../../shared/protocol/link.ts';
import type { ObservedWorkload } from '../../../shared/protocol/workload.ts';

/** A host that reports a GPU broken and whole in turns is heard this often. */
const FAULT_MS_MIN = 60_000;

/**
 * The host has found the GPUs of workloads broken (`fault` describes it), or whole again (null). A running instance keeps its status, and
 * is not charged from now until the GPUs are whole. The transfer carries the evidence. For an instance that does not run yet the fault is only
 * stored, and the engine tries another host. A repeated report changes nothing; the first fault counts. Each instance has its own transaction.
 *
 * A fault of a running instance counts for FAULT_MS_MIN. If the host reports the GPUs whole sooner, the engine ends the fault (`endFault`).
 * Each pair of such reports writes rows of money that are kept for ever, so a host must not be able to send thousands of them.
 */
export async function noteGpus(found: readonly HeldGpus[], nowMs: number, deps: MoveDeps & { db: Db }): Promise<void> {
  const { db } = deps;
  const failures = openRowFailures();
  const faults = new Map(found.map(({ heldBy, fault }) => [heldBy, fault]));
  const ids = await instancesOf(db.read, [...faults.keys()]);
  for (const rental of await gpuStatesOf(db.read, ids)) {
    const fault = faults.get(rental.workload_id ?? '');
    if (fault === undefined || !isNews(rental, fault)) continue;
    const noted = db.tx('instances.gpus', async (tx) => {
      await lockRental(tx, rental);
      await noteOnRental(tx, rental.workload_id ?? '', { fault, nowMs }, deps);
    });
    await failures.note(`the state of the GPUs of ${rental.id} could not be noted`, noted);
  }
  failures.throwAll();
}

function isNews(
  { status, gpu_fault: known, gpu_whole_ms: wholeMs }: Pick<store.InstanceRow, 'status' | 'gpu_fault' | 'gpu_whole_ms'>,
  fault: string | null,
): boolean {
  if (!store.LIVE.has(status)) return false;
  return fault === null ? known !== null && wholeMs === null : known === null || wholeMs !== null;
}

async function noteOnRental(
  tx: Tx,
  workloadId: string,
  found: { fault: string | null; nowMs: number },
  deps: MoveDeps,
): Promise<void> {
  const workload = await findWorkload(tx, workloadId);
  const instance = workload === undefined ? undefined : await store.findRental(tx, workload.instance_id);
  // Ignores reports about the workload of an earlier placement.
  if (workload === undefined || instance === undefined || instance.workload_id !== workloadId) return;
  const { fault, nowMs } = found;
  if (!isNews(instance, fault)) return;
  await store.makeDue(tx, instance.id, nowMs);
  const { status, gpu_fault: known, gpu_fault_since_ms: sinceMs } = instance;
  if (fault !== null && known !== null) return setGpuWhole(tx, instance.id, null);
  if (fault === null && status === 'running' && nowMs < (sinceMs ?? 0) + FAULT_MS_MIN)
    return setGpuWhole(tx, instance.id, nowMs);
  if (fault === null) return mend(tx, instance, { nowMs, sinceMs: null, observed: workload.observed }, deps);
  await setGpuFault(tx, instance.id, { fault, nowMs });
  if (status === 'running') {
    await store.noteReason(tx, instance.id, runningReason({ gpuFault: fault, observed: workload.observed }));
    await deps.metering.pauseForGpuFault(tx, instance.id, nowMs, `the host found a GPU broken: ${fault}`);
  }
  await appendEvent(tx, instance, { type: 'instance.gpu_broken', status, reason: fault, sinceMs: null }, deps);
}

async function mend(
  tx: Tx,
  instance: store.RentalRow,
  { nowMs, sinceMs, observed }: { nowMs: number; sinceMs: number | null; observed: ObservedWorkload | null },
  deps: MoveDeps,
): Promise<void> {
  const { id, status } = instance;
  await setGpuFault(tx, id, { fault: null, nowMs });
  // Its recovery may count from a good probe before this, but it is not charged for a time with a broken GPU.
  if (status === 'unreachable') await setGpuWhole(tx, id, instance.gpu_whole_ms ?? nowMs);
  if (status === 'running') {
    await store.noteReason(tx, id, runningReason({ gpuFault: null, observed }));
    await chargeFrom(tx, instance, sinceMs ?? nowMs, deps);
  }
  await appendEvent(tx, instance, { type: 'instance.gpu_mended', status, reason: null, sinceMs }, deps);
}

/**
 * Ends the fault of an instance whose GPUs the host reported whole before that could count. A running one is charged again since that report, but
 * not for time before it was running: it may have been out of reach in between. One that is out of reach is charged from its recovery on.
 */
export async function endFault(tx: Tx, id: string, nowMs: number, deps: MoveDeps): Promise<void> {
  const instance = await store.findRental(tx, id);
  if (instance === undefined || instance.gpu_fault === null || instance.gpu_whole_ms === null) return;
  if (!store.CONNECTABLE.has(instance.status)) return;
  const workload = await findWorkload(tx, instance.workload_id ?? '');
  const sinceMs = instance.status === 'running' ? Math.max(instance.gpu_whole_ms, instance.entered_ms) : null;
  await mend(tx, instance, { nowMs, sinceMs, observed: workload?.observed ?? null }, deps);
}

/** When an instance with broken GPUs is given up, or its fault ends; undefined while the GPUs are whole. */
export function gpuGrace(
  {
    gpu_fault: fault,
    gpu_fault_since_ms: sinceMs,
    gpu_whole_ms: wholeMs,
  }: Pick<store.InstanceRow, 'gpu_fault' | 'gpu_fault_since_ms' | 'gpu_whole_ms'>,
  nowMs: number,
  steps: readonly ClockStep[],
): GpuGrace | undefined {
  if (fault === null || sinceMs === null) return undefined;
  const untilMs = nowMs + GRACE_MS - passedMs(sinceMs, nowMs, steps);
  return { fault, untilMs, endsMs: wholeMs === null ? null : sinceMs + FAULT_MS_MIN };
}

export interface PullLoginDeps {
  db: Db;
  /** Null if no login is needed. @throws ServiceError if the registry does not answer or refuses */
  imagePullLogin(orgId: string, image: string, credentialId: string): Promise<PullLogin | null>;
}

/**
 * The registry login that a host requests right before it pulls a private image. Undefined if the host may not have it: the workload
 * belongs to another machine or is being removed, or the image is public.
 */
export async function pullLogin(
  machineId: string,
  workloadId: string,
  { db, imagePullLogin }: PullLoginDeps,
): Promise<PullLogin | null | undefined> {
  const workload = await findWorkload(db.read, workloadId);
  if (workload?.machine_id !== machineId || workload.state !== 'wanted') return undefined;
  const instance = await store.findInstance(db.read, workload.instance_id);
  if (instance?.workload_id !== workloadId || instance.launch.registry_credential_id === null) return undefined;
  return imagePullLogin(instance.org_id, instance.launch.image, instance.launch.registry_credential_id);
}
