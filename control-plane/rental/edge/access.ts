// Who may come through an instance's door at this moment.
import type { OpenMessage } from '../../../shared/protocol/link.ts';
import type { Db, Query } from '../../base/db/db.ts';
import type { AppAddress } from '../endpoints/app-address.ts';
import { CONNECTABLE, findInstance, type InstanceRow } from '../instances/store.ts';
import type { Doors } from '../endpoints/doors.ts';
import type { AppLogin } from './app-login.ts';

export interface DoorAccess {
  machineId: string;
  workloadId: string;
  /** OpenSSH lines. */
  authorizedKeys: string[];
}

export interface AppAccess {
  machineId: string;
  workloadId: string;
  /** Where the data stream leads. */
  target: Exclude<OpenMessage['target'], { kind: 'ssh' | 'logs' }>;
  login: AppLogin;
}

/** How an address on the web is reached at this moment; undefined where nothing is served there. */
export async function appAccess(
  { instanceId, at }: AppAddress,
  { db, doors }: { db: Db; doors: Doors },
): Promise<AppAccess | undefined> {
  const instance = await findInstance(db.read, instanceId);
  if (instance === undefined || !CONNECTABLE.has(instance.status)) return undefined;
  const { machine_id: machineId, workload_id: workloadId, launch } = instance;
  const served = launch.ports.find((one) =>
    at === 'primary' ? one.primary === true : one.port === at && one.protocol === 'http',
  );
  const door = await doors.find(db.read, instanceId);
  if (door === undefined || !door.open || machineId === null || workloadId === null) return undefined;
  const login = { user: door.app_user, password: doors.appPassword(door) };
  if (at === 'terminal') return { machineId, workloadId, target: { kind: 'terminal' }, login };
  return served && { machineId, workloadId, target: { kind: 'tcp', port: served.port }, login };
}

/** Keys are read for every connection, so adding or deleting one takes effect at the next login. */
export async function doorAccess(
  instanceId: string,
  deps: { db: Db; doors: Doors; keysOf(query: Query, instance: InstanceRow): Promise<string[]> },
): Promise<DoorAccess | undefined> {
  const { db, doors } = deps;
  const instance = await findInstance(db.read, instanceId);
  const door = await doors.find(db.read, instanceId);
  if (instance === undefined || !CONNECTABLE.has(instance.status) || door === undefined || !door.open) return undefined;
  if (instance.machine_id === null || instance.workload_id === null) return undefined;
  const authorizedKeys = await deps.keysOf(db.read, instance);
  return { machineId: instance.machine_id, workloadId: instance.workload_id, authorizedKeys };
}
