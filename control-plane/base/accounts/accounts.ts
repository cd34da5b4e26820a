// Organisations and their API keys, for the operator and for the authentication of requests.
import { z } from 'zod';
import type { ApiKey, NewApiKey, Org } from '../../../shared/api/account.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { int, text } from '../db/columns.ts';
import { type Db, DbError, type Query, sql, type Tx } from '../db/db.ts';
import { failUnknownKey } from '../http/checks.ts';
import { pageFrom, type PageStart } from '../http/cursors.ts';
import type { Caller, MaybePromise } from '../http/route.ts';
import * as keys from './api-keys.ts';
import { type KnownKey, openKnownKeys } from './known-keys.ts';

/** Step of `last_used_at`: writing it for every request would cost more than the request. */
const LAST_USED_MS_STEP = 60_000;

export interface Accounts {
  createOrg(name: string): Promise<Org>;
  /** @throws ServiceError `not_found` */
  assertOrg(orgId: string): Promise<void>;
  /** The key itself is only in this answer. @throws ServiceError `not_found`, `validation_failed` */
  createKey(request: keys.NewKeyRequest): Promise<NewApiKey>;
  /** Takes effect with the next request. @throws ServiceError `not_found` */
  revokeKey(id: string): Promise<ApiKey>;
  /** The same for a key of this organisation. @throws ServiceError `not_found`, also if the key was revoked before */
  revokeKeyOf(orgId: string, id: string): Promise<void>;
  /**
   * Undefined for a key that is unknown, revoked or expired. `confirmsKey`: the request confirms the key once more in a transaction
   * (`isLivingKey`), so a key that another process has just revoked may pass here.
   */
  authenticate(token: string, how: { confirmsKey: boolean }): MaybePromise<Caller | undefined>;
  /** Whether the key of a long request may still be used. */
  isLiving(caller: Caller): Promise<boolean>;
  /** Forgets a key that a transaction has found revoked or expired. @throws ServiceError `unauthorized` */
  refuseKey(id: string): never;
}

const OrgRow = z.object({ id: text, name: text, created_ms: int });
type OrgRow = z.infer<typeof OrgRow>;

/** The organisation of the platform itself. It rents machines for models, and the platform's revenue pays them. */
export const PLATFORM_ORG = 'platform';

/** The platform's organisation exists from now on. */
export async function ensurePlatform(tx: Tx, nowMs: number): Promise<void> {
  await tx.run(
    sql`insert into orgs (id, name, created_ms) values (${PLATFORM_ORG}, 'the platform itself', ${nowMs}) on conflict (id) do nothing`,
  );
}

export function openAccounts(deps: { db: Db; clock: Clock; ids: Ids }): Accounts {
  const { db, clock, ids } = deps;
  const known = openKnownKeys();
  return {
    createOrg: async (name) => {
      const row = { id: ids.uuid(), name, created_ms: clock.now() };
      await db.tx('accounts.create_org', (tx) =>
        tx.run(sql`insert into orgs (id, name, created_ms) values (${row.id}, ${name}, ${row.created_ms})`),
      );
      return orgView(row);
    },
    assertOrg: (orgId) => assertOrg(db.read, orgId),
    createKey: (request) =>
      db.tx('accounts.create_key', async (tx) => {
        await tx.lock('org', request.orgId);
        await assertOrg(tx, request.orgId);
        return keys.issueKey(tx, request, deps);
      }),
    revokeKey: async (id) => {
      const nowMs = clock.now();
      const row = await db.tx('accounts.revoke_key', (tx) => keys.revokeAnyKey(tx, id, nowMs));
      known.drop(id);
      return row === undefined ? fail('not_found', `There is no API key ${id}.`) : keys.apiKeyView(row);
    },
    revokeKeyOf: async (orgId, id) => {
      const nowMs = clock.now();
      const revoked = await db.tx('accounts.revoke_own', (tx) => keys.revokeKeyOf(tx, orgId, id, nowMs));
      known.drop(id);
      if (!revoked) fail('not_found', `There is no API key ${id}, or it was revoked before.`);
    },
    authenticate: (token, { confirmsKey }) => {
      const hash = keys.hashOf(token);
      const nowMs = clock.now();
      const key = confirmsKey || db.dialect === 'sqlite' ? known.find(hash) : undefined;
      if (key !== undefined && !isStale(key, nowMs)) return livingCaller(key, nowMs);
      return authenticate(deps, nowMs, () => known.learn(hash, () => keys.findKey(db.read, hash)));
    },
    isLiving: ({ apiKeyId }) => keys.isLiving(db.read, apiKeyId, clock.now()),
    refuseKey: (id) => {
      known.drop(id);
      return failUnknownKey();
    },
  };
}

/** A page, newest first. */
export function pageOfOrgs(query: Query, start: PageStart): Promise<OrgRow[]> {
  return query.all(OrgRow, sql`select id, name, created_ms from orgs where ${pageFrom(start)}`);
}

export function orgView(row: OrgRow): Org {
  return { id: row.id, name: row.name, created_at: isoTime(row.created_ms) };
}

async function assertOrg(query: Query, orgId: string): Promise<void> {
  const org = await query.one(OrgRow, sql`select id, name, created_ms from orgs where id = ${orgId}`);
  if (org === undefined) fail('not_found', `There is no organisation ${orgId}.`);
}

async function authenticate(
  { db }: { db: Db },
  nowMs: number,
  read: () => Promise<KnownKey | undefined>,
): Promise<Caller | undefined> {
  const key = await read();
  if (key === undefined || livingCaller(key, nowMs) === undefined) return undefined;
  if (isStale(key, nowMs)) {
    key.lastUsedMs = nowMs;
    await db
      .tx('accounts.touch_key', (tx) => keys.noteUse(tx, key.caller.apiKeyId, nowMs, nowMs - LAST_USED_MS_STEP))
      .catch((error: unknown) => {
        // A read must not be refused because nothing can be written.
        if (!(error instanceof DbError) || error.code !== 'disk_full') throw error;
      });
  }
  return key.caller;
}

/** Whether the stored time of the last use is so old that it must be written again. */
function isStale({ lastUsedMs }: KnownKey, nowMs: number): boolean {
  return lastUsedMs === null || lastUsedMs <= nowMs - LAST_USED_MS_STEP;
}

function livingCaller({ caller, expiresMs }: KnownKey, nowMs: number): Caller | undefined {
  return expiresMs !== null && expiresMs <= nowMs ? undefined : caller;
}
