// API keys: created by the operator or by another key, checked for every request. Only their hashes are stored.
import { hash } from 'node:crypto';
import { z } from 'zod';
import type { ApiKey, NewApiKey } from '../../../shared/api/account.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { fail, failField } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { API_KEYS_PER_ORG_MAX } from '../../../shared/limits.ts';
import { countRow, int, json, text } from '../db/columns.ts';
import { type Query, type Sql, type Tx, sql } from '../db/db.ts';
import { pageFrom, type PageStart } from '../http/cursors.ts';
import type { Caller } from '../http/route.ts';
import { readScope, type Scope, scopeText, scopeTexts } from '../http/scopes.ts';
import type { KnownKey } from './known-keys.ts';

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
}

/** The key itself is only in this answer. The organisation must exist. @throws ServiceError `validation_failed` */
export async function issueKey(tx: Tx, request: NewKeyRequest, { clock, ids }: Deps): Promise<NewApiKey> {
  if (request.scopes.length === 0) failField('scopes', 'must name at least one scope');
  scopesOf(request.scopes);
  const key = KEY_START + ids.secret(KEY_RANDOM_BYTES);
  const row: ApiKeyRow = {
    id: ids.prefixed('apk'),
    org_id: request.orgId,
    name: request.name,
    prefix: key.slice(0, PREFIX_CHARS),
    scopes: request.scopes,
    created_ms: clock.now(),
    expires_ms: request.expiresMs,
    last_used_ms: null,
    revoked_ms: null,
  };
  await tx.run(
    sql`insert into api_keys (id, org_id, name, prefix, key_hash, scopes, created_ms, expires_ms)
        values (${row.id}, ${row.org_id}, ${row.name}, ${row.prefix}, ${hashOf(key)}, ${JSON.stringify(row.scopes)},
                ${row.created_ms}, ${row.expires_ms})`,
  );
  return { ...apiKeyView(row), key };
}

/**
 * Creates a key with another key. The new key has no scope that its creator lacks, and expires no later.
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
  const maker = await tx.one(ApiKeyRow, sql`select ${COLUMNS} from api_keys where id = ${caller.apiKeyId}`);
  if (maker === undefined || maker.revoked_ms !== null)
    return fail('unauthorized', 'This API key has been revoked. Use another.');
  assertWithin(caller, scopesOf(request.scopes));
  const expiresMs = request.expiresMs ?? maker.expires_ms;
  if (expiresMs !== null && expiresMs <= nowMs) failField('expires_at', 'must be in the future');
  if (maker.expires_ms !== null && expiresMs !== null && expiresMs > maker.expires_ms) {
    failField('expires_at', `must not be after ${isoTime(maker.expires_ms)}, when the key that you are using ends`);
  }
  const made = await issueKey(tx, { ...request, orgId: caller.orgId, expiresMs }, deps);
  const living = await tx.one(
    countRow,
    sql`select count(*) as count from api_keys where org_id = ${caller.orgId} and revoked_ms is null
        and (expires_ms is null or expires_ms > ${nowMs})`,
  );
  if (living !== undefined && living.count <= API_KEYS_PER_ORG_MAX) return made;
  return fail('conflict', `An organisation may have ${API_KEYS_PER_ORG_MAX} API keys; revoke one first.`);
}

/** A page, newest first, including revoked and expired keys. With null, the keys of all organisations. */
export function pageOfKeys(query: Query, orgId: string | null, start: PageStart): Promise<ApiKeyRow[]> {
  const whose = orgId === null ? sql`1 = 1` : sql`org_id = ${orgId}`;
  return query.all(ApiKeyRow, sql`select ${COLUMNS} from api_keys where ${whose} and ${pageFrom(start)}`);
}

/** A key that was revoked before keeps its time. Undefined for an unknown key. */
export function revokeAnyKey(tx: Tx, id: string, nowMs: number): Promise<ApiKeyRow | undefined> {
  return tx.one(
    ApiKeyRow,
    sql`update api_keys set revoked_ms = coalesce(revoked_ms, ${nowMs}) where id = ${id} returning ${COLUMNS}`,
  );
}

/** False if the organisation has no such key, or the key was revoked before. */
export async function revokeKeyOf(tx: Tx, orgId: string, id: string, nowMs: number): Promise<boolean> {
  const revoked = await tx.run(
    sql`update api_keys set revoked_ms = ${nowMs} where id = ${id} and org_id = ${orgId} and revoked_ms is null`,
  );
  return revoked === 1;
}

/** Undefined for a key that is unknown or revoked. It may have expired. */
export async function findKey(query: Query, keyHash: string): Promise<KnownKey | undefined> {
  const row = await query.one(ApiKeyRow, sql`select ${COLUMNS} from api_keys where key_hash = ${keyHash}`);
  if (row === undefined || row.revoked_ms !== null) return undefined;
  return { caller: callerOf(row), expiresMs: row.expires_ms, lastUsedMs: row.last_used_ms };
}

/** A condition: the key is neither revoked nor expired. */
export function isLivingKey(id: string, nowMs: number): Sql {
  return sql`exists (select 1 from api_keys where id = ${id} and revoked_ms is null and (expires_ms is null or expires_ms > ${nowMs}))`;
}

export async function isLiving(query: Query, id: string, nowMs: number): Promise<boolean> {
  const row = await query.one(
    countRow,
    sql`select count(*) as count from api_keys where id = ${id} and ${isLivingKey(id, nowMs)}`,
  );
  return row?.count === 1;
}

/** Stores the time of use, unless a time after `staleMs` is stored already. */
export async function noteUse(tx: Tx, id: string, nowMs: number, staleMs: number): Promise<void> {
  await tx.run(
    sql`update api_keys set last_used_ms = ${nowMs}
        where id = ${id} and (last_used_ms is null or last_used_ms <= ${staleMs})`,
  );
}

function callerOf(row: ApiKeyRow): Caller {
  return { orgId: row.org_id, apiKeyId: row.id, scopes: row.scopes.flatMap((scope) => readScope(scope) ?? []) };
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
function scopesOf(spellings: readonly string[]): Scope[] {
  return spellings.flatMap((spelling, i) => {
    return (
      readScope(spelling) ??
      failField(`scopes[${i}]`, `must be one of ${scopeTexts().join(', ')}, which "${spelling}" is not`)
    );
  });
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
