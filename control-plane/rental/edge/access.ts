// Who may come through an instance's door at this moment.
import type { Db, Query } from '../../base/db/db.ts';
import { findInstance } from '../instances/store.ts';
import type { Doors } from '../doors/doors.ts';

export interface DoorAccess {
  machineId: string;
  workloadId: string;
  /** OpenSSH lines; empty while only probes are let in. */
  authorizedKeys: string[];
  /** OpenSSH line. */
  probeKey: string;
}

/** Keys are read for every connection, so adding or deleting one takes effect at the next login. */
export async function doorAccess(
  instanceId: string,
  deps: { db: Db; doors: Doors; keysOfOrg(query: Query, orgId: string, ids: string[] | null): Promise<string[]> },
): Promise<DoorAccess | undefined> {
  const { db, doors } = deps;
  const instance = await findInstance(db.read, instanceId);
  const door = await doors.find(db.read, instanceId);
  if (instance === undefined || door === undefined || !door.open) return undefined;
  if (instance.machine_id === null || instance.workload_id === null) return undefined;
  const isOpenToCustomers = instance.status === 'running' || instance.status === 'unreachable';
  const authorizedKeys = isOpenToCustomers
    ? await deps.keysOfOrg(db.read, instance.org_id, instance.request.ssh_key_ids ?? null)
    : [];
  return {
    machineId: instance.machine_id,
    workloadId: instance.workload_id,
    authorizedKeys,
    probeKey: door.probe_public_key,
  };
}
