// Organisations and their API keys: made by the operator, asked for by every request.
import { createHash } from 'node:crypto';
import { z } from 'zod';
import type { ApiKey, NewApiKey } from '../../../shared/api/api-key.ts';
import type { Org } from '../../../shared/api/org.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { fail, failField } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { int, json, text } from '../db/columns.ts';
import { type Db, sql } from '../db/db.ts';
import type { Caller } from '../http/route.ts';
import { readScope } from '../http/scopes.ts';

const KEY_START = 'svc_live_';
const KEY_RANDOM_BYTES = 32;
/** Enough to tell keys apart, far too little to guess the rest. */
const PREFIX_CHARS = KEY_START.length + 6;
/** How old `last_used_at` may be; a write for every request would cost more than the request. */
const LAST_USED_MS_STEP = 60_000;

export interface NewKeyRequest {
  orgId: string;
  name: string;
  /** Spellings that `readScope` takes, `full_access` among them. */
  scopes: string[];
  /** Null: does not expire. */
  expiresMs: number | null;
}

export interface Accounts {
  createOrg(name: string): Promise<Org>;
  /** Oldest first. */
  listOrgs(): Promise<Org[]>;
  /** The key itself is in this answer and nowhere else. @throws ServiceError `not_found`, `validation_failed` */
  createKey(request: NewKeyRequest): Promise<NewApiKey>;
  /** Oldest first, revoked and expired ones too; with null, of all organisations. */
  listKeys(orgId: string | null): Promise<ApiKey[]>;
  /** Takes effect at the next request. @throws ServiceError `not_found` */
  revokeKey(id: string): Promise<ApiKey>;
  /** Undefined for a key that is unknown, revoked or expired. */
  authenticate(token: string): Promise<Caller | undefined>;
}

const OrgRow = z.object({ id: text, name: text, created_ms: int });

const KeyRow = z.object({
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
type KeyRow = z.infer<typeof KeyRow>;

const KEY_COLUMNS = sql`id, org_id, name, prefix, scopes, created_ms, expires_ms, last_used_ms, revoked_ms`;

export function openAccounts(deps: { db: Db; clock: Clock; ids: Ids }): Accounts {
  const { db, clock, ids } = deps;
  return {
    createOrg: async (name) => {
      const row = { id: ids.uuid(), name, created_ms: clock.now() };
      await db.tx('accounts.create_org', (tx) =>
        tx.run(sql`insert into orgs (id, name, created_ms) values (${row.id}, ${name}, ${row.created_ms})`),
      );
      return orgOf(row);
    },
    listOrgs: async () => {
      const rows = await db.read.all(OrgRow, sql`select id, name, created_ms from orgs order by created_ms, id`);
      return rows.map(orgOf);
    },
    createKey: (request) => createKey(deps, request),
    listKeys: async (orgId) => {
      const rows = await db.read.all(
        KeyRow,
        sql`select ${KEY_COLUMNS} from api_keys where ${orgId === null ? sql`1 = 1` : sql`org_id = ${orgId}`}
            order by created_ms, id`,
      );
      return rows.map(apiKeyOf);
    },
    revokeKey: (id) =>
      db.tx('accounts.revoke_key', async (tx) => {
        const row = await tx.one(
          KeyRow,
          sql`update api_keys set revoked_ms = coalesce(revoked_ms, ${clock.now()}) where id = ${id} returning ${KEY_COLUMNS}`,
        );
        return row === undefined ? fail('not_found', `There is no API key ${id}.`) : apiKeyOf(row);
      }),
    authenticate: (token) => authenticate(deps, token),
  };
}

async function createKey(
  { db, clock, ids }: { db: Db; clock: Clock; ids: Ids },
  request: NewKeyRequest,
): Promise<NewApiKey> {
  if (request.scopes.length === 0) failField('scopes', 'must name at least one scope');
  for (const scope of request.scopes)
    if (readScope(scope) === undefined) failField('scopes', `there is no scope "${scope}"`);
  const key = KEY_START + ids.secret(KEY_RANDOM_BYTES);
  const row: KeyRow = {
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
  await db.tx('accounts.create_key', async (tx) => {
    const org = await tx.one(OrgRow, sql`select id, name, created_ms from orgs where id = ${row.org_id}`);
    if (org === undefined) fail('not_found', `There is no organisation ${row.org_id}.`);
    await tx.run(
      sql`insert into api_keys (id, org_id, name, prefix, key_hash, scopes, created_ms, expires_ms)
          values (${row.id}, ${row.org_id}, ${row.name}, ${row.prefix}, ${hashOf(key)}, ${JSON.stringify(row.scopes)},
                  ${row.created_ms}, ${row.expires_ms})`,
    );
  });
  return { ...apiKeyOf(row), key };
}

async function authenticate({ db, clock }: { db: Db; clock: Clock }, token: string): Promise<Caller | undefined> {
  const now = clock.now();
  const row = await db.read.one(KeyRow, sql`select ${KEY_COLUMNS} from api_keys where key_hash = ${hashOf(token)}`);
  if (row === undefined || row.revoked_ms !== null || (row.expires_ms !== null && row.expires_ms <= now))
    return undefined;
  const staleMs = now - LAST_USED_MS_STEP;
  if (row.last_used_ms === null || row.last_used_ms <= staleMs) {
    await db.tx('accounts.touch_key', (tx) =>
      tx.run(
        sql`update api_keys set last_used_ms = ${now}
            where id = ${row.id} and (last_used_ms is null or last_used_ms <= ${staleMs})`,
      ),
    );
  }
  const scopes = row.scopes.flatMap((scope) => readScope(scope) ?? []);
  return { orgId: row.org_id, apiKeyId: row.id, scopes };
}

/** Looking a hash up leaks nothing about the key through time, so no constant-time comparison is needed. */
function hashOf(key: string): string {
  return createHash('sha256').update(key).digest('hex');
}

function orgOf(row: z.infer<typeof OrgRow>): Org {
  return { id: row.id, name: row.name, created_at: isoTime(row.created_ms) };
}

function apiKeyOf(row: KeyRow): ApiKey {
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
