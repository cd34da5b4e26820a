// The rows of organisations, and what an organisation may not do.
import { z } from 'zod';
import type { Org } from '../../../shared/api/account.ts';
import { isoTime } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { flag, int, text } from '../db/columns.ts';
import { join, type Query, sql, type Tx } from '../db/db.ts';
import { pageFrom, type PageStart } from '../http/cursors.ts';
import { isFound } from '../http/operator.ts';
import type { Restriction } from '../http/route.ts';

const OrgRow = z.object({
  id: text,
  name: text,
  created_ms: int,
  suspended_ms: int.nullable(),
  suspended_reason: text.nullable(),
  /** True: the organisation came by sign-up, and no money was found in its wallet so far. */
  unfunded: flag,
});
export type OrgRow = z.infer<typeof OrgRow>;

const COLUMNS = sql`id, name, created_ms, suspended_ms, suspended_reason, unfunded`;

export async function insertOrg(
  tx: Tx,
  { id, name, created_ms: createdMs, unfunded }: Pick<OrgRow, 'id' | 'name' | 'created_ms' | 'unfunded'>,
): Promise<void> {
  await tx.run(
    sql`insert into orgs (id, name, created_ms, unfunded) values (${id}, ${name}, ${createdMs}, ${unfunded})`,
  );
}

export function findOrg(query: Query, id: string): Promise<OrgRow | undefined> {
  return query.one(OrgRow, sql`select ${COLUMNS} from orgs where id = ${id}`);
}

export function orgsOf(query: Query, ids: readonly string[]): Promise<OrgRow[]> {
  if (ids.length === 0) return Promise.resolve([]);
  return query.all(OrgRow, sql`select ${COLUMNS} from orgs where id in (${join([...ids])}) order by name, id`);
}

/** @throws ServiceError `not_found` */
export async function assertOrg(query: Query, id: string): Promise<OrgRow> {
  return (await findOrg(query, id)) ?? fail('not_found', `There is no organisation ${id}.`);
}

/** A page, newest first. `search`: a part of the name or of the id. */
export function pageOfOrgs(query: Query, start: PageStart, search?: string): Promise<OrgRow[]> {
  const found = isFound(search, [sql`name`, sql`id`]);
  return query.all(OrgRow, sql`select ${COLUMNS} from orgs where ${found} and ${pageFrom(start)}`);
}

/** A suspended organisation gets the new reason, and stays suspended since the same time. */
export async function suspend(tx: Tx, id: string, reason: string, nowMs: number): Promise<void> {
  await tx.run(
    sql`update orgs set suspended_ms = coalesce(suspended_ms, ${nowMs}), suspended_reason = ${reason} where id = ${id}`,
  );
}

export async function resume(tx: Tx, id: string): Promise<void> {
  await tx.run(sql`update orgs set suspended_ms = null, suspended_reason = null where id = ${id}`);
}

/** Called when money was found in the wallet. From now on the organisation may do everything, even without a balance. */
export async function noteFunded(tx: Tx, id: string): Promise<void> {
  await tx.run(sql`update orgs set unfunded = 0 where id = ${id}`);
}

export function restrictionOf(row: Pick<OrgRow, 'suspended_ms' | 'unfunded'>): Restriction | undefined {
  if (row.suspended_ms !== null) return 'suspended';
  return row.unfunded ? 'unfunded' : undefined;
}

export function orgView(row: OrgRow): Org {
  return {
    id: row.id,
    name: row.name,
    created_at: isoTime(row.created_ms),
    suspended_at: row.suspended_ms === null ? null : isoTime(row.suspended_ms),
    suspended_reason: row.suspended_reason,
  };
}
