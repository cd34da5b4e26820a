// Organisations and their API keys, for the operator and for the authentication of requests.
import { z } from 'zod';
import type { ApiKey, NewApiKey, Org } from '../../../shared/api/account.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { int, text } from '../db/columns.ts';
import { type Db, DbError, type Query, sql } from '../db/db.ts';
import type { Caller } from '../http/route.ts';
import * as keys from './api-keys.ts';

/** Step of `last_used_at`: writing it for every request would cost more than the request. */
const LAST_USED_MS_STEP = 60_000;

export interface Accounts {
  createOrg(name: string): Promise<Org>;
  /** Oldest first. */
  listOrgs(): Promise<Org[]>;
  /** @throws ServiceError `not_found` */
  assertOrg(orgId: string): Promise<void>;
  /** The key itself is only in this answer. @throws ServiceError `not_found`, `validation_failed` */
  createKey(request: keys.NewKeyRequest): Promise<NewApiKey>;
  /** Oldest first, including revoked and expired keys. With null, the keys of all organisations. */
  listKeys(orgId: string | null): Promise<ApiKey[]>;
  /** Takes effect with the next request. @throws ServiceError `not_found` */
  revokeKey(id: string): Promise<ApiKey>;
  /** Undefined for a key that is unknown, revoked or expired. */
  authenticate(token: string): Promise<Caller | undefined>;
}

const OrgRow = z.object({ id: text, name: text, created_ms: int });

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
    assertOrg: (orgId) => assertOrg(db.read, orgId),
    createKey: (request) =>
      db.tx('accounts.create_key', async (tx) => {
        await tx.lock('org', request.orgId);
        await assertOrg(tx, request.orgId);
        return keys.issueKey(tx, request, deps);
      }),
    listKeys: async (orgId) => (await keys.allKeys(db.read, orgId)).map(keys.apiKeyView),
    revokeKey: (id) =>
      db.tx('accounts.revoke_key', async (tx) => {
        const row = await keys.revokeAnyKey(tx, id, clock.now());
        return row === undefined ? fail('not_found', `There is no API key ${id}.`) : keys.apiKeyView(row);
      }),
    authenticate: (token) => authenticate(deps, token),
  };
}

async function assertOrg(query: Query, orgId: string): Promise<void> {
  const org = await query.one(OrgRow, sql`select id, name, created_ms from orgs where id = ${orgId}`);
  if (org === undefined) fail('not_found', `There is no organisation ${orgId}.`);
}

async function authenticate({ db, clock }: { db: Db; clock: Clock }, token: string): Promise<Caller | undefined> {
  const nowMs = clock.now();
  const row = await keys.livingKey(db.read, token, nowMs);
  if (row === undefined) return undefined;
  const staleMs = nowMs - LAST_USED_MS_STEP;
  if (row.last_used_ms === null || row.last_used_ms <= staleMs) {
    await db
      .tx('accounts.touch_key', (tx) => keys.noteUse(tx, row.id, nowMs, staleMs))
      .catch((error: unknown) => {
        // A read must not be refused because nothing can be written.
        if (!(error instanceof DbError) || error.code !== 'disk_full') throw error;
      });
  }
  return keys.callerOf(row);
}

function orgOf(row: z.infer<typeof OrgRow>): Org {
  return { id: row.id, name: row.name, created_at: isoTime(row.created_ms) };
}
