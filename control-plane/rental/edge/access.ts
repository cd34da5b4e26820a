// Decides who may connect to an instance's endpoint at this moment.
import type { OpenMessage } from '../../../shared/protocol/link.ts';
import type { Db, Query } from '../../base/db/db.ts';
import type { AppAddress } from '../endpoints/app-address.ts';
import { CONNECTABLE, findInstance, type InstanceRow } from '../instances/store.ts';
import type { Endpoints } from '../endpoints/endpoints.ts';
import type { AppLogin } from './app-login.ts';

export interface EndpointAccess {
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

/** How an application address is reached at this moment; undefined if nothing is served there. */
export async function appAccess(
  { instanceId, at }: AppAddress,
  { db, endpoints }: { db: Db; endpoints: Endpoints },
): Promise<AppAccess | undefined> {
  const instance = await findInstance(db.read, instanceId);
  if (instance === undefined || !CONNECTABLE.has(instance.status)) return undefined;
  const { machine_id: machineId, workload_id: workloadId, launch } = instance;
  const served = launch.ports.find((one) =>
    at === 'primary' ? one.primary === true : one.port === at && one.protocol === 'http',
  );
  const endpoint = await endpoints.find(db.read, instanceId);
  if (endpoint === undefined || !endpoint.open || machineId === null || workloadId === null) return undefined;
  const login = { user: endpoint.app_user, password: endpoints.appPassword(endpoint) };
  if (at === 'terminal') return { machineId, workloadId, target: { kind: 'terminal' }, login };
  return served && { machineId, workloadId, target: { kind: 'tcp', port: served.port }, login };
}

/** Keys are read for every connection, so a key that is added or deleted takes effect at the next login. */
export async function endpointAccess(
  instanceId: string,
  deps: { db: Db; endpoints: Endpoints; keysOf(query: Query, instance: InstanceRow): Promise<string[]> },
): Promise<EndpointAccess | undefined> {
  const { db, endpoints } = deps;
  const instance = await findInstance(db.read, instanceId);
  const endpoint = await endpoints.find(db.read, instanceId);
  if (instance === undefined || !CONNECTABLE.has(instance.status) || endpoint === undefined || !endpoint.open)
    return undefined;
  if (instance.machine_id === null || instance.workload_id === null) return undefined;
  const authorizedKeys = await deps.keysOf(db.read, instance);
  return { machineId: instance.machine_id, workloadId: instance.workload_id, authorizedKeys };
}
