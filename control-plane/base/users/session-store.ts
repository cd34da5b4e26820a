// The rows of sessions.
import { z } from 'zod';
import { Role } from '../../../shared/api/auth.ts';
import { flag, int, text } from '../db/columns.ts';
import { type Db, type Query, type Sql, sql, type Tx } from '../db/db.ts';
import type { Piece } from '../db/pieces.ts';

/** A session ends after this time without a request. */
const IDLE_MS = 12 * 3_600_000;
/** A session ends after this time in any case. */
export const SESSION_MS = 30 * 86_400_000;

/** How long a network counts as the person's own. */
export const NETWORK_KEEP_MS = 90 * 86_400_000;

const SessionRow = z.object({
  id: text,
  user_id: text,
  org_id: text.nullable(),
  token_hash: text,
  client_ip: text,
  network: text,
  user_agent: text,
  is_strong: flag,
  confirmed_ms: int,
  created_ms: int,
  used_ms: int,
  expires_ms: int,
});
export type SessionRow = z.infer<typeof SessionRow>;

const COLUMNS = sql`id, user_id, org_id, token_hash, client_ip, network, user_agent, is_strong, confirmed_ms, created_ms, used_ms, expires_ms`;

export async function insertSession(tx: Tx, row: SessionRow): Promise<void> {
  await tx.run(
    sql`insert into sessions (${COLUMNS})
        values (${row.id}, ${row.user_id}, ${row.org_id}, ${row.token_hash}, ${row.client_ip}, ${row.network}, ${row.user_agent},
                ${row.is_strong}, ${row.confirmed_ms}, ${row.created_ms}, ${row.used_ms}, ${row.expires_ms})`,
  );
}

const FoundRow = SessionRow.extend({ role: Role.nullable(), is_operator: flag, email: text });
export type FoundSession = z.infer<typeof FoundRow>;

/** The session with this token, if it has not ended, with what its person may do now. */
export function sessionWithToken(query: Query, tokenHash: string, nowMs: number): Promise<FoundSession | undefined> {
  return query.one(
    FoundRow,
    sql`select s.id, s.user_id, s.org_id, s.token_hash, s.client_ip, s.network, s.user_agent, s.is_strong, s.confirmed_ms, s.created_ms,
               s.used_ms, s.expires_ms, m.role, u.is_operator, u.email
        from sessions s join users u on u.id = s.user_id
        left join members m on m.org_id = s.org_id and m.user_id = s.user_id
        where s.token_hash = ${tokenHash} and ${isLiving(sql`s.`, nowMs)}`,
  );
}

const RoleRow = z.object({ role: Role });

/** The role of the session's person; undefined if the session has ended or acts for another organisation. */
export async function roleInSession(
  query: Query,
  { id, orgId }: { id: string; orgId: string },
  nowMs: number,
): Promise<Role | undefined> {
  const row = await query.one(
    RoleRow,
    sql`select m.role from sessions s join members m on m.org_id = s.org_id and m.user_id = s.user_id
        where s.id = ${id} and s.org_id = ${orgId} and ${isLiving(sql`s.`, nowMs)}`,
  );
  return row?.role;
}

export function findSession(query: Query, id: string, nowMs: number): Promise<SessionRow | undefined> {
  return query.one(SessionRow, sql`select ${COLUMNS} from sessions where id = ${id} and ${isLiving(sql``, nowMs)}`);
}

/** The living sessions of a person, newest first. */
export function sessionsOf(query: Query, userId: string, nowMs: number): Promise<SessionRow[]> {
  return query.all(
    SessionRow,
    sql`select ${COLUMNS} from sessions where user_id = ${userId} and ${isLiving(sql``, nowMs)} order by created_ms desc, id desc`,
  );
}

/** A condition: the session has not ended. */
export function isLivingSession(id: string, nowMs: number): Sql {
  return sql`exists (select 1 from sessions where id = ${id} and ${isLiving(sql``, nowMs)})`;
}

function isLiving(of: Sql, nowMs: number): Sql {
  return sql`${of}expires_ms > ${nowMs} and ${of}used_ms > ${nowMs - IDLE_MS}`;
}

/** Called when the person has proved to be present. The new token replaces the old one, which is invalid from now on. */
export async function confirmSession(
  tx: Tx,
  { id, tokenHash, isStrong }: { id: string; tokenHash: string; isStrong: boolean },
  nowMs: number,
): Promise<number> {
  const strong = isStrong ? sql`1` : sql`is_strong`;
  return tx.run(
    sql`update sessions set token_hash = ${tokenHash}, is_strong = ${strong}, confirmed_ms = ${nowMs} where id = ${id}`,
  );
}

/** Stores the time of use, unless a time after `staleMs` is stored already. */
export async function noteUse(tx: Tx, id: string, nowMs: number, staleMs: number): Promise<void> {
  await tx.run(sql`update sessions set used_ms = ${nowMs} where id = ${id} and used_ms <= ${staleMs}`);
}

const EndedRow = SessionRow.pick({ id: true, user_id: true, org_id: true });
export type EndedSession = z.infer<typeof EndedRow>;

/** Ends one session of the person. Returns it in a list, which is empty if the person has no such session. */
export function deleteSession(tx: Tx, userId: string, id: string): Promise<EndedSession[]> {
  return deleteWhere(tx, sql`id = ${id} and user_id = ${userId}`);
}

/** Ends all sessions of a person, and returns them. */
export function deleteSessionsOf(tx: Tx, userId: string): Promise<EndedSession[]> {
  return deleteWhere(tx, sql`user_id = ${userId}`);
}

/** Ends all sessions of a person except one, and returns them. */
export function deleteOthers(tx: Tx, userId: string, keptId: string): Promise<EndedSession[]> {
  return deleteWhere(tx, sql`user_id = ${userId} and id <> ${keptId}`);
}

/** Ends the sessions of all people. */
export async function endAllSessions(tx: Tx): Promise<void> {
  await tx.run(sql`delete from sessions`);
}

/** Ends the session that the browser had before a sign-in, whoever signs in. */
export function deleteWithToken(tx: Tx, tokenHash: string): Promise<EndedSession[]> {
  return deleteWhere(tx, sql`token_hash = ${tokenHash}`);
}

function deleteWhere(tx: Tx, which: Sql): Promise<EndedSession[]> {
  return tx.all(EndedRow, sql`delete from sessions where ${which} returning id, user_id, org_id`);
}

export async function noteNetwork(tx: Tx, userId: string, network: string, nowMs: number): Promise<void> {
  await tx.run(
    sql`insert into known_networks (user_id, network, used_ms) values (${userId}, ${network}, ${nowMs})
        on conflict (user_id, network) do update set used_ms = excluded.used_ms`,
  );
}

const NetworkRow = z.object({ network: text });

export async function isKnownNetwork(query: Query, userId: string, network: string): Promise<boolean> {
  const row = await query.one(
    NetworkRow,
    sql`select network from known_networks where user_id = ${userId} and network = ${network}`,
  );
  return row !== undefined;
}

export function forgetSessions(db: Db, { untilMs, limit }: Piece): Promise<number> {
  return db.tx('users.forget_sessions', (tx) =>
    tx.run(
      sql`delete from sessions where id in (
            select id from sessions where expires_ms <= ${untilMs} or used_ms <= ${untilMs - IDLE_MS} limit ${limit})`,
    ),
  );
}

export function forgetNetworks(db: Db, { untilMs, limit }: Piece): Promise<number> {
  return db.tx('users.forget_networks', (tx) =>
    tx.run(
      sql`delete from known_networks where (user_id, network) in (
            select user_id, network from known_networks where used_ms <= ${untilMs} limit ${limit})`,
    ),
  );
}
