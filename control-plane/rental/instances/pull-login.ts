// The registry login that a host requests right before it pulls a private image.
import type { PullLogin } from '../../../shared/protocol/link.ts';
import type { Db } from '../../base/db/db.ts';
import { findWorkload } from '../../fleet/workloads/store.ts';
import { findInstance } from './store.ts';

export interface PullLoginDeps {
  db: Db;
  /** Null if no login is needed. @throws ServiceError if the registry does not answer or refuses */
  imagePullLogin(orgId: string, image: string, credentialId: string): Promise<PullLogin | null>;
}

/** Undefined if the host may not have it: the workload belongs to another machine or is being removed, or the image is public. */
export async function pullLogin(
  machineId: string,
  workloadId: string,
  { db, imagePullLogin }: PullLoginDeps,
): Promise<PullLogin | null | undefined> {
  const workload = await findWorkload(db.read, workloadId);
  if (workload?.machine_id !== machineId || workload.state !== 'wanted') return undefined;
  const instance = await findInstance(db.read, workload.instance_id);
  if (instance?.workload_id !== workloadId || instance.launch.registry_credential_id === null) return undefined;
  return imagePullLogin(instance.org_id, instance.launch.image, instance.launch.registry_credential_id);
}
