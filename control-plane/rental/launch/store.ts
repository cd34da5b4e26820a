// The SQL of registry credentials.
import { z } from 'zod';
import { countRow, int, text } from '../../base/db/columns.ts';
import { type Query, type Tx, sql } from '../../base/db/db.ts';
import { pageFrom, type PageStart } from '../../base/http/cursors.ts';

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

export async function insertCredential(tx: Tx, row: CredentialRow): Promise<void> {
  await tx.run(
    sql`insert into registry_credentials (${COLUMNS})
        values (${row.id}, ${row.org_id}, ${row.name}, ${row.registry}, ${row.username}, ${row.sealed_password}, ${row.created_ms})`,
  );
}

export function findCredential(query: Query, orgId: string, id: string): Promise<CredentialRow | undefined> {
  return query.one(
    CredentialRow,
    sql`select ${COLUMNS} from registry_credentials where id = ${id} and org_id = ${orgId}`,
  );
}

/** A page, newest first. */
export function credentialsOfOrg(query: Query, orgId: string, start: PageStart): Promise<CredentialRow[]> {
  return query.all(
    CredentialRow,
    sql`select ${COLUMNS} from registry_credentials where org_id = ${orgId} and ${pageFrom(start)}`,
  );
}

export async function countCredentials(query: Query, orgId: string): Promise<number> {
  const row = await query.one(
    countRow,
    sql`select count(*) as count from registry_credentials where org_id = ${orgId}`,
  );
  return row?.count ?? 0;
}

/** False if the organisation has no such credential. */
export async function deleteCredential(tx: Tx, orgId: string, id: string): Promise<boolean> {
  return (await tx.run(sql`delete from registry_credentials where id = ${id} and org_id = ${orgId}`)) === 1;
}
