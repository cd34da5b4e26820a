// What a customer has asked for with a launch, as far as it is shown.
import { z } from 'zod';
import { CreateInstance } from '../../../shared/api/instance.ts';
import type { InstanceRequest } from '../../../shared/api/instance-request.ts';
import { fail } from '../../../shared/errors.ts';
import { json, text } from '../../base/db/columns.ts';
import { type Query, sql } from '../../base/db/db.ts';
import { readable } from '../../fleet/workloads/store.ts';

const AskedRow = z.object({ request: readable(CreateInstance), env_names: json(z.array(text)) });

/** @throws ServiceError `not_found`, also for an instance of another organisation, and for a request that a newer version has stored */
export async function requestOf(query: Query, orgId: string, id: string): Promise<InstanceRequest> {
  const row = await query.one(
    AskedRow,
    sql`select request, env_names from instances where id = ${id} and org_id = ${orgId}`,
  );
  if (row === undefined) return fail('not_found', `There is no instance ${id}.`);
  if (row.request === null)
    return fail('not_found', `The request of the instance ${id} cannot be read by this version.`);
  return { ...row.request, env_names: row.env_names };
}
