// The rows of device logins.
import { z } from 'zod';
import { int, json, text } from '../db/columns.ts';
import { type Db, type Query, type Sql, sql, type Tx } from '../db/db.ts';
import type { Piece } from '../db/pieces.ts';

const DeviceLoginRow = z.object({
  id: text,
  device_hash: text,
  user_code_hash: text,
  host: text,
  client_ip: text,
  network: text,
  scopes: json(z.array(text)),
  state: z.enum(['pending', 'approved', 'denied']),
  user_id: text.nullable(),
  org_id: text.nullable(),
  session_id: text.nullable(),
  polled_ms: int.nullable(),
  interval_ms: int,
  created_ms: int,
  expires_ms: int,
});
export type DeviceLoginRow = z.infer<typeof DeviceLoginRow>;

const COLUMNS = sql`id, device_hash, user_code_hash, host, client_ip, network, scopes, state, user_id, org_id, session_id, polled_ms, interval_ms, created_ms, expires_ms`;

/**
 * Returns 0 if the network has `openMax` logins that wait for a person, or another login has the same user code at present. On PostgreSQL, requests
 * at the same moment may pass the limit together: a network has no row to lock, and a few rows more harm nobody.
 */
export function insertDeviceLogin(tx: Tx, row: DeviceLoginRow, openMax: number): Promise<number> {
  const number = (value: number | null): Sql => sql`cast(${value} as bigint)`;
  return tx.run(
    sql`insert into device_logins (${COLUMNS})
        select ${row.id}, ${row.device_hash}, ${row.user_code_hash}, ${row.host}, ${row.client_ip}, ${row.network},
               ${JSON.stringify(row.scopes)}, ${row.state}, ${row.user_id}, ${row.org_id}, ${row.session_id},
               ${number(row.polled_ms)}, ${number(row.interval_ms)}, ${number(row.created_ms)}, ${number(row.expires_ms)}
        where (${openLogins(row.network, row.created_ms)}) < ${openMax}
        on conflict (user_code_hash) do nothing`,
  );
}

const CountRow = z.object({ open: int });

/** Logins of the network that wait for a person. */
export async function openLoginsOf(query: Query, network: string, nowMs: number): Promise<number> {
  return (await query.one(CountRow, openLogins(network, nowMs)))?.open ?? 0;
}

function openLogins(network: string, nowMs: number): Sql {
  return sql`select count(*) as open from device_logins
    where network = ${network} and state = 'pending' and expires_ms > ${nowMs}`;
}

export function loginWithDeviceCode(query: Query, hash: string): Promise<DeviceLoginRow | undefined> {
  return query.one(DeviceLoginRow, sql`select ${COLUMNS} from device_logins where device_hash = ${hash}`);
}

/** The login with this user code, if it waits for a person. */
export function loginWithUserCode(query: Query, hash: string, nowMs: number): Promise<DeviceLoginRow | undefined> {
  return query.one(
    DeviceLoginRow,
    sql`select ${COLUMNS} from device_logins where user_code_hash = ${hash} and state = 'pending' and expires_ms > ${nowMs}`,
  );
}

export interface Decision {
  state: 'approved' | 'denied';
  /** What the key will be able to do. */
  scopes: readonly string[];
  userId: string;
  orgId: string;
  /** The session of the person. */
  sessionId: string;
}

/** False if somebody else has decided before, or the code has expired. */
export async function decide(
  tx: Tx,
  id: string,
  { state, scopes, userId, orgId, sessionId }: Decision,
  nowMs: number,
): Promise<boolean> {
  const decided = await tx.run(
    sql`update device_logins set state = ${state}, scopes = ${JSON.stringify(scopes)}, user_id = ${userId}, org_id = ${orgId},
          session_id = ${sessionId}
        where id = ${id} and state = 'pending' and expires_ms > ${nowMs}`,
  );
  return decided === 1;
}

/** Stores when the program has asked. A program that asks too early must wait longer from then on. */
export async function notePoll(
  tx: Tx,
  id: string,
  { nowMs, slowDownMs }: { nowMs: number; slowDownMs: number },
): Promise<void> {
  await tx.run(
    sql`update device_logins set polled_ms = ${nowMs}, interval_ms = interval_ms + ${slowDownMs} where id = ${id}`,
  );
}

/** What one session has approved, another session of the same person has approved from now on. */
export async function moveApprovals(tx: Tx, { fromId, toId }: { fromId: string; toId: string }): Promise<void> {
  await tx.run(sql`update device_logins set session_id = ${toId} where session_id = ${fromId}`);
}

/** Deletes the login. False if another request has deleted it before. */
export async function takeLogin(tx: Tx, id: string): Promise<boolean> {
  return (await tx.run(sql`delete from device_logins where id = ${id}`)) === 1;
}

export function forgetDeviceLogins(db: Db, { untilMs, limit }: Piece): Promise<number> {
  return db.tx('users.forget_device_logins', (tx) =>
    tx.run(
      sql`delete from device_logins where id in (select id from device_logins where expires_ms <= ${untilMs} limit ${limit})`,
    ),
  );
}
