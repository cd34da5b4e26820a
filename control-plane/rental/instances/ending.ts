// The ends of an instance that come from outside: its owner deletes it (DESIGN section 8), the operator ends it, or the balance does not cover it
// any more.
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import { lockRental, move, type MoveDeps } from './states.ts';
import * as store from './store.ts';
import type { OperationRow } from '../../base/operations/operations.ts';

/** Statuses that an operator cannot end any more. */
const ENDED: ReadonlySet<store.RentalRow['status']> = new Set(['stopping', 'stopped', 'terminated']);

/** The `status_reason` of an instance that is stopped because the balance has ended. */
export const UNPAID_REASON = 'The balance no longer covers this instance. Add funds and launch again.';

/** Returns the changed instance and the machine to notify. @throws ServiceError `not_found`, `conflict` if it is ending or has ended */
export async function endByOperator(
  id: string,
  reason: string,
  deps: MoveDeps & { db: Db; clock: Clock },
): Promise<[store.RentalRow, string | null]> {
  const seen = await store.findRental(deps.db.read, id);
  if (seen === undefined) return fail('not_found', `There is no instance ${id}.`);
  return deps.db.tx('instances.end', async (tx) => {
    await lockRental(tx, seen);
    return endRental(tx, (await store.findRental(tx, id)) ?? seen, reason, deps);
  });
}

async function endRental(
  tx: Tx,
  instance: store.RentalRow,
  reason: string,
  deps: MoveDeps & { clock: Clock },
): Promise<[store.RentalRow, string | null]> {
  if (ENDED.has(instance.status)) return fail('conflict', `The instance is ${instance.status} already.`);
  const to = instance.status === 'running' ? 'stopping' : 'terminated';
  const statusReason = `Ended by the operator: ${reason}`;
  await move(tx, instance, { to, nowMs: deps.clock.now(), reason: statusReason }, deps);
  if (to === 'stopping' && instance.workload_id !== null) await deps.workloads.remove(tx, instance.workload_id);
  return [(await store.findRental(tx, instance.id)) ?? instance, instance.machine_id];
}

/**
 * Returns the machine to notify; undefined if the instance goes on or has ended. The caller has found out some time ago that the balance does
 * not cover it, so this looks again.
 */
export async function stopUnpaid(
  id: string,
  deps: MoveDeps & { db: Db; clock: Clock },
): Promise<string | null | undefined> {
  const { db, clock } = deps;
  const instance = await store.findRental(db.read, id);
  if (instance?.status !== 'running') return undefined;
  return db.tx('instances.unpaid', async (tx) => {
    await lockRental(tx, instance);
    if (await deps.metering.cover(tx, id)) return undefined;
    if (!(await move(tx, instance, { to: 'stopping', nowMs: clock.now(), reason: UNPAID_REASON }, deps)))
      return undefined;
    if (instance.workload_id !== null) await deps.workloads.remove(tx, instance.workload_id);
    return instance.machine_id;
  });
}

/**
 * Accepts the removal and returns its operation. While the instance is stopping, a second DELETE by the same key returns the same operation.
 * A DELETE by another key gets its own operation, because it may not see the first one. Both end with the instance. Billing of a running
 * instance ends now. A launch in progress is cancelled and costs nothing.
 * @throws ServiceError `not_found` if the instance has ended, belongs to another organisation or does not exist
 */
export async function remove(
  caller: { orgId: string; principalId: string },
  id: string,
  settle: (tx: Tx, operation: OperationRow, instanceId: string) => Promise<void>,
  deps: MoveDeps & { db: Db; clock: Clock },
): Promise<Removed> {
  const seen = await store.findRental(deps.db.read, id);
  // Otherwise a stranger could hold the row while its owner needs it.
  if (seen?.org_id !== caller.orgId) return failGone(id);
  return deps.db.tx('instances.remove', async (tx) => {
    await lockRental(tx, seen);
    const removed = await removeOne(tx, caller, id, deps);
    await settle(tx, removed.operation, id);
    return removed;
  });
}

function failGone(id: string): never {
  return fail('not_found', `There is no instance ${id}, or it has ended already.`);
}

interface Removed {
  operation: OperationRow;
  /** The machine to notify. */
  machineId: string | null;
}

async function removeOne(
  tx: Tx,
  caller: { orgId: string; principalId: string },
  id: string,
  deps: MoveDeps & { clock: Clock },
): Promise<Removed> {
  const instance = await store.findRental(tx, id);
  if (instance === undefined || instance.status === 'terminated' || instance.status === 'stopped') return failGone(id);
  const kind = 'instance.delete';
  const isStopping = instance.status === 'stopping';
  const own = isStopping ? await deps.operations.findOn(tx, { kind, resourceId: id }, caller.principalId) : undefined;
  if (own !== undefined) return { operation: own, machineId: instance.machine_id };
  const operation = deps.operations.make({ kind, orgId: caller.orgId, principalId: caller.principalId });
  await deps.operations.insert(tx, operation);
  await deps.operations.move(tx, operation.id, 'in_progress', { resourceId: id });
  if (isStopping) return { operation, machineId: instance.machine_id };
  const to = instance.status === 'running' ? 'stopping' : 'terminated';
  await move(tx, instance, { to, nowMs: deps.clock.now() }, deps);
  if (to === 'stopping' && instance.workload_id !== null) await deps.workloads.remove(tx, instance.workload_id);
  return { operation, machineId: instance.machine_id };
}
