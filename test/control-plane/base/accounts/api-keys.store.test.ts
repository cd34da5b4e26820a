// API keys over the API: created within the rights of their creator, shown once, listed, revoked, and sealed in stored replies.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { text } from '../../../../control-plane/base/db/columns.ts';
import { sql } from '../../../../control-plane/base/db/db.ts';
import { API_KEYS_PER_ORG_MAX } from '../../../../shared/limits.ts';
import { type Answer, type Api, type ApiAccount, openApi } from '../../../contract/api.ts';

let api: Api;
let owner: ApiAccount;
beforeEach(async () => {
  api = await openApi();
  owner = await api.account(['api_keys: read', 'api_keys: write', 'instances: read']);
});
afterEach(() => api.close());

const make = (body: object, headers: Record<string, string> = {}, key = owner.key): Promise<Answer> =>
  api.call('POST', '/v1/api-keys', { key, headers, body: { name: 'ci', scopes: ['instances: read'], ...body } });
const isoIn = (ms: number): string => new Date(api.world.clock.now() + ms).toISOString();

describe('creating a key', () => {
  test('answers 201 with the key, which works at once with its scopes and no others', async () => {
    const made = await make({});
    expect(made.status).toBe(201);
    expect(made.json).toMatchObject({
      key: expect.stringMatching(/^svc_live_[A-Za-z0-9_-]{43}$/),
      org_id: owner.orgId,
      scopes: ['instances: read'],
      expires_at: null,
      revoked_at: null,
    });
    const key = String(made.json['key']);
    expect((await api.call('GET', '/v1/instances', { key })).status).toBe(200);
    expect((await api.call('GET', '/v1/api-keys', { key })).status).toBe(403);
  });

  // Specification 8: A replay does not keep a secret in clear.
  test('returns the same key for a repeated request, and the database never stores it in the clear', async () => {
    const again = { 'idempotency-key': 'k1' };
    const made = await make({}, again);
    const replayed = await make({}, again);
    expect(replayed.body).toBe(made.body);
    expect(replayed.headers['idempotent-replayed']).toBe('true');
    const key = String(made.json['key']);
    const stored = await api.world.db.read.all(
      z.object({ body: text.nullable() }),
      sql`select body from idempotency_keys`,
    );
    expect(stored).toHaveLength(1);
    expect(stored[0]?.body).toMatch(/^[\w-]{100,}$/);
    expect(JSON.stringify(stored)).not.toContain(key.slice(15));
    const keys = await api.world.db.read.all(z.object({ key_hash: text }), sql`select key_hash from api_keys`);
    expect(JSON.stringify(keys)).not.toContain(key.slice(15));
  });

  // Specification 5: Keys are made by others within their rights.
  test('a key cannot give a scope that it lacks', async () => {
    const refused = await make({ scopes: ['instances: read', 'instances: write'] });
    expect(refused.status).toBe(403);
    expect(refused.json).toMatchObject({ code: 'insufficient_scope', required_scope: 'instances: write' });
    expect((await make({ scopes: ['full_access'] })).json).toMatchObject({ required_scope: 'serverless:read' });
    expect((await api.call('GET', '/v1/api-keys', { key: owner.key })).json['data']).toHaveLength(1);
  });

  test('a key expires no later than its creator', async () => {
    const maker = String((await make({ scopes: ['api_keys: write'], expires_at: isoIn(60_000) })).json['key']);
    const scopes = ['api_keys: write'];
    expect((await make({ scopes }, {}, maker)).json['expires_at']).toBe(isoIn(60_000));
    expect((await make({ scopes, expires_at: isoIn(60_000) }, {}, maker)).status).toBe(201);
    const longer = await make({ scopes, expires_at: isoIn(60_001) }, {}, maker);
    expect(longer.status).toBe(422);
    expect(longer.json.errors).toMatchObject([
      { field: 'expires_at', rule: expect.stringContaining('must not be after') },
    ]);
  });

  test('expires on time', async () => {
    const key = String((await make({ expires_at: isoIn(1000) })).json['key']);
    await api.world.clock.advance(999);
    expect((await api.call('GET', '/v1/instances', { key })).status).toBe(200);
    await api.world.clock.advance(1);
    expect((await api.call('GET', '/v1/instances', { key })).status).toBe(401);
  });

  test.each([
    ['no name', { name: undefined }, 'name'],
    ['an empty name', { name: '' }, 'name'],
    ['a name that is too long', { name: 'x'.repeat(256) }, 'name'],
    ['a name of two lines', { name: 'a\nb' }, 'name'],
    ['no scopes', { scopes: undefined }, 'scopes'],
    ['an empty list of scopes', { scopes: [] }, 'scopes'],
    ['an unknown scope', { scopes: ['instances: read', 'instances: fly'] }, 'scopes[1]'],
    ['too many scopes', { scopes: Array<string>(65).fill('instances: read') }, 'scopes'],
    ['a time without a zone', { expires_at: '2030-01-01T00:00:00' }, 'expires_at'],
    ['a time that is over', { expires_at: '2020-01-01T00:00:00Z' }, 'expires_at'],
    ['an unknown field', { admin: true }, 'admin'],
  ])('%s is refused', async (_what, body, field) => {
    const refused = await make(body);
    expect(refused.status).toBe(422);
    expect(refused.json).toMatchObject({ code: 'validation_failed', errors: [{ field }] });
  });

  test('accepts the longest name and the earliest expiry after now', async () => {
    expect((await make({ name: 'x'.repeat(255) })).status).toBe(201);
    expect((await make({ expires_at: isoIn(0) })).status).toBe(422);
    expect((await make({ expires_at: isoIn(1) })).status).toBe(201);
  });

  test('stops at the limit; revoked and expired keys do not count', async () => {
    const { accounts } = api.world.rooms;
    const more = { orgId: owner.orgId, name: 'x', scopes: ['instances: read'], expiresMs: null };
    for (let i = 1; i < API_KEYS_PER_ORG_MAX - 1; i += 1) await accounts.createKey(more);
    const last = await make({});
    expect(last.status).toBe(201);
    const refused = await make({});
    expect(refused.status).toBe(409);
    expect(refused.json['detail']).toContain(String(API_KEYS_PER_ORG_MAX));
    await accounts.revokeKey(String(last.json['id']));
    expect((await make({ expires_at: isoIn(1000) })).status).toBe(201);
    await api.world.clock.advance(1000);
    expect((await make({})).status).toBe(201);
  });
});

describe('listing keys', () => {
  test('shows all of the organisation without their secret, newest first, page by page', async () => {
    const names = ['a', 'b', 'c'];
    for (const name of names) {
      await make({ name });
      await api.world.clock.advance(1);
    }
    const first = await api.call('GET', '/v1/api-keys?limit=3', { key: owner.key });
    const rest = await api.call('GET', `/v1/api-keys?limit=3&cursor=${first.json.next_cursor}`, {
      key: owner.key,
    });
    expect(first.json['data']).toMatchObject([{ name: 'c' }, { name: 'b' }, { name: 'a' }]);
    expect(rest.json).toMatchObject({ data: [{ name: 'first' }], next_cursor: null });
    expect(first.body).not.toContain('"key"');
    const stranger = await api.account(['api_keys: read']);
    expect((await api.call('GET', '/v1/api-keys', { key: stranger.key })).json['data']).toHaveLength(1);
  });
});

describe('revoking an API key', () => {
  // Specification 5: A revoked key is invalid.
  test('takes effect with the next request, and a second revocation is answered with 404', async () => {
    const made = await make({});
    const [key, id] = [String(made.json['key']), String(made.json['id'])];
    expect((await api.call('GET', '/v1/instances', { key })).status).toBe(200);
    expect(await api.call('DELETE', `/v1/api-keys/${id}`, { key: owner.key })).toMatchObject({ status: 204, body: '' });
    const refused = await api.call('GET', '/v1/instances', { key });
    expect(refused.status).toBe(401);
    expect(refused.json['detail']).toContain('revoked');
    const gone = await api.call('DELETE', `/v1/api-keys/${id}`, { key: owner.key });
    expect(gone).toMatchObject({ status: 404, json: { code: 'not_found' } });
    const { json } = await api.call('GET', '/v1/api-keys', { key: owner.key });
    expect(json['data']).toContainEqual(expect.objectContaining({ id, revoked_at: isoIn(0) }));
  });

  test('works for the key itself, and not for a key of another organisation', async () => {
    const stranger = await api.account();
    const foreign = await api.call('DELETE', `/v1/api-keys/${owner.principalId}`, { key: stranger.key });
    expect(foreign.status).toBe(404);
    expect((await api.call('DELETE', `/v1/api-keys/${owner.principalId}`, { key: owner.key })).status).toBe(204);
    expect((await api.call('GET', '/v1/api-keys', { key: owner.key })).status).toBe(401);
  });
});
