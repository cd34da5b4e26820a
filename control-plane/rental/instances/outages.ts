// What a verdict about the SSH path does to a rental: the dead window is never charged, and nobody has to ask for it.
import type { Tx } from '../../base/db/db.ts';
import { findWorkload } from '../../fleet/workloads/store.ts';
import { runningReason } from './running-reason.ts';
import { move, type MoveDeps } from './states.ts';
import * as store from './store.ts';

/** The path works: `last_reachable_at` advances. */
export async function noteReachable(tx: Tx, instance: store.InstanceRow, nowMs: number): Promise<void> {
  await store.setReachable(tx, instance.id, nowMs);
}

/** Billing ends at the last proof of life; what was posted past it is reversed, with the probes named on the transfers. */
export function confirmOutage(
  tx: Tx,
  instance: store.InstanceRow,
  outage: { sinceMs: number; nowMs: number; evidence: string },
  deps: MoveDeps,
): Promise<boolean> {
  return move(
    tx,
    instance,
    {
      to: 'unreachable',
      nowMs: outage.nowMs,
      billedUntilMs: outage.sinceMs,
      evidence: outage.evidence,
      reason: `The SSH path is down: ${outage.evidence}. This time is not charged.`,
      patch: { unreachable_since_ms: outage.sinceMs },
    },
    deps,
  );
}

/**
 * Running and, unless a GPU of it is broken, billed again from `sinceMs`, when it first answered. `ready_at` stays, and no second
 * `instance.running` is sent.
 */
export async function endOutage(
  tx: Tx,
  instance: store.InstanceRow,
  { sinceMs, nowMs }: { sinceMs: number; nowMs: number },
  deps: MoveDeps,
): Promise<boolean> {
  const workload = await findWorkload(tx, instance.workload_id ?? '');
  // As it is now: `instance` is from before the look.
  const gpuFault = (await store.findInstance(tx, instance.id))?.gpu_fault ?? null;
  const reason = runningReason({ gpuFault, observed: workload?.observed ?? null });
  const patch = { last_reachable_ms: nowMs, status_reason: reason };
  return move(tx, instance, { to: 'running', nowMs, billedFromMs: sinceMs, patch }, deps);
}

/** The grace is over. The workload keeps its tombstone, so the GPUs stay held until the host itself lets go. */
export function giveUp(
  tx: Tx,
  instance: store.InstanceRow,
  end: { nowMs: number; reason: string },
  deps: MoveDeps,
): Promise<boolean> {
  return move(tx, instance, { to: 'error', nowMs: end.nowMs, reason: end.reason }, deps);
}
