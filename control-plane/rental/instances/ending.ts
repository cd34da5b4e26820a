// Instances that end on our side: the operator ends one, or the balance does not cover it any more.
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import { lockRental, move, type MoveDeps } from './states.ts';
import * as store from './store.ts';

/** Statuses that an operator cannot end any more. */
const ENDED: ReadonlySet<store.InstanceRow['status']> = new Set(['stopping', 'stopped', 'terminated']);

/** Returns the changed instance and the machine to notify. @throws ServiceError `not_found`, `conflict` if it is ending or has ended */
export async function endByOperator(
  id: string,
  reason: string,
  deps: MoveDeps & { db: Db; clock: Clock },
): Promise<[store.InstanceRow, string | null]> {
  const seen = await store.findInstance(deps.db.read, id);
  if (seen === undefined) return fail('not_found', `There is no instance ${id}.`);
  return deps.db.tx('instances.end', async (tx) => {
    await lockRental(tx, seen);
    return endRental(tx, (await store.findInstance(tx, id)) ?? seen, reason, deps);
  });
}

async function endRental(
  tx: Tx,
  instance: store.InstanceRow,
  reason: string,
  deps: MoveDeps & { clock: Clock },
): Promise<[store.InstanceRow, string | null]> {
  if (ENDED.has(instance.status)) return fail('conflict', `The instance is ${instance.status} already.`);
  const to = instance.status === 'running' ? 'stopping' : 'terminated';
  const statusReason = `Ended by the operator: ${reason}`;
  await move(tx, instance, { to, nowMs: deps.clock.now(), reason: statusReason }, deps);
  if (to === 'stopping' && instance.workload_id !== null) await deps.workloads.remove(tx, instance.workload_id);
  return [(await store.findInstance(tx, instance.id)) ?? instance, instance.machine_id];
}

/** Returns the machine to notify; undefined if the instance does not run any more. */
export async function stopUnpaid(
  id: string,
  deps: MoveDeps & { db: Db; clock: Clock },
): Promise<string | null | undefined> {
  const { db, clock } = deps;
  const instance = await store.findInstance(db.read, id);
  if (instance?.status !== 'running') return undefined;
  const reason = 'The balance no longer covers this instance. Add funds and launch again.';
  await db.tx('instances.unpaid', async (tx) => {
    await lockRental(tx, instance);
    const stopped = await move(tx, instance, { to: 'stopping', nowMs: clock.now(), reason }, deps);
    if (stopped && instance.workload_id !== null) await deps.workloads.remove(tx, instance.workload_id);
  });
  return instance.machine_id;
}
