// Forgets the host of a machine whose state is lost for good: its key, what it has shown, and what was decided about it.
import { type Tx, sql } from '../../base/db/db.ts';
import { dropKept } from './kept-disks.ts';
import * as store from './store.ts';

/**
 * The machine is as before its first enrolment, and nothing is held on it. GPUs that a contract has reserved stay its own, but nothing can be
 * launched on them until a host shows them again.
 */
export async function clearHost(tx: Tx, machineId: string): Promise<void> {
  await tx.run(
    sql`update machines set public_key = null, inventory = null, unknown_workloads = '[]', copied_ms = null where id = ${machineId}`,
  );
  // A different host is a new machine to the operator.
  await store.setApproved(tx, machineId, null);
  await store.setTrusted(tx, machineId, false);
  await tx.run(sql`update machine_gpus set held_by = null, held_disk_gb = 0 where machine_id = ${machineId}`);
  await dropKept(tx, machineId);
  await store.dropExcept(tx, machineId, []);
}
