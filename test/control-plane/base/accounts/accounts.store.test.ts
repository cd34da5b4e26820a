// Organisations and API keys on a real database: hashes only, scopes, expiry, revocation, last use.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { Accounts } from '../../../../control-plane/base/accounts/accounts.ts';
import { pageOfOrgs } from '../../../../control-plane/base/accounts/orgs.ts';
import { apiKeyView, pageOfKeys } from '../../../../control-plane/base/accounts/api-keys.ts';
import { type Db, sql } from '../../../../control-plane/base/db/db.ts';
import { type Clock, systemClock } from '../../../../shared/clock.ts';
import { createIds } from '../../../../shared/ids.ts';
import { systemRng } from '../../../../shared/rng.ts';
import { openAccountsAlone } from '../../../kit/accounts.ts';
import { openTestDb } from '../../../kit/databases.ts';

const ROOMS = ['base/events', 'base/accounts'].map((room) => ({
  room,
  directory: new URL(`../../../../control-plane/${room}/migrations/`, import.meta.url),
}));
let now = 1_700_000_000_000;
const clock: Clock = { ...systemClock(), now: () => now };

let db: Db;
let accounts: Accounts;
let orgId: string;
beforeEach(async () => {
  db = await openTestDb(ROOMS, clock);
  accounts = openAccountsAlone({ db, clock, ids: createIds(clock, systemRng()) });
  orgId = (await accounts.createOrg('Acme')).id;
});
afterEach(() => db.close());

const newKey = (more: { scopes?: string[]; expiresMs?: number | null } = {}) =>
  accounts.createKey({
    orgId,
    name: 'ci',
    scopes: more.scopes ?? ['instances: read'],
    expiresMs: more.expiresMs ?? null,
  });

const authenticate = async (token: string, confirmsKey = false) => accounts.authenticate(token, { confirmsKey });

describe('API keys', () => {
  // Specification 5: Keys carry the prefix svc_live_.
  test('are shown once, have 256 random bits, and are stored as a hash only', async () => {
    const created = await newKey();
    expect(created.key).toMatch(/^svc_live_[A-Za-z0-9_-]{43}$/);
    expect(created.key.startsWith(created.prefix)).toBe(true);
    expect(created.prefix).toHaveLength(15);
    const [listed] = (await pageOfKeys(db.read, orgId, { count: 10 })).map(apiKeyView);
    expect(listed).toEqual(expect.not.objectContaining({ key: expect.anything() }));
    const rows = await db.read.all(z.looseObject({}), sql`select * from api_keys`);
    const stored = JSON.stringify(rows, (_name, value: unknown) => (typeof value === 'bigint' ? String(value) : value));
    expect(stored).not.toContain(created.key.slice(created.prefix.length));
  });
  test('authenticate as their organisation with their scopes', async () => {
    const created = await newKey({ scopes: ['instances: read', 'ssh_keys:write'] });
    expect(await authenticate(created.key)).toEqual({
      orgId,
      principalId: created.id,
      scopes: ['instances:read', 'ssh_keys:write'],
    });
    expect(await authenticate(`${created.key}x`)).toBeUndefined();
    expect(await authenticate(created.prefix)).toBeUndefined();
  });
  // Specification 5: full_access covers the three inference scopes.
  test('have the three inference scopes for full_access', async () => {
    const created = await newKey({ scopes: ['full_access'] });
    expect(created.scopes).toEqual(['full_access']);
    const caller = await authenticate(created.key);
    expect(caller?.scopes).toEqual(['serverless:read', 'serverless:write', 'billing:read']);
  });
  test('expires in the future, never at once', async () => {
    await expect(newKey({ expiresMs: now })).rejects.toThrow('expires_at must be in the future');
    expect(await newKey({ expiresMs: now + 1 })).toMatchObject({ expires_at: expect.any(String) });
  });

  test('expire on time', async () => {
    const created = await newKey({ expiresMs: now + 1000 });
    now += 999;
    expect(await authenticate(created.key)).toBeDefined();
    now += 1;
    expect(await authenticate(created.key)).toBeUndefined();
  });
  test('end once they are revoked, and a second revocation changes nothing', async () => {
    const created = await newKey();
    const revoked = await accounts.revokeKey(created.id);
    now += 5000;
    expect((await accounts.revokeKey(created.id)).revoked_at).toBe(revoked.revoked_at);
    expect(await authenticate(created.key)).toBeUndefined();
  });
  test('that this process has seen are authenticated without the database', async () => {
    const { key } = await newKey();
    const first = await authenticate(key);
    expect(accounts.authenticate(key, { confirmsKey: true })).toBe(first);
  });
  test('that are revoked while they are read are not remembered', async () => {
    const { key, id } = await newKey();
    const reading = authenticate(key, true);
    await Promise.all([reading, accounts.revokeKey(id)]);
    expect(await authenticate(key, true)).toBeUndefined();
  });
  test('of one organisation are revoked for it alone', async () => {
    const { key, id } = await newKey();
    const caller = { orgId, principalId: 'apk_other', scopes: [] };
    await expect(accounts.revokeKeyOf({ ...caller, orgId: 'another' }, id)).rejects.toMatchObject({
      code: 'not_found',
    });
    expect(await authenticate(key)).toBeDefined();
    await accounts.revokeKeyOf(caller, id);
    expect(await authenticate(key)).toBeUndefined();
    await expect(accounts.revokeKeyOf(caller, id)).rejects.toMatchObject({ code: 'not_found' });
  });
  // Beside another control plane on PostgreSQL.
  test('in memory are read again after five seconds, also if the wall clock was set back meanwhile', async () => {
    let monotonicMs = 0;
    const own: Clock = { ...clock, monotonicMs: () => monotonicMs };
    const beside: Db = { ...db, dialect: 'postgres' };
    const other = openAccountsAlone({ db: beside, clock: own, ids: createIds(clock, systemRng()) });
    const { key } = await newKey();
    expect(await other.authenticate(key, { confirmsKey: true })).not.toHaveProperty('restriction');
    await accounts.suspendOrg(orgId, 'unpaid');
    now -= 3_600_000;
    monotonicMs += 4_999;
    expect(await other.authenticate(key, { confirmsKey: true })).not.toHaveProperty('restriction');
    monotonicMs += 1;
    expect(await other.authenticate(key, { confirmsKey: true })).toHaveProperty('restriction', 'suspended');
  });
  test('store their last use at most once a minute', async () => {
    const created = await newKey();
    const lastUsed = async () => (await pageOfKeys(db.read, orgId, { count: 10 })).map(apiKeyView)[0]?.last_used_at;
    expect(await lastUsed()).toBeNull();
    await Promise.all(Array.from({ length: 5 }, () => authenticate(created.key)));
    const first = await lastUsed();
    expect(first).toBe(new Date(now).toISOString());
    now += 59_999;
    await authenticate(created.key);
    expect(await lastUsed()).toBe(first);
    now += 1;
    await authenticate(created.key);
    expect(await lastUsed()).toBe(new Date(now).toISOString());
  });
  test.each([
    ['no scope', [], 'at least one'],
    ['an unknown scope', ['instances: fly'], 'instances: fly'],
  ])('%s is refused', async (_what, scopes, reason) => {
    await expect(newKey({ scopes })).rejects.toThrow(reason);
  });
  test('need an organisation, and revoking needs a key', async () => {
    const request = { orgId: 'nobody', name: 'x', scopes: ['full_access'], expiresMs: null };
    await expect(accounts.createKey(request)).rejects.toMatchObject({ code: 'not_found' });
    await expect(accounts.revokeKey('apk_nothing')).rejects.toMatchObject({ code: 'not_found' });
  });
});

test('organisations and keys are listed newest first', async () => {
  now += 1;
  const other = await accounts.createOrg('Bolt');
  expect((await pageOfOrgs(db.read, { count: 10 })).map((org) => org.name)).toEqual(['Bolt', 'Acme']);
  const first = await newKey();
  now += 1;
  const second = await accounts.createKey({ orgId: other.id, name: 'b', scopes: ['full_access'], expiresMs: null });
  expect((await pageOfKeys(db.read, null, { count: 10 })).map((key) => key.id)).toEqual([second.id, first.id]);
  expect((await pageOfKeys(db.read, other.id, { count: 10 })).map((key) => key.id)).toEqual([second.id]);
});
