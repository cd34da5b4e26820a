// DELETE /v1/instances/{id}, by state (DESIGN section 8).
import { fail } from '../../../shared/errors.ts';
import type { Clock } from '../../../shared/clock.ts';
import type { Tx } from '../../base/db/db.ts';
import type { OperationRow } from '../../base/operations/operations.ts';
import { move, type MoveDeps } from './states.ts';
import * as store from './store.ts';

/**
 * Accepts the removal and answers its operation (a second DELETE while one is under way answers the first one's). Charging ends here:
 * running rentals stop billing now, a launch that is still under way is cancelled unbilled.
 * @throws ServiceError `not_found` for one that is gone, foreign or unknown
 */
export async function remove(
  tx: Tx,
  caller: { orgId: string; apiKeyId: string },
  id: string,
  deps: MoveDeps & { clock: Clock },
): Promise<{ operation: OperationRow; machineId: string | null }> {
  const instance = await store.findInstance(tx, id);
  if (
    instance === undefined ||
    instance.org_id !== caller.orgId ||
    instance.status === 'terminated' ||
    instance.status === 'stopped'
  ) {
    return fail('not_found', `There is no instance ${id}, or it has ended already.`);
  }
  if (instance.status === 'stopping' && instance.delete_operation_id !== null) {
    const running = await deps.operations.find(tx, instance.delete_operation_id, caller.apiKeyId);
    return running === undefined
      ? fail(
          'conflict',
          `Another API key is terminating this instance already. GET /v1/instances/${id} shows when it is over.`,
        )
      : { operation: running, machineId: instance.machine_id };
  }
  const operation = await deps.operations.create(tx, {
    kind: 'instance.delete',
    orgId: caller.orgId,
    apiKeyId: caller.apiKeyId,
    resourceId: id,
  });
  const to = instance.status === 'running' ? 'stopping' : 'terminated';
  await move(tx, instance, { to, nowMs: deps.clock.now(), patch: { delete_operation_id: operation.id } }, deps);
  if (to === 'stopping' && instance.workload_id !== null) await deps.workloads.remove(tx, instance.workload_id);
  return { operation, machineId: instance.machine_id };
}
