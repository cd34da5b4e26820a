// DELETE /v1/instances/{id}, by state (DESIGN section 8).
import { fail } from '../../../shared/errors.ts';
import type { Clock } from '../../../shared/clock.ts';
import type { Tx } from '../../base/db/db.ts';
import type { OperationRow } from '../../base/operations/operations.ts';
import { move, type MoveDeps } from './states.ts';
import * as store from './store.ts';

/**
 * Accepts the removal and answers its operation. A second DELETE while the instance is stopping answers the first one's; one by another key,
 * which may not see that, gets an operation of its own that ends with the instance too. Charging ends here: running rentals stop billing
 * now, a launch that is still under way is cancelled unbilled.
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
  const kind = 'instance.delete';
  const isStopping = instance.status === 'stopping';
  const own = isStopping ? await deps.operations.findOn(tx, { kind, resourceId: id }, caller.apiKeyId) : undefined;
  if (own !== undefined) return { operation: own, machineId: instance.machine_id };
  const operation = await deps.operations.create(tx, { kind, orgId: caller.orgId, apiKeyId: caller.apiKeyId });
  await deps.operations.move(tx, operation.id, 'in_progress', { resourceId: id });
  if (isStopping) return { operation, machineId: instance.machine_id };
  const to = instance.status === 'running' ? 'stopping' : 'terminated';
  await move(tx, instance, { to, nowMs: deps.clock.now() }, deps);
  if (to === 'stopping' && instance.workload_id !== null) await deps.workloads.remove(tx, instance.workload_id);
  return { operation, machineId: instance.machine_id };
}
