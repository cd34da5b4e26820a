// Logins for image registries, which customers store. They are opened only to log in.
import type { RegistryCredentialCreate } from '../../../shared/api/registry-credential.ts';
import type { Clock } from '../../../shared/clock.ts';
import { fail, failField } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { REGISTRY_CREDENTIALS_PER_ORG_MAX } from '../../../shared/limits.ts';
import type { Query, Tx } from '../../base/db/db.ts';
import type { PageStart } from '../../base/http/cursors.ts';
import type { Sealing } from '../../base/http/sealing.ts';
import type { ImageLogin } from './images.ts';
import { readRegistry } from './reference.ts';
import * as store from './store.ts';

export interface Credentials {
  /** @throws ServiceError `validation_failed`, `conflict` above the limit */
  add(tx: Tx, orgId: string, request: RegistryCredentialCreate): Promise<store.CredentialRow>;
  /** A page, newest first. */
  list(query: Query, orgId: string, start: PageStart): Promise<store.CredentialRow[]>;
  /** False if the organisation has no such credential. */
  remove(tx: Tx, orgId: string, id: string): Promise<boolean>;
  /** Undefined if the organisation has no such credential. */
  open(query: Query, orgId: string, id: string): Promise<(ImageLogin & { registry: string }) | undefined>;
}

export function openCredentials(deps: { clock: Clock; ids: Ids; sealing: Sealing }): Credentials {
  const { clock, ids, sealing } = deps;
  return {
    add: async (tx, orgId, { name, registry, username, password }) => {
      const id = ids.prefixed('rc');
      const row: store.CredentialRow = {
        id,
        org_id: orgId,
        name,
        registry: readRegistry(registry) ?? failField('registry', 'must be host or host:port, such as ghcr.io'),
        username,
        sealed_password: sealing.seal(placeOf(orgId, id), password),
        created_ms: clock.now(),
      };
      await store.insertCredential(tx, row);
      if ((await store.countCredentials(tx, orgId)) > REGISTRY_CREDENTIALS_PER_ORG_MAX) {
        fail(
          'conflict',
          `An organisation may have ${REGISTRY_CREDENTIALS_PER_ORG_MAX} registry credentials; delete one first.`,
        );
      }
      return row;
    },
    list: store.credentialsOfOrg,
    remove: store.deleteCredential,
    open: async (query, orgId, id) => {
      const row = await store.findCredential(query, orgId, id);
      if (row === undefined) return undefined;
      const password = sealing.open(placeOf(orgId, id), row.sealed_password);
      return { credentialId: id, registry: row.registry, username: row.username, password };
    },
  };
}

function placeOf(orgId: string, id: string): string {
  return `registry-credential/${orgId}/${id}`;
}
