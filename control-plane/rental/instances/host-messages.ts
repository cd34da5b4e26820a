// What messages of a host do for its instances: it reports a broken GPU, or requests the login to pull a private image.
import { GRACE_MS } from '../../../shared/limits.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import type { HeldGpus } from '../../fleet/supply/intake.ts';
import { findWorkload, instancesOf } from '../../fleet/workloads/store.ts';
import { runningReason } from './view.ts';
import { chargeFrom, lockRental, type MoveDeps, tell } from './states.ts';
import * as store from './store.ts';
import type { PullLogin } from '../../../shared/protocol/link.ts';

/**
 * The host has found the GPUs of workloads broken (`fault` describes it), or whole again (null). A running instance keeps its status, and
 * is not charged from now until the GPUs are whole. The transfer carries the evidence. For an instance that does not run yet the fault is only
 * stored, and the engine tries another host. A repeated report changes nothing; the first fault counts. Each instance has its own transaction.
 */
export async function noteGpus(found: readonly HeldGpus[], nowMs: number, deps: MoveDeps & { db: Db }): Promise<void> {
  const { db } = deps;
  const faults = new Map(found.map(({ heldBy, fault }) => [heldBy, fault]));
  const ids = await instancesOf(db.read, [...faults.keys()]);
  for (const rental of await store.instancesById(db.read, ids)) {
    const fault = faults.get(rental.workload_id ?? '');
    if (fault === undefined || !isNews(rental, fault)) continue;
    await db.tx('instances.gpus', async (tx) => {
      await lockRental(tx, rental);
      await noteOnRental(tx, rental.workload_id ?? '', { fault, nowMs }, deps);
    });
  }
}

function isNews({ status, gpu_fault: known }: store.InstanceRow, fault: string | null): boolean {
  return store.LIVE.has(status) && (fault === null) !== (known === null);
}

async function noteOnRental(
  tx: Tx,
  workloadId: string,
  found: { fault: string | null; nowMs: number },
  deps: MoveDeps,
): Promise<void> {
  const workload = await findWorkload(tx, workloadId);
  const instance = workload === undefined ? undefined : await store.findInstance(tx, workload.instance_id);
  // Ignores reports about the workload of an earlier placement.
  if (workload === undefined || instance === undefined || instance.workload_id !== workloadId) return;
  const { fault, nowMs } = found;
  if (!isNews(instance, fault)) return;
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

/** When an instance with broken GPUs is given up, and the fault; undefined while the GPUs are whole. */
export function gpuGrace({
  gpu_fault: fault,
  gpu_fault_since_ms: sinceMs,
}: Pick<store.InstanceRow, 'gpu_fault' | 'gpu_fault_since_ms'>): { untilMs: number; fault: string } | undefined {
  return fault === null || sinceMs === null ? undefined : { untilMs: sinceMs + GRACE_MS, fault };
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
