// SSH keys through the API on a real database: register, list, delete, duplicates, limits, and the functions for other rooms.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Present, sshKeyRoutes } from '../../../../control-plane/base/accounts/routes.ts';
import { type Accounts } from '../../../../control-plane/base/accounts/accounts.ts';
import { openSshKeys, type SshKeys } from '../../../../control-plane/base/accounts/ssh-keys.ts';
import type { Db } from '../../../../control-plane/base/db/db.ts';
import { openCursors } from '../../../../control-plane/base/http/cursors.ts';
import { openMetrics } from '../../../../control-plane/base/http/metrics.ts';
import { type Http, openHttp } from '../../../../control-plane/base/http/server.ts';
import type { WireReply } from '../../../../control-plane/base/http/route.ts';
import { type Clock, systemClock } from '../../../../shared/clock.ts';
import { createIds } from '../../../../shared/ids.ts';
import { SSH_KEYS_PER_ORG_MAX } from '../../../../shared/limits.ts';
import { createLog } from '../../../../shared/log.ts';
import { systemRng } from '../../../../shared/rng.ts';
import { openAccountsAlone } from '../../../kit/accounts.ts';
import { openTestDb } from '../../../kit/databases.ts';
import { KEYS } from './ssh-key-samples.ts';

const directory = (room: string) => new URL(`../../../../control-plane/${room}/migrations/`, import.meta.url);
const ROOMS = ['base/http', 'base/events', 'base/accounts'].map((room) => ({ room, directory: directory(room) }));
/** Waiting takes real time; every key has its own time. */
let now = 1_700_000_000_000;
const clock: Clock = { ...systemClock(), now: () => now };
const ids = createIds(clock, systemRng());

let db: Db;
let http: Http;
let accounts: Accounts;
let sshKeys: SshKeys;
let token: string;
let orgId: string;
beforeEach(async () => {
  db = await openTestDb(ROOMS, clock);
  accounts = openAccountsAlone({ db, clock, ids });
  sshKeys = openSshKeys({ clock, ids });
  http = openHttp(
    {
      db,
      clock,
      ids,
      log: createLog('test', 'silent'),
      metrics: openMetrics(),
      authenticate: accounts.authenticate,
      ready: async () => [],
      hasRoom: () => true,
    },
    { epoch: () => 1, audience: 'public', baseUrl: 'https://x/v1', trustProxy: [], strictResponses: true },
  );
  const present: Present = async (_tx, caller) => caller;
  http.register(sshKeyRoutes({ db, sshKeys, cursors: openCursors(new Uint8Array(32)), present }));
  ({ token, orgId } = await openOrg());
});
afterEach(async () => {
  await http.close();
  await db.close();
});

async function openOrg(scopes = ['ssh_keys: read', 'ssh_keys: write']): Promise<{ token: string; orgId: string }> {
  const org = await accounts.createOrg('Acme');
  const { key } = await accounts.createKey({ orgId: org.id, name: 'ci', scopes, expiresMs: null });
  return { token: key, orgId: org.id };
}

const bearer = (key = token) => ({ authorization: `Bearer ${key}` });
const register = (payload: object, idempotencyKey: string = ids.secret(8)): Promise<WireReply> =>
  http.inject({
    method: 'POST',
    url: '/v1/ssh-keys',
    headers: { ...bearer(), 'idempotency-key': idempotencyKey },
    payload,
  });
const list = (query = '', key = token) =>
  http.inject({ method: 'GET', url: `/v1/ssh-keys${query}`, headers: bearer(key) });
const remove = (id: string, key = token) =>
  http.inject({ method: 'DELETE', url: `/v1/ssh-keys/${id}`, headers: bearer(key) });
const idOf = (reply: WireReply): string => (JSON.parse(reply.body) as { id: string }).id;
const madeUpKey = (i: number): string => {
  const blob = Buffer.concat([Buffer.from('\0\0\0\x0bssh-ed25519\0\0\0 '), Buffer.alloc(32, 1)]);
  blob.writeUInt32BE(i, blob.length - 4);
  return `ssh-ed25519 ${blob.toString('base64')}`;
};

describe('registering a key', () => {
  // Specification 2.5: An SSH key has id, name, fingerprint and created_at.
  // Specification 4.2: POST /v1/ssh-keys answers 201 with the SSH key.
  test('answers 201 with the fingerprint, and a repeat gets the same bytes', async () => {
    const first = await register({ name: 'laptop', public_key: KEYS.ed.line }, 'k');
    expect(first.status).toBe(201);
    expect(JSON.parse(first.body)).toEqual({
      id: expect.stringMatching(/^key_/),
      name: 'laptop',
      fingerprint: KEYS.ed.fingerprint,
      created_at: expect.stringMatching(/Z$/),
    });
    const again = await register({ name: 'laptop', public_key: KEYS.ed.line }, 'k');
    expect(again.body).toBe(first.body);
    expect(again.headers['idempotent-replayed']).toBe('true');
  });
  // Specification 4.2: POST /v1/ssh-keys requires Idempotency-Key.
  test('needs an Idempotency-Key', async () => {
    const payload = { name: 'x', public_key: KEYS.ed.line };
    const reply = await http.inject({ method: 'POST', url: '/v1/ssh-keys', headers: bearer(), payload });
    expect(reply.status).toBe(400);
    expect(reply.body).toContain('idempotency_key_required');
  });
  test('refuses the same key a second time and names it, whatever its comment is', async () => {
    await register({ name: 'laptop', public_key: KEYS.ed.line });
    const reply = await register({
      name: 'other',
      public_key: `${KEYS.ed.line.split(' ').slice(0, 2).join(' ')} else`,
    });
    expect(reply.status).toBe(409);
    expect(JSON.parse(reply.body)).toMatchObject({ code: 'conflict', detail: expect.stringContaining('laptop') });
  });
  test('of twenty equal requests succeeds exactly once', async () => {
    const replies = await Promise.all(
      Array.from({ length: 20 }, () => register({ name: 'laptop', public_key: KEYS.ed.line })),
    );
    const statuses = replies.map((reply) => reply.status).toSorted((a, b) => a - b);
    expect(statuses).toEqual([201, ...Array<number>(19).fill(409)]);
  });
  // Specification 4.2: Malformed keys are rejected with the field.
  test('refuses a bad key with the field and the reason, and leaves the Idempotency-Key free', async () => {
    const refused = await register({ name: 'x', public_key: 'ssh-dss AAAA' }, 'k');
    expect(refused.status).toBe(422);
    expect(JSON.parse(refused.body)).toMatchObject({
      code: 'validation_failed',
      errors: [{ field: 'public_key', rule: expect.stringContaining('DSA') }],
    });
    expect((await register({ name: 'x', public_key: KEYS.ed.line }, 'k')).status).toBe(201);
  });
  // Specification 4.2: name and public_key are required strings.
  test.each([
    ['no name', { public_key: KEYS.ed.line }, 'name'],
    ['a name that is no text', { name: 1, public_key: KEYS.ed.line }, 'name'],
    ['no key', { name: 'x' }, 'public_key'],
    ['a key that is no text', { name: 'x', public_key: [KEYS.ed.line] }, 'public_key'],
    ['an empty name', { name: '', public_key: KEYS.ed.line }, 'name'],
    ['a name that is too long', { name: 'x'.repeat(256), public_key: KEYS.ed.line }, 'name'],
    ['a name of two lines', { name: 'a\nb', public_key: KEYS.ed.line }, 'name'],
    ['a key that is far too long', { name: 'x', public_key: 'x'.repeat(8193) }, 'public_key'],
    ['an unknown field', { name: 'x', public_key: KEYS.ed.line, comment: 'y' }, 'comment'],
  ])('%s is refused', async (_what, payload, field) => {
    const reply = await register(payload);
    expect(reply.status).toBe(422);
    expect(JSON.parse(reply.body)).toMatchObject({ errors: [{ field }] });
  });
  test('accepts the longest name', async () => {
    expect((await register({ name: 'x'.repeat(255), public_key: KEYS.ed.line })).status).toBe(201);
  });
  test(`stops at ${SSH_KEYS_PER_ORG_MAX} keys`, async () => {
    await db.tx('fill', async (tx) => {
      for (let i = 1; i < SSH_KEYS_PER_ORG_MAX; i += 1) {
        await sshKeys.register(tx, orgId, { name: `k${i}`, publicKey: madeUpKey(i) });
      }
    });
    expect((await register({ name: 'last', public_key: KEYS.ed.line })).status).toBe(201);
    const reply = await register({ name: 'one more', public_key: KEYS.ec256.line });
    expect(reply.status).toBe(409);
    expect(await sshKeys.linesOf(db.read, orgId, null)).toHaveLength(SSH_KEYS_PER_ORG_MAX);
  });
});

describe('listing keys', () => {
  // Specification 4.2: GET /v1/ssh-keys is a page of SSH key, newest first.
  test('walks all pages newest first, and shows no other organisation', async () => {
    const registered: string[] = [];
    for (let i = 0; i < 5; i += 1) {
      registered.push(idOf(await register({ name: `k${i}`, public_key: madeUpKey(i) })));
      now += 1;
    }
    const seen: string[] = [];
    let query = '?limit=2';
    while (query !== '') {
      const page = JSON.parse((await list(query)).body) as { data: { id: string }[]; next_cursor: string | null };
      seen.push(...page.data.map((key) => key.id));
      query = page.next_cursor === null ? '' : `?limit=2&cursor=${page.next_cursor}`;
    }
    expect(seen).toEqual(registered.toReversed());
    const stranger = await openOrg();
    expect(JSON.parse((await list('', stranger.token)).body)).toEqual({ data: [], next_cursor: null });
  });
  // Specification 2.1: A cursor belongs to its organisation.
  test('refuses the cursor of another organisation and an invented one', async () => {
    await register({ name: 'a', public_key: madeUpKey(1) });
    await register({ name: 'b', public_key: madeUpKey(2) });
    const { next_cursor: cursor } = JSON.parse((await list('?limit=1')).body) as { next_cursor: string };
    const stranger = await openOrg();
    for (const reply of [await list(`?cursor=${cursor}`, stranger.token), await list('?cursor=abc')]) {
      expect(reply.status).toBe(422);
      expect(JSON.parse(reply.body)).toMatchObject({ errors: [{ field: 'cursor' }] });
    }
  });
  test.each(['limit=0', 'limit=201', 'limit=x', 'offset=1'])('%s is refused', async (query) => {
    expect((await list(`?${query}`)).status).toBe(422);
  });
  // Specification 4.2: GET /v1/ssh-keys takes a limit of 1 and of 200.
  test.each(['limit=1', 'limit=200'])('%s is accepted', async (query) => {
    expect((await list(`?${query}`)).status).toBe(200);
  });
});

describe('deleting a key', () => {
  // Specification 4.9: DELETE /v1/ssh-keys/{id} answers 204 without a body.
  test('answers 204, then 404', async () => {
    const id = idOf(await register({ name: 'a', public_key: KEYS.ed.line }));
    const stranger = await openOrg();
    expect((await remove(id, stranger.token)).status).toBe(404);
    expect(await remove(id)).toMatchObject({ status: 204, body: '' });
    expect((await remove(id)).status).toBe(404);
    expect((await register({ name: 'back', public_key: KEYS.ed.line })).status).toBe(201);
  });
});

test('reading and writing need two scopes', async () => {
  const reader = await openOrg(['ssh_keys: read']);
  expect((await list('', reader.token)).status).toBe(200);
  const reply = await remove('key_x', reader.token);
  expect(reply.status).toBe(403);
  expect(JSON.parse(reply.body)).toMatchObject({ code: 'insufficient_scope', required_scope: 'ssh_keys: write' });
});

describe('functions for other rooms', () => {
  const lineOf = ({ line }: { line: string }): string => line.split(' ').slice(0, 2).join(' ');

  test('return the keys that may log in', async () => {
    const a = idOf(await register({ name: 'a', public_key: KEYS.ed.line }));
    const b = idOf(await register({ name: 'b', public_key: KEYS.ec256.line }));
    const stranger = await openOrg();
    expect(await sshKeys.linesOf(db.read, orgId, null)).toEqual([lineOf(KEYS.ed), lineOf(KEYS.ec256)]);
    expect(await sshKeys.linesOf(db.read, orgId, [b, 'key_gone'])).toEqual([lineOf(KEYS.ec256)]);
    expect(await sshKeys.linesOf(db.read, orgId, [])).toEqual([]);
    expect(await sshKeys.linesOf(db.read, stranger.orgId, [a])).toEqual([]);
  });
  test('check that ids belong to the organisation', async () => {
    const a = idOf(await register({ name: 'a', public_key: KEYS.ed.line }));
    const stranger = await openOrg();
    const check = (of: string, keyIds: string[]) => db.tx('check', (tx) => sshKeys.assertKeysOfOrg(tx, of, keyIds));
    await check(orgId, []);
    await check(orgId, [a, a]);
    await expect(check(stranger.orgId, [a])).rejects.toMatchObject({ code: 'ssh_keys/org_mismatch' });
    await expect(check(orgId, [a, 'key_nothing'])).rejects.toMatchObject({
      code: 'validation_failed',
      details: { errors: [{ field: 'ssh_key_ids[1]' }] },
    });
  });
});
