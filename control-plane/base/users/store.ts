// The rows of people and of their memberships.
import { z } from 'zod';
import { type Person, Role } from '../../../shared/api/auth.ts';
import { flag, int, text } from '../db/columns.ts';
import { join, type Query, sql, type Sql, type Tx } from '../db/db.ts';
import { pageBy, pageFrom, type PageStart } from '../http/cursors.ts';
import { isFound } from '../http/operator.ts';

const UserRow = z.object({
  id: text,
  email: text,
  name: text,
  is_operator: flag,
  is_vouched: flag,
  blocked_ms: int.nullable(),
  /** The person wants mails about what happens in its organisations. */
  mail_notices: flag,
  created_ms: int,
});
export type UserRow = z.infer<typeof UserRow>;

const COLUMNS = sql`id, email, name, is_operator, is_vouched, blocked_ms, mail_notices, created_ms`;

/** Returns 0 if another person has the address already. */
export function insertUser(tx: Tx, row: Omit<UserRow, 'blocked_ms' | 'mail_notices'>): Promise<number> {
  return tx.run(
    sql`insert into users (id, email, name, is_operator, is_vouched, created_ms)
        values (${row.id}, ${row.email}, ${row.name}, ${row.is_operator}, ${row.is_vouched}, ${row.created_ms})
        on conflict (email) do nothing`,
  );
}

export function findUser(query: Query, id: string): Promise<UserRow | undefined> {
  return query.one(UserRow, sql`select ${COLUMNS} from users where id = ${id}`);
}

/** The address must be in lower case. */
export function userWithEmail(query: Query, email: string): Promise<UserRow | undefined> {
  return query.one(UserRow, sql`select ${COLUMNS} from users where email = ${email}`);
}

/** The operator has given the account to the person. */
export async function noteVouched(tx: Tx, id: string): Promise<void> {
  await tx.run(sql`update users set is_vouched = 1 where id = ${id}`);
}

export async function setOperator(tx: Tx, id: string, isOperator: boolean): Promise<void> {
  await tx.run(sql`update users set is_operator = ${isOperator} where id = ${id}`);
}

/** Null: the person may sign in again. */
export async function setBlocked(tx: Tx, id: string, blockedMs: number | null): Promise<void> {
  await tx.run(sql`update users set blocked_ms = ${blockedMs} where id = ${id}`);
}

export async function setMailNotices(tx: Tx, id: string, wants: boolean): Promise<void> {
  await tx.run(sql`update users set mail_notices = ${wants} where id = ${id}`);
}

/** A page, newest first. `search`: a part of the e-mail address, the name or the id. */
export function pageOfUsers(query: Query, start: PageStart, search?: string): Promise<UserRow[]> {
  const found = isFound(search, [sql`email`, sql`name`, sql`id`]);
  return query.all(UserRow, sql`select ${COLUMNS} from users where ${found} and ${pageFrom(start)}`);
}

export function personView({ id, email, name, is_operator: isOperator }: UserRow): Person {
  return { id, email, name, is_operator: isOperator };
}

const MemberRow = z.object({ org_id: text, user_id: text, role: Role, created_ms: int });
export type MemberRow = z.infer<typeof MemberRow>;

/** Returns 0 if the person is a member already. */
export function insertMember(tx: Tx, row: MemberRow): Promise<number> {
  return tx.run(
    sql`insert into members (org_id, user_id, role, created_ms)
        values (${row.org_id}, ${row.user_id}, ${row.role}, ${row.created_ms})
        on conflict (org_id, user_id) do nothing`,
  );
}

export function findMember(query: Query, orgId: string, userId: string): Promise<MemberRow | undefined> {
  return query.one(
    MemberRow,
    sql`select org_id, user_id, role, created_ms from members where org_id = ${orgId} and user_id = ${userId}`,
  );
}

/** The memberships of a person, oldest first. */
export function membershipsOf(query: Query, userId: string): Promise<MemberRow[]> {
  return query.all(
    MemberRow,
    sql`select org_id, user_id, role, created_ms from members where user_id = ${userId} order by created_ms, org_id`,
  );
}

const OrgIdRow = MemberRow.pick({ org_id: true });

/** The organisation in which a sign-in begins: the one that the person chose last, else the oldest one. Null if there is none. */
export async function homeOf(query: Query, userId: string): Promise<string | null> {
  const home = await query.one(
    OrgIdRow,
    sql`select org_id from members where user_id = ${userId} order by chosen_ms desc, created_ms, org_id limit 1`,
  );
  return home?.org_id ?? null;
}

/** The person has switched to this organisation. */
export async function noteChosen(tx: Tx, userId: string, orgId: string, nowMs: number): Promise<void> {
  await tx.run(sql`update members set chosen_ms = ${nowMs} where user_id = ${userId} and org_id = ${orgId}`);
}

export async function setRole(tx: Tx, { org_id: orgId, user_id: userId, role }: MemberRow): Promise<void> {
  await tx.run(sql`update members set role = ${role} where org_id = ${orgId} and user_id = ${userId}`);
}

export async function deleteMember(tx: Tx, orgId: string, userId: string): Promise<void> {
  await tx.run(sql`delete from members where org_id = ${orgId} and user_id = ${userId}`);
}

const OwnersRow = z.object({ owners: int });

export async function countOwners(query: Query, orgId: string): Promise<number> {
  const row = await query.one(
    OwnersRow,
    sql`select count(*) as owners from members where org_id = ${orgId} and role = 'owner'`,
  );
  return row?.owners ?? 0;
}

const ListedMemberRow = MemberRow.extend({ email: text, name: text, has_second_factor: flag });
export type ListedMemberRow = z.infer<typeof ListedMemberRow>;

const LISTED = sql`select m.org_id, m.user_id, m.role, m.created_ms, u.email, u.name,
    case when ${hasSecondFactor(sql`m.user_id`)} then 1 else 0 end as has_second_factor
  from members m join users u on u.id = m.user_id`;

/** A page of members, newest first. */
export function pageOfMembers(query: Query, orgId: string, start: PageStart): Promise<ListedMemberRow[]> {
  const page = pageBy(start, { time: sql`m.created_ms`, id: sql`m.user_id` });
  return query.all(ListedMemberRow, sql`${LISTED} where m.org_id = ${orgId} and ${page}`);
}

export function listedMember(query: Query, orgId: string, userId: string): Promise<ListedMemberRow | undefined> {
  return query.one(ListedMemberRow, sql`${LISTED} where m.org_id = ${orgId} and m.user_id = ${userId}`);
}

/** The members of the organisation among these people. */
export function membersOfOrg(query: Query, orgId: string, userIds: readonly string[]): Promise<ListedMemberRow[]> {
  if (userIds.length === 0) return Promise.resolve([]);
  return query.all(
    ListedMemberRow,
    sql`${LISTED} where m.org_id = ${orgId} and m.user_id in (${join([...userIds])}) order by m.user_id`,
  );
}

const MailedRow = z.object({ user_id: text, email: text });
export type MailedMember = z.infer<typeof MailedRow>;

/**
 * The members with one of these roles who want mails and are not blocked: owners first, then whoever has been a member for longest. `userId`: only
 * this person.
 */
export function mailedMembers(
  query: Query,
  orgId: string,
  { roles, userId, limit }: { roles: readonly Role[]; userId?: string; limit: number },
): Promise<MailedMember[]> {
  const who = userId === undefined ? sql`1 = 1` : sql`m.user_id = ${userId}`;
  return query.all(
    MailedRow,
    sql`select m.user_id, u.email from members m join users u on u.id = m.user_id
        where m.org_id = ${orgId} and m.role in (${join([...roles])}) and ${who} and u.mail_notices = 1 and u.blocked_ms is null
        order by case when m.role = 'owner' then 0 else 1 end, m.created_ms, m.user_id limit ${limit}`,
  );
}

/** A condition: the person has set up an authenticator app or a passkey. */
function hasSecondFactor(userId: Sql): Sql {
  return sql`exists (select 1 from credentials c where c.user_id = ${userId} and c.kind in ('totp', 'passkey') and c.confirmed_ms is not null)`;
}
