// Logins for image registries, which customers store, and their table. They are opened only to log in.
import { z } from 'zod';
import type { RegistryCredentialCreate } from '../../../shared/api/registry-credential.ts';
import type { Clock } from '../../../shared/clock.ts';
import { fail, failField } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { REGISTRY_CREDENTIALS_PER_ORG_MAX } from '../../../shared/limits.ts';
import { type Query, type Tx, sql } from '../../base/db/db.ts';
import { type PageStart, pageFrom } from '../../base/http/cursors.ts';
import type { Sealing } from '../../base/http/sealing.ts';
import type { ImageLogin, Images } from './images.ts';
import { readRegistry } from './reference.ts';
import { countRow, int, text } from '../../base/db/columns.ts';

export interface Credentials {
  /** @throws ServiceError `validation_failed`, `conflict` above the limit */
  add(tx: Tx, orgId: string, request: RegistryCredentialCreate): Promise<CredentialRow>;
  /** A page, newest first. */
  list(query: Query, orgId: string, start: PageStart): Promise<CredentialRow[]>;
  /** False if the organisation has no such credential. */
  remove(tx: Tx, orgId: string, id: string): Promise<boolean>;
  /** Undefined if the organisation has no such credential. */
  open(query: Query, orgId: string, id: string): Promise<(ImageLogin & { registry: string }) | undefined>;
}

interface CredentialsDeps {
  clock: Clock;
  ids: Ids;
  sealing: Sealing;
  images: Pick<Images, 'mayAsk'>;
}

export function openCredentials({ clock, ids, sealing, images }: CredentialsDeps): Credentials {
  return {
    add: async (tx, orgId, { name, registry, username, password }) => {
      const id = ids.prefixed('rc');
      const row: CredentialRow = {
        id,
        org_id: orgId,
        name,
        registry: registryOf(registry, images),
        username,
        sealed_password: sealing.seal(placeOf(orgId, id), password),
        created_ms: clock.now(),
      };
      await insertCredential(tx, row);
      if ((await countCredentials(tx, orgId)) > REGISTRY_CREDENTIALS_PER_ORG_MAX) {
        fail(
          'conflict',
          `An organisation may have ${REGISTRY_CREDENTIALS_PER_ORG_MAX} registry credentials; delete one first.`,
        );
      }
      return row;
    },
    list: credentialsOfOrg,
    remove: deleteCredential,
    open: async (query, orgId, id) => {
      const row = await findCredential(query, orgId, id);
      if (row === undefined) return undefined;
      const password = sealing.open(placeOf(orgId, id), row.sealed_password);
      return { credentialId: id, registry: row.registry, username: row.username, password };
    },
  };
}

/** @throws ServiceError `validation_failed` */
function registryOf(text: string, images: CredentialsDeps['images']): string {
  const registry = readRegistry(text) ?? failField('registry', 'must be host or host:port, such as ghcr.io');
  if (!images.mayAsk(registry)) {
    failField('registry', `must be at a public address, which ${registry} is not; the operator can allow private ones`);
  }
  return registry;
}

const CredentialRow = z.object({
  id: text,
  org_id: text,
  name: text,
  registry: text,
  username: text,
  sealed_password: text,
  created_ms: int,
});
export type CredentialRow = z.infer<typeof CredentialRow>;

const COLUMNS = sql`id, org_id, name, registry, username, sealed_password, created_ms`;

async function insertCredential(tx: Tx, row: CredentialRow): Promise<void> {
  await tx.run(
    sql`insert into registry_credentials (${COLUMNS})
        values (${row.id}, ${row.org_id}, ${row.name}, ${row.registry}, ${row.username}, ${row.sealed_password}, ${row.created_ms})`,
  );
}

function findCredential(query: Query, orgId: string, id: string): Promise<CredentialRow | undefined> {
  return query.one(
    CredentialRow,
    sql`select ${COLUMNS} from registry_credentials where id = ${id} and org_id = ${orgId}`,
  );
}

/** A page, newest first. */
function credentialsOfOrg(query: Query, orgId: string, start: PageStart): Promise<CredentialRow[]> {
  return query.all(
    CredentialRow,
    sql`select ${COLUMNS} from registry_credentials where org_id = ${orgId} and ${pageFrom(start)}`,
  );
}

async function countCredentials(query: Query, orgId: string): Promise<number> {
  const row = await query.one(
    countRow,
    sql`select count(*) as count from registry_credentials where org_id = ${orgId}`,
  );
  return row?.count ?? 0;
}

/** False if the organisation has no such credential. */
async function deleteCredential(tx: Tx, orgId: string, id: string): Promise<boolean> {
  return (await tx.run(sql`delete from registry_credentials where id = ${id} and org_id = ${orgId}`)) === 1;
}

function placeOf(orgId: string, id: string): string {
  return `registry-credential/${orgId}/${id}`;
}
