// The rows of one-time links: those of the operator for a person, and invitations to an organisation.
import { z } from 'zod';
import { Role } from '../../../shared/api/auth.ts';
import { int, text } from '../db/columns.ts';
import { type Db, join, type Query, sql, type Tx } from '../db/db.ts';
import { pageFrom, type PageStart } from '../http/cursors.ts';
import type { Piece } from '../db/pieces.ts';

const LinkRow = z.object({ token_hash: text, user_id: text, created_ms: int, expires_ms: int });
type LinkRow = z.infer<typeof LinkRow>;

/** Stores the only link of a person. An older link ends. */
export async function replaceLink(tx: Tx, row: LinkRow): Promise<void> {
  await deleteLinks(tx, row.user_id);
  await tx.run(
    sql`insert into user_links (token_hash, user_id, created_ms, expires_ms)
        values (${row.token_hash}, ${row.user_id}, ${row.created_ms}, ${row.expires_ms})`,
  );
}

export function findLink(query: Query, tokenHash: string, nowMs: number): Promise<LinkRow | undefined> {
  return query.one(
    LinkRow,
    sql`select token_hash, user_id, created_ms, expires_ms from user_links where token_hash = ${tokenHash} and expires_ms > ${nowMs}`,
  );
}

/** Deletes the link of a person. False if there was none. */
export async function deleteLinks(tx: Tx, userId: string): Promise<boolean> {
  return (await tx.run(sql`delete from user_links where user_id = ${userId}`)) > 0;
}

const InvitationRow = z.object({
  id: text,
  org_id: text,
  role: Role,
  email: text.nullable(),
  token_hash: text,
  made_by: text,
  user_id: text.nullable(),
  created_ms: int,
  expires_ms: int,
});
export type InvitationRow = z.infer<typeof InvitationRow>;

const COLUMNS = sql`id, org_id, role, email, token_hash, made_by, user_id, created_ms, expires_ms`;

export async function insertInvitation(tx: Tx, row: InvitationRow): Promise<void> {
  await tx.run(
    sql`insert into invitations (${COLUMNS})
        values (${row.id}, ${row.org_id}, ${row.role}, ${row.email}, ${row.token_hash}, ${row.made_by}, ${row.user_id}, ${row.created_ms}, ${row.expires_ms})`,
  );
}

export function findInvitation(query: Query, tokenHash: string, nowMs: number): Promise<InvitationRow | undefined> {
  return query.one(
    InvitationRow,
    sql`select ${COLUMNS} from invitations where token_hash = ${tokenHash} and expires_ms > ${nowMs}`,
  );
}

/** A page of the invitations that can still be accepted, newest first. */
export function pageOfInvitations(
  query: Query,
  { orgId, nowMs }: { orgId: string; nowMs: number },
  start: PageStart,
): Promise<InvitationRow[]> {
  return query.all(
    InvitationRow,
    sql`select ${COLUMNS} from invitations where org_id = ${orgId} and expires_ms > ${nowMs} and ${pageFrom(start)}`,
  );
}

/** The invitations with these ids that belong to the organisation and can still be accepted. */
export function invitationsOfOrg(
  query: Query,
  orgId: string,
  { ids, nowMs }: { ids: readonly string[]; nowMs: number },
): Promise<InvitationRow[]> {
  if (ids.length === 0) return Promise.resolve([]);
  return query.all(
    InvitationRow,
    sql`select ${COLUMNS} from invitations where id in (${join([...ids])}) and org_id = ${orgId} and expires_ms > ${nowMs} order by id`,
  );
}

const CountRow = z.object({ open: int });

export async function openInvitations(query: Query, orgId: string, nowMs: number): Promise<number> {
  const row = await query.one(
    CountRow,
    sql`select count(*) as open from invitations where org_id = ${orgId} and expires_ms > ${nowMs}`,
  );
  return row?.open ?? 0;
}

/** The invitations of the organisation that the person has made, and that can still be accepted. */
export function invitationsBy(
  query: Query,
  { orgId, userId, nowMs }: { orgId: string; userId: string; nowMs: number },
): Promise<InvitationRow[]> {
  return query.all(
    InvitationRow,
    sql`select ${COLUMNS} from invitations where org_id = ${orgId} and user_id = ${userId} and expires_ms > ${nowMs} order by id`,
  );
}

/** False if the organisation has no such invitation. */
export async function deleteInvitation(tx: Tx, orgId: string, id: string): Promise<boolean> {
  return (await tx.run(sql`delete from invitations where id = ${id} and org_id = ${orgId}`)) === 1;
}

export function forgetLinks(db: Db, { untilMs, limit }: Piece): Promise<number> {
  return db.tx('users.forget_links', (tx) =>
    tx.run(
      sql`delete from user_links where token_hash in (
            select token_hash from user_links where expires_ms <= ${untilMs} limit ${limit})`,
    ),
  );
}

export function forgetInvitations(db: Db, { untilMs, limit }: Piece): Promise<number> {
  return db.tx('users.forget_invitations', (tx) =>
    tx.run(
      sql`delete from invitations where id in (select id from invitations where expires_ms <= ${untilMs} limit ${limit})`,
    ),
  );
}
