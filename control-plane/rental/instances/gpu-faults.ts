// What a broken GPU does to the rental that has it. Its host is the witness, outside the tenant's reach: nobody inside can bring it about.
import { GRACE_MS } from '../../../shared/limits.ts';
import type { Tx } from '../../base/db/db.ts';
import { findWorkload } from '../../fleet/workloads/store.ts';
import { runningReason } from './running-reason.ts';
import { chargeFrom, type MoveDeps, tell } from './states.ts';
import * as store from './store.ts';

/**
 * The host has found the GPUs of a workload broken (`fault` says what), or whole again (null). A running rental keeps its status, and its
 * time is not charged from now until they are whole: charging ends as at the first failed probe of an outage, with the evidence named on
 * the transfer. Of one that does not run yet it is only noted: another host is tried. Repeating it is harmless; the first fault counts.
 */
export async function noteGpus(
  tx: Tx,
  workloadId: string,
  found: { fault: string | null; nowMs: number },
  deps: MoveDeps,
): Promise<void> {
  const workload = await findWorkload(tx, workloadId);
  const instance = workload === undefined ? undefined : await store.findInstance(tx, workload.instance_id);
  // The workload of an earlier placement is none of its business any more.
  if (workload === undefined || instance === undefined || instance.workload_id !== workloadId) return;
  const { fault, nowMs } = found;
  if (!store.LIVE.has(instance.status) || (fault === null) === (instance.gpu_fault === null)) return;
  await store.setGpuFault(tx, instance.id, { fault, nowMs });
  await store.makeDue(tx, instance.id, nowMs);
  const isRunning = instance.status === 'running';
  const reason = runningReason({ gpuFault: fault, observed: workload.observed });
  if (isRunning) {
    await store.noteReason(tx, instance.id, reason);
    if (fault === null) await chargeFrom(tx, instance, nowMs, deps);
    else await deps.metering.pauseForGpuFault(tx, instance.id, nowMs, `the host found a GPU broken: ${fault}`);
  }
  const type = fault === null ? 'instance.gpu_mended' : 'instance.gpu_broken';
  await tell(tx, instance, { type, status: instance.status, reason: fault, sinceMs: null }, deps);
}

/** When a rental whose GPUs do not come back is given up, and with what words; undefined while they are whole. */
export function gpuGrace({
  gpu_fault: fault,
  gpu_fault_since_ms: sinceMs,
}: Pick<store.InstanceRow, 'gpu_fault' | 'gpu_fault_since_ms'>): { untilMs: number; fault: string } | undefined {
  return fault === null || sinceMs === null ? undefined : { untilMs: sinceMs + GRACE_MS, fault };
}
