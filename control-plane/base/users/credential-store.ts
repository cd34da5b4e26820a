// The rows with which people prove who they are: passwords, authenticator apps, passkeys and recovery codes.
import { z } from 'zod';
import { int, json, text } from '../db/columns.ts';
import { type Db, type Query, sql, type Tx } from '../db/db.ts';
import type { Piece } from '../db/pieces.ts';
import { hashOf } from '../accounts/api-keys.ts';

const CredentialRow = z.object({
  id: text,
  user_id: text,
  kind: z.enum(['password', 'totp', 'passkey', 'oidc']),
  name: text,
  external_id: text.nullable(),
  secret: text,
  counter: int,
  transports: json(z.array(text)),
  confirmed_ms: int.nullable(),
  created_ms: int,
  used_ms: int.nullable(),
});
export type CredentialRow = z.infer<typeof CredentialRow>;
type Kind = CredentialRow['kind'];

const COLUMNS = sql`id, user_id, kind, name, external_id, secret, counter, transports, confirmed_ms, created_ms, used_ms`;

/** Returns 0 if the passkey, or the link to the person at the OpenID provider, is stored already. */
export function insertCredential(tx: Tx, row: Omit<CredentialRow, 'used_ms'>): Promise<number> {
  return tx.run(
    sql`insert into credentials (id, user_id, kind, name, external_id, secret, counter, transports, confirmed_ms, created_ms)
        values (${row.id}, ${row.user_id}, ${row.kind}, ${row.name}, ${row.external_id}, ${row.secret}, ${row.counter},
                ${JSON.stringify(row.transports)}, ${row.confirmed_ms}, ${row.created_ms})
        on conflict (external_id) do nothing`,
  );
}

/** The credentials of one kind, oldest first. A person has at most one password and one authenticator app. */
export function credentialsOf(query: Query, userId: string, kind: Kind): Promise<CredentialRow[]> {
  return query.all(
    CredentialRow,
    sql`select ${COLUMNS} from credentials where user_id = ${userId} and kind = ${kind} order by created_ms, id`,
  );
}

/** The passkey with this id, or the link to the person of an OpenID provider. */
export function credentialWith(query: Query, externalId: string): Promise<CredentialRow | undefined> {
  return query.one(CredentialRow, sql`select ${COLUMNS} from credentials where external_id = ${externalId}`);
}

/** Undefined for a person without a password. */
export async function passwordOf(query: Query, userId: string): Promise<string | undefined> {
  const [row] = await credentialsOf(query, userId, 'password');
  return row?.secret;
}

/** The secret stays the same. False if another use has set the counter since `from` was read. */
export async function useCredential(
  tx: Tx,
  id: string,
  { from, to, nowMs }: { from: number; to: number; nowMs: number },
): Promise<boolean> {
  const used = await tx.run(
    sql`update credentials set counter = ${to}, used_ms = ${nowMs}, confirmed_ms = coalesce(confirmed_ms, ${nowMs})
        where id = ${id} and counter = ${from}`,
  );
  return used === 1;
}

/** False if the person has no such passkey. */
export async function deletePasskey(tx: Tx, userId: string, id: string): Promise<boolean> {
  return (
    (await tx.run(sql`delete from credentials where id = ${id} and user_id = ${userId} and kind = 'passkey'`)) === 1
  );
}

export async function deleteCredentials(tx: Tx, userId: string, kind: Kind): Promise<void> {
  await tx.run(sql`delete from credentials where user_id = ${userId} and kind = ${kind}`);
}

/** Deletes everything with which the person could sign in. */
export async function deleteAllCredentials(tx: Tx, userId: string): Promise<void> {
  await tx.run(sql`delete from credentials where user_id = ${userId}`);
  await deleteRecoveryCodes(tx, userId);
}

const FactorsRow = z.object({ password: int, totp: int, passkey: int, codes: int });
export type Factors = z.infer<typeof FactorsRow>;

/** How many credentials of each kind the person has set up. */
export async function factorsOf(query: Query, userId: string): Promise<Factors> {
  const count = (kind: Kind) =>
    sql`(select count(*) from credentials where user_id = ${userId} and kind = ${kind} and confirmed_ms is not null)`;
  const row = await query.one(
    FactorsRow,
    sql`select ${count('password')} as password, ${count('totp')} as totp, ${count('passkey')} as passkey,
               (select count(*) from recovery_codes where user_id = ${userId}) as codes`,
  );
  return row ?? { password: 0, totp: 0, passkey: 0, codes: 0 };
}

export function hasSecond({ totp, passkey }: Factors): boolean {
  return totp + passkey > 0;
}

export async function insertRecoveryCode(tx: Tx, userId: string, code: string, nowMs: number): Promise<void> {
  await tx.run(
    sql`insert into recovery_codes (code_hash, user_id, created_ms) values (${codeHash(userId, code)}, ${userId}, ${nowMs})`,
  );
}

export async function deleteRecoveryCodes(tx: Tx, userId: string): Promise<void> {
  await tx.run(sql`delete from recovery_codes where user_id = ${userId}`);
}

/** Uses the code up. False if the person has no such code. */
export async function takeRecoveryCode(tx: Tx, userId: string, code: string): Promise<boolean> {
  return (await tx.run(sql`delete from recovery_codes where code_hash = ${codeHash(userId, code)}`)) === 1;
}

function codeHash(userId: string, code: string): string {
  return hashOf(`${userId} ${code}`);
}

/** False if the challenge was used before. */
export async function useChallenge(tx: Tx, challenge: string, expiresMs: number): Promise<boolean> {
  const used = await tx.run(
    sql`insert into used_challenges (challenge, expires_ms) values (${challenge}, ${expiresMs}) on conflict (challenge) do nothing`,
  );
  return used === 1;
}

export function forgetChallenges(db: Db, { untilMs, limit }: Piece): Promise<number> {
  return db.tx('users.forget_challenges', (tx) =>
    tx.run(
      sql`delete from used_challenges where challenge in (
            select challenge from used_challenges where expires_ms <= ${untilMs} limit ${limit})`,
    ),
  );
}
