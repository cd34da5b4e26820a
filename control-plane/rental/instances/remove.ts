// DELETE /v1/instances/{id} for each state of the instance (DESIGN section 8).
import { fail } from '../../../shared/errors.ts';
import type { Clock } from '../../../shared/clock.ts';
import type { Tx } from '../../base/db/db.ts';
import type { OperationRow } from '../../base/operations/operations.ts';
import { move, type MoveDeps } from './states.ts';
import * as store from './store.ts';

/**
 * Accepts the removal and returns its operation. While the instance is stopping, a second DELETE by the same key returns the same operation.
 * A DELETE by another key gets its own operation, because it may not see the first one. Both end with the instance. Billing of a running
 * instance ends now. A launch in progress is cancelled and costs nothing.
 * @throws ServiceError `not_found` if the instance has ended, belongs to another organisation or does not exist
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
