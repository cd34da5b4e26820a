// Applies verdicts about the SSH path to instances: the time of an outage is not charged, and no customer has to ask for a credit.
import type { Tx } from '../../base/db/db.ts';
import { move, type MoveDeps, presentReason } from './states.ts';
import * as store from './store.ts';

/** Ends billing at the last proof of life. Charges past that time are reversed, and the transfers carry the evidence. */
export function confirmOutage(
  tx: Tx,
  instance: store.RentalRow,
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
 * The instance runs again. It is charged from `sinceMs`, the time of the first good probe, unless one of its GPUs is broken. `ready_at` stays,
 * and no second `instance.running` is sent.
 */
export async function endOutage(
  tx: Tx,
  instance: store.RentalRow,
  { sinceMs, nowMs }: { sinceMs: number; nowMs: number },
  deps: MoveDeps,
): Promise<boolean> {
  const patch = { last_reachable_ms: nowMs, status_reason: await presentReason(tx, instance) };
  return move(tx, instance, { to: 'running', nowMs, billedFromMs: sinceMs, patch }, deps);
}

/** Confirms an outage that has ended while its verdict was held, and ends it. False if the instance has left `running` in the meantime. */
export async function makeGood(
  tx: Tx,
  instance: store.RentalRow,
  outage: { sinceMs: number; untilMs: number; nowMs: number; evidence: string },
  deps: MoveDeps,
): Promise<boolean> {
  if (!(await confirmOutage(tx, instance, outage, deps))) return false;
  const out = await store.findRental(tx, instance.id);
  return out !== undefined && endOutage(tx, out, { sinceMs: outage.untilMs, nowMs: outage.nowMs }, deps);
}

/** Ends an instance at the end of the grace. The tombstone of the workload holds the GPUs until the host reports the container gone. */
export function giveUp(
  tx: Tx,
  instance: store.RentalRow,
  end: { nowMs: number; reason: string },
  deps: MoveDeps,
): Promise<boolean> {
  return move(tx, instance, { to: 'error', nowMs: end.nowMs, reason: end.reason }, deps);
}
