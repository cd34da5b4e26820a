// Organisations and their API keys, for the operator and for the authentication of requests.
import type { ApiKey, NewApiKey, Org } from '../../../shared/api/account.ts';
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { type Db, ignoreFullDisk, type Query, sql, type Tx } from '../db/db.ts';
import type { Events } from '../events/events.ts';
import { failEndedSession, failUnknownKey } from '../http/checks.ts';
import type { Caller, MaybePromise, Restriction } from '../http/route.ts';
import * as keys from './api-keys.ts';
import { type KnownKey, openKnownKeys } from './known-keys.ts';
import * as orgs from './orgs.ts';

/** Step of `last_used_at`: writing it for every request would cost more than the request. */
const LAST_USED_MS_STEP = 60_000;
/** On PostgreSQL, a known key is read again after this time. So the other processes notice a suspension within it. */
const KNOWN_MS_MAX = 5_000;

export interface Accounts {
  createOrg(name: string): Promise<Org>;
  /**
   * Makes an organisation in the caller's transaction, for a person who signs up. It may only read until money has come into its wallet.
   */
  addUnfundedOrg(tx: Tx, name: string): Promise<string>;
  /** @throws ServiceError `not_found` */
  assertOrg(orgId: string): Promise<void>;
  /**
   * From now on, the organisation can start nothing that costs money. One that is suspended gets the new reason.
   * @throws ServiceError `not_found`; `conflict` for the platform's own organisation
   */
  suspendOrg(orgId: string, reason: string): Promise<Org>;
  /** @throws ServiceError `not_found` */
  resumeOrg(orgId: string): Promise<Org>;
  /** What the organisation may not do now; undefined if it may do everything. */
  restrictionOf(orgId: string): Promise<Restriction | undefined>;
  /** The key itself is only in this answer. @throws ServiceError `not_found`, `validation_failed` */
  createKey(request: Omit<keys.NewKeyRequest, 'by'>): Promise<NewApiKey>;
  /** Takes effect with the next request. @throws ServiceError `not_found` */
  revokeKey(id: string): Promise<ApiKey>;
  /** Revokes a key of the caller's organisation. @throws ServiceError `not_found`, also if the key was revoked before */
  revokeKeyOf(caller: Caller, id: string): Promise<void>;
  /** Keys that a transaction has revoked are refused from now on. */
  dropKeys(ids: readonly string[]): void;
  /**
   * Undefined for a key that is unknown, revoked or expired. `confirmsKey`: the request confirms the key once more in a transaction
   * (`isLivingKey`), so a key that another process has just revoked may pass here.
   */
  authenticate(token: string, how: { confirmsKey: boolean }): MaybePromise<Caller | undefined>;
  /** Forgets a key that a transaction has found revoked or expired, and refuses it; or refuses a session. @throws ServiceError `unauthorized` */
  refuseKey(id: string): never;
}

interface Deps {
  db: Db;
  clock: Clock;
  ids: Ids;
  events: Events;
  /** Whether the organisation has ever had money. */
  wasFunded(query: Query, orgId: string): Promise<boolean>;
}

/** The organisation of the platform itself. It rents machines for models, and the platform's revenue pays them. */
export const PLATFORM_ORG = 'platform';

const PLATFORM_STAYS = `The organisation ${PLATFORM_ORG} is this service itself and cannot be suspended. To stop its models, retire their tiers.`;

/** The platform's organisation exists from now on. */
export async function ensurePlatform(tx: Tx, nowMs: number): Promise<void> {
  await tx.run(
    sql`insert into orgs (id, name, created_ms) values (${PLATFORM_ORG}, 'the platform itself', ${nowMs}) on conflict (id) do nothing`,
  );
}

export function openAccounts(deps: Deps): Accounts {
  const { db, clock, events } = deps;
  const known = openKnownKeys();
  const noteRevoked = (tx: Tx, orgId: string, id: string, by: string): Promise<void> =>
    events.append(tx, { type: 'api_key.revoked', subjectId: id, orgId, data: { by } });
  return {
    ...openOrgs(deps, known.dropOrg),
    createKey: (request) =>
      db.tx('accounts.create_key', async (tx) => {
        await tx.lock('org', request.orgId);
        await orgs.assertOrg(tx, request.orgId);
        return keys.issueKey(tx, { ...request, by: 'operator' }, deps);
      }),
    revokeKey: async (id) => {
      const nowMs = clock.now();
      const before = await keys.keyWithId(db.read, id);
      if (before === undefined) return fail('not_found', `There is no API key ${id}.`);
      const row = await db.tx('accounts.revoke_key', async (tx) => {
        await tx.lock('org', before.org_id);
        if (await keys.revokeKeyOf(tx, before.org_id, id, nowMs)) await noteRevoked(tx, before.org_id, id, 'operator');
        return keys.keyWithId(tx, id);
      });
      known.drop(id);
      return keys.apiKeyView(row ?? before);
    },
    revokeKeyOf: async ({ orgId, principalId }, id) => {
      const nowMs = clock.now();
      const revoked = await db.tx('accounts.revoke_own', async (tx) => {
        await tx.lock('org', orgId);
        if (!(await keys.revokeKeyOf(tx, orgId, id, nowMs))) return false;
        await noteRevoked(tx, orgId, id, principalId);
        return true;
      });
      known.drop(id);
      if (!revoked) fail('not_found', `There is no API key ${id}, or it was revoked before.`);
    },
    dropKeys: (gone) => gone.forEach(known.drop),
    authenticate: (token, { confirmsKey }) => {
      const hash = keys.hashOf(token);
      const nowMs = clock.now();
      // On SQLite no other process can change a key.
      const isAlone = db.dialect === 'sqlite';
      const key = isAlone || confirmsKey ? known.find(hash) : undefined;
      const isFresh = key !== undefined && (isAlone || clock.monotonicMs() - key.readMs < KNOWN_MS_MAX);
      if (isFresh && !mustNoteUse(key, nowMs)) return livingCaller(key, nowMs);
      return authenticate(deps, nowMs, () => known.learn(hash, () => findKey(deps, hash)));
    },
    refuseKey: (id) => {
      known.drop(id);
      return id.startsWith('ses_') ? failEndedSession() : failUnknownKey();
    },
  };
}

type OrgPart = 'createOrg' | 'addUnfundedOrg' | 'assertOrg' | 'suspendOrg' | 'resumeOrg' | 'restrictionOf';

function openOrgs(deps: Deps, dropKeysOf: (orgId: string) => void): Pick<Accounts, OrgPart> {
  const { db, clock, ids, events } = deps;
  const change = async (orgId: string, reason: string | null): Promise<Org> => {
    const row = await db.tx('accounts.suspend', async (tx) => {
      await tx.lock('org', orgId);
      const before = await orgs.assertOrg(tx, orgId);
      if (before.suspended_reason === reason) return before;
      if (reason === null) await orgs.resume(tx, orgId);
      else await orgs.suspend(tx, orgId, reason, clock.now());
      const type = reason === null ? 'org.resumed' : 'org.suspended';
      await events.append(tx, { type, subjectId: orgId, orgId, data: { reason } });
      return orgs.assertOrg(tx, orgId);
    });
    dropKeysOf(orgId);
    return orgs.orgView(row);
  };
  return {
    createOrg: async (name) => {
      const row = { id: ids.uuid(), name, created_ms: clock.now(), unfunded: false };
      await db.tx('accounts.create_org', (tx) => orgs.insertOrg(tx, row));
      return orgs.orgView({ ...row, suspended_ms: null, suspended_reason: null });
    },
    addUnfundedOrg: async (tx, name) => {
      const row = { id: ids.uuid(), name, created_ms: clock.now(), unfunded: true };
      await orgs.insertOrg(tx, row);
      return row.id;
    },
    assertOrg: async (orgId) => void (await orgs.assertOrg(db.read, orgId)),
    suspendOrg: async (orgId, reason) => {
      if (orgId === PLATFORM_ORG) fail('conflict', PLATFORM_STAYS);
      return change(orgId, reason);
    },
    resumeOrg: (orgId) => change(orgId, null),
    restrictionOf: async (orgId) => {
      const row = await orgs.findOrg(db.read, orgId);
      return row === undefined ? undefined : remainingRestriction(deps, orgId, orgs.restrictionOf(row));
    },
  };
}

/** An organisation that is restricted because it never had money may have some now. Then the restriction ends. */
async function remainingRestriction(
  { db, wasFunded }: Deps,
  orgId: string,
  restriction: Restriction | undefined,
): Promise<Restriction | undefined> {
  if (restriction !== 'unfunded' || !(await wasFunded(db.read, orgId))) return restriction;
  await db.tx('accounts.funded', (tx) => orgs.noteFunded(tx, orgId));
  return undefined;
}

async function findKey(deps: Deps, hash: string): Promise<KnownKey | undefined> {
  const key = await keys.findKey(deps.db.read, hash, deps.clock.monotonicMs());
  if (key?.caller.restriction === undefined) return key;
  const { restriction: before, ...caller } = key.caller;
  const restriction = await remainingRestriction(deps, caller.orgId, before);
  return { ...key, caller: { ...caller, ...(restriction === undefined ? {} : { restriction }) } };
}

async function authenticate(
  { db }: { db: Db },
  nowMs: number,
  read: () => Promise<KnownKey | undefined>,
): Promise<Caller | undefined> {
  const key = await read();
  if (key === undefined || livingCaller(key, nowMs) === undefined) return undefined;
  if (mustNoteUse(key, nowMs)) {
    key.lastUsedMs = nowMs;
    await db
      .tx('accounts.touch_key', (tx) => keys.noteUse(tx, key.caller.principalId, nowMs, nowMs - LAST_USED_MS_STEP))
      // A read must not be refused because nothing can be written.
      .catch(ignoreFullDisk);
  }
  return key.caller;
}

/** Whether the stored time of the last use is so old that it must be written again. */
function mustNoteUse({ lastUsedMs }: KnownKey, nowMs: number): boolean {
  return lastUsedMs === null || lastUsedMs <= nowMs - LAST_USED_MS_STEP;
}

function livingCaller({ caller, expiresMs }: KnownKey, nowMs: number): Caller | undefined {
  return expiresMs !== null && expiresMs <= nowMs ? undefined : caller;
}
