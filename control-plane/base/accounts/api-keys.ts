// API keys: created by the operator or by another key, checked for every request. Only their hashes are stored.
import { hash } from 'node:crypto';
import { z } from 'zod';
import type { ApiKey, NewApiKey } from '../../../shared/api/account.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { fail, failField } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { API_KEYS_PER_ORG_MAX } from '../../../shared/limits.ts';
import { countRow, flag, int, json, text } from '../db/columns.ts';
import { join, type Query, type Sql, type Tx, sql } from '../db/db.ts';
import type { Events } from '../events/events.ts';
import { pageFrom, type PageStart } from '../http/cursors.ts';
import type { Caller } from '../http/route.ts';
import { readScope, type Scope, scopeText, scopeTexts } from '../http/scopes.ts';
import type { KnownKey } from './known-keys.ts';
import { restrictionOf } from './orgs.ts';

const KEY_START = 'svc_live_';
const KEY_RANDOM_BYTES = 32;
/** Enough characters to tell keys apart, far too few to guess the rest. */
const PREFIX_CHARS = KEY_START.length + 6;

export interface NewKeyRequest {
  orgId: string;
  name: string;
  /** Spellings that `readScope` accepts, including `full_access`. */
  scopes: string[];
  /** Null: the key does not expire. */
  expiresMs: number | null;
  /** The principal that makes it, for the journal. */
  by: string;
  /** The person whose login makes it. The key ends when the person loses what it may do. */
  userId?: string | null;
}

const ApiKeyRow = z.object({
  id: text,
  org_id: text,
  name: text,
  prefix: text,
  scopes: json(z.array(text)),
  created_ms: int,
  expires_ms: int.nullable(),
  last_used_ms: int.nullable(),
  revoked_ms: int.nullable(),
});
export type ApiKeyRow = z.infer<typeof ApiKeyRow>;

const COLUMNS = sql`id, org_id, name, prefix, scopes, created_ms, expires_ms, last_used_ms, revoked_ms`;

interface Deps {
  clock: Clock;
  ids: Ids;
  events: Events;
}

/** The key itself is only in this answer. The organisation must exist. @throws ServiceError `validation_failed` */
export async function issueKey(tx: Tx, request: NewKeyRequest, { clock, ids, events }: Deps): Promise<NewApiKey> {
  if (request.scopes.length === 0) failField('scopes', 'must name at least one scope');
  scopesOf(request.scopes);
  const nowMs = clock.now();
  if (request.expiresMs !== null && request.expiresMs <= nowMs) failField('expires_at', 'must be in the future');
  const key = KEY_START + ids.secret(KEY_RANDOM_BYTES);
  const row: ApiKeyRow = {
    id: ids.prefixed('apk'),
    org_id: request.orgId,
    name: request.name,
    prefix: key.slice(0, PREFIX_CHARS),
    scopes: request.scopes,
    created_ms: nowMs,
    expires_ms: request.expiresMs,
    last_used_ms: null,
    revoked_ms: null,
  };
  await tx.run(
    sql`insert into api_keys (id, org_id, name, prefix, key_hash, scopes, created_ms, expires_ms, user_id)
        values (${row.id}, ${row.org_id}, ${row.name}, ${row.prefix}, ${hashOf(key)}, ${JSON.stringify(row.scopes)},
                ${row.created_ms}, ${row.expires_ms}, ${request.userId ?? null})`,
  );
  const data = { name: row.name, scopes: row.scopes.join(', '), by: request.by };
  await events.append(tx, { type: 'api_key.created', subjectId: row.id, orgId: row.org_id, data });
  return { ...apiKeyView(row), key };
}

/**
 * Creates a key with another key. The new key has no scope that its creator lacks, and expires no later. A key of a person's login makes keys of the
 * same person, so that all of them end with it. The transaction must have locked the organisation.
 * @throws ServiceError `insufficient_scope`, `validation_failed`, `conflict` if the organisation has too many keys, `unauthorized` if the
 * creator was revoked a moment ago
 */
export async function issueKeyBy(
  tx: Tx,
  caller: Caller,
  request: { name: string; scopes: string[]; expiresMs: number | null },
  deps: Deps,
): Promise<NewApiKey> {
  const nowMs = deps.clock.now();
  const userId = caller.session === undefined ? await personOfKey(tx, caller.principalId) : null;
  // All keys of a person end together, and this one must not be made meanwhile.
  if (userId !== null) await tx.lock('user', userId);
  const makerExpiresMs = caller.session === undefined ? await expiryOfMaker(tx, caller.principalId) : null;
  assertWithin(caller, scopesOf(request.scopes));
  const expiresMs = request.expiresMs ?? makerExpiresMs;
  if (makerExpiresMs !== null && expiresMs !== null && expiresMs > makerExpiresMs) {
    failField('expires_at', `must not be after ${isoTime(makerExpiresMs)}, when the key that you are using ends`);
  }
  const whose = { orgId: caller.orgId, userId, by: caller.principalId };
  const made = await issueKey(tx, { ...request, ...whose, expiresMs }, deps);
  await assertKeyCount(tx, caller.orgId, nowMs);
  return made;
}

/** @throws ServiceError `unauthorized` if the key was revoked a moment ago */
async function expiryOfMaker(tx: Tx, keyId: string): Promise<number | null> {
  const maker = await keyWithId(tx, keyId);
  if (maker === undefined || maker.revoked_ms !== null)
    return fail('unauthorized', 'This API key has been revoked. Use another.');
  return maker.expires_ms;
}

/** Called after a key was made. @throws ServiceError `conflict` if the organisation has too many keys now */
export async function assertKeyCount(tx: Tx, orgId: string, nowMs: number): Promise<void> {
  const unrevoked = sql`select count(*) from api_keys where org_id = ${orgId} and revoked_ms is null`;
  // Two ranges of the index of living keys, so that no key that has ended is read.
  const living = await tx.one(
    countRow,
    sql`select (${unrevoked} and expires_ms is null) + (${unrevoked} and expires_ms > ${nowMs}) as count`,
  );
  if (living !== undefined && living.count <= API_KEYS_PER_ORG_MAX) return;
  fail('conflict', `An organisation may have ${API_KEYS_PER_ORG_MAX} API keys; revoke one first.`);
}

/** A page, newest first, including revoked and expired keys. With null, the keys of all organisations. */
export function pageOfKeys(query: Query, orgId: string | null, start: PageStart): Promise<ApiKeyRow[]> {
  const whose = orgId === null ? sql`1 = 1` : sql`org_id = ${orgId}`;
  return query.all(ApiKeyRow, sql`select ${COLUMNS} from api_keys where ${whose} and ${pageFrom(start)}`);
}

export function keyWithId(query: Query, id: string): Promise<ApiKeyRow | undefined> {
  return query.one(ApiKeyRow, sql`select ${COLUMNS} from api_keys where id = ${id}`);
}

/** The keys with these ids that belong to the organisation. */
export function keysOfOrg(query: Query, orgId: string, ids: readonly string[]): Promise<ApiKeyRow[]> {
  if (ids.length === 0) return Promise.resolve([]);
  return query.all(
    ApiKeyRow,
    sql`select ${COLUMNS} from api_keys where id in (${join([...ids])}) and org_id = ${orgId} order by id`,
  );
}

/** False if the organisation has no such key, or the key was revoked before. */
export async function revokeKeyOf(tx: Tx, orgId: string, id: string, nowMs: number): Promise<boolean> {
  const revoked = await tx.run(
    sql`update api_keys set revoked_ms = ${nowMs} where id = ${id} and org_id = ${orgId} and revoked_ms is null`,
  );
  return revoked === 1;
}

/** Revokes all keys of a person's own logins, in all organisations, and returns them. The transaction must have locked the person. */
export function revokeKeysOfPerson(tx: Tx, userId: string, nowMs: number): Promise<ApiKeyRow[]> {
  return tx.all(
    ApiKeyRow,
    sql`update api_keys set revoked_ms = ${nowMs} where user_id = ${userId} and revoked_ms is null returning ${COLUMNS}`,
  );
}

/** Revokes the keys of a person's own logins that may do more than `scopes`, and returns them. */
export async function revokeKeysBeyond(
  tx: Tx,
  { orgId, userId, scopes }: { orgId: string; userId: string; scopes: readonly Scope[] },
  nowMs: number,
): Promise<ApiKeyRow[]> {
  const own = await tx.all(
    ApiKeyRow,
    sql`select ${COLUMNS} from api_keys where user_id = ${userId} and org_id = ${orgId} and revoked_ms is null`,
  );
  const beyond = own.filter((row) => scopesOf(row.scopes).some((scope) => !scopes.includes(scope)));
  if (beyond.length === 0) return [];
  const ids = join(beyond.map(({ id }) => id));
  return tx.all(
    ApiKeyRow,
    sql`update api_keys set revoked_ms = ${nowMs} where id in (${ids}) and revoked_ms is null returning ${COLUMNS}`,
  );
}

const PersonRow = z.object({ user_id: text.nullable() });

/** The person in whose own login the key was made; null for a key of the organisation. */
export async function personOfKey(query: Query, id: string): Promise<string | null> {
  const row = await query.one(PersonRow, sql`select user_id from api_keys where id = ${id}`);
  return row?.user_id ?? null;
}

const FoundRow = ApiKeyRow.extend({ suspended_ms: int.nullable(), unfunded: flag });

/** Undefined for a key that is unknown or revoked. It may have expired. `readMs` is the present time of the monotonic clock. */
export async function findKey(query: Query, keyHash: string, readMs: number): Promise<KnownKey | undefined> {
  const row = await query.one(
    FoundRow,
    sql`select k.id, k.org_id, k.name, k.prefix, k.scopes, k.created_ms, k.expires_ms, k.last_used_ms, k.revoked_ms,
               o.suspended_ms, o.unfunded
        from api_keys k join orgs o on o.id = k.org_id where k.key_hash = ${keyHash}`,
  );
  if (row === undefined || row.revoked_ms !== null) return undefined;
  const restriction = restrictionOf(row);
  const caller = { ...callerOf(row), ...(restriction === undefined ? {} : { restriction }) };
  return { caller, expiresMs: row.expires_ms, lastUsedMs: row.last_used_ms, readMs };
}

/** A condition: the key is neither revoked nor expired. */
export function isLivingKey(id: string, nowMs: number): Sql {
  return sql`exists (select 1 from api_keys where id = ${id} and revoked_ms is null and (expires_ms is null or expires_ms > ${nowMs}))`;
}

/** Stores the time of use, unless a time after `staleMs` is stored already. */
export async function noteUse(tx: Tx, id: string, nowMs: number, staleMs: number): Promise<void> {
  await tx.run(
    sql`update api_keys set last_used_ms = ${nowMs}
        where id = ${id} and (last_used_ms is null or last_used_ms <= ${staleMs})`,
  );
}

function callerOf(row: ApiKeyRow): Caller {
  return { orgId: row.org_id, principalId: row.id, scopes: row.scopes.flatMap((scope) => readScope(scope) ?? []) };
}

export function apiKeyView(row: ApiKeyRow): ApiKey {
  const time = (ms: number | null): string | null => (ms === null ? null : isoTime(ms));
  return {
    id: row.id,
    org_id: row.org_id,
    name: row.name,
    prefix: row.prefix,
    scopes: row.scopes,
    created_at: isoTime(row.created_ms),
    expires_at: time(row.expires_ms),
    last_used_at: time(row.last_used_ms),
    revoked_at: time(row.revoked_ms),
  };
}

/** @throws ServiceError `validation_failed` for an unknown scope */
export function scopesOf(spellings: readonly string[]): Scope[] {
  return spellings.flatMap(
    (spelling, i) =>
      readScope(spelling) ??
      failField(`scopes[${i}]`, `must be one of ${scopeTexts().join(', ')}, which "${spelling}" is not`),
  );
}

function assertWithin(caller: Caller, wanted: readonly Scope[]): void {
  const beyond = wanted.find((scope) => !caller.scopes.includes(scope));
  if (beyond === undefined) return;
  fail('insufficient_scope', {
    detail: `A key can give only scopes that it has itself, and yours lacks "${scopeText(beyond)}".`,
    extra: { required_scope: scopeText(beyond) },
  });
}

/** A lookup by hash leaks nothing about the key through its timing, so no constant-time comparison is needed. */
export function hashOf(key: string): string {
  return hash('sha256', key);
}
