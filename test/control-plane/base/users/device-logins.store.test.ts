// Device logins (RFC 8628): the key comes once, to the program that began, after a confirmed person has approved exactly this login.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { text } from '../../../../control-plane/base/db/columns.ts';
import { sql } from '../../../../control-plane/base/db/db.ts';
import { scopeTexts } from '../../../../control-plane/base/http/scopes.ts';
import { insertMember } from '../../../../control-plane/base/users/store.ts';
import { USER_CODE_LETTERS } from '../../../../shared/api/device-login.ts';
import { type Answer, type Api, type ApiAccount, openApi } from '../../../contract/api.ts';
import { addPerson, type Person, tokenIn } from '../../../kit/people.ts';

const SECONDS = 1_000;

let api: Api;
let owner: ApiAccount;
let ada: Person;
beforeEach(async () => {
  api = await openApi();
  owner = await api.account();
  ada = await addPerson(api.world, { orgId: owner.orgId, role: 'member' });
});
afterEach(() => api.close());

interface Codes {
  device_code: string;
  user_code: string;
}
const begin = async (scopes = ['instances: read']): Promise<Codes> =>
  (await api.call('POST', '/v1/auth/device', { body: { host: 'laptop', scopes } })).json as unknown as Codes;
const redeem = ({ device_code: code }: Codes): Promise<Answer> =>
  api.call('POST', '/v1/auth/device/token', { body: { device_code: code } });
const act = (verb: 'approve' | 'deny', { user_code: code }: Codes, as = ada): Promise<Answer> =>
  api.call('POST', `/v1/auth/device/${code}/${verb}`, { as });
const show = ({ user_code: code }: Codes, as = ada): Promise<Answer> =>
  api.call('GET', `/v1/auth/device/${code}`, { as });
const refusal = async (codes: Codes): Promise<unknown> => {
  const { status, json } = await redeem(codes);
  return status === 400 ? json['error'] : status;
};

describe('a login', () => {
  test('begins with a code that people can read, and one that nobody can guess', async () => {
    const { json, headers } = await api.call('POST', '/v1/auth/device', {
      body: { host: 'x', scopes: ['full_access'] },
    });
    expect(json['user_code']).toMatch(new RegExp(`^[${USER_CODE_LETTERS}]{4}-[${USER_CODE_LETTERS}]{4}$`));
    expect(USER_CODE_LETTERS).toMatch(/^[^AEIOUY]{20}$/);
    expect(Buffer.from(String(json['device_code']), 'base64url')).toHaveLength(32);
    expect(json).toMatchObject({
      verification_uri: 'https://api.example.com/device',
      verification_uri_complete: `https://api.example.com/device#${String(json['user_code'])}`,
      expires_in: 600,
      interval: 5,
    });
    expect(headers['cache-control']).toBe('no-store');
  });

  test('gives a key that is named after the machine, has the scopes, and lives 90 days', async () => {
    const codes = await begin();
    expect(await refusal(codes)).toBe('authorization_pending');
    expect((await show(codes)).json).toMatchObject({
      host: 'laptop',
      client_ip: '127.0.0.1',
      scopes: ['instances: read'],
      org: { id: owner.orgId, name: 'customer' },
    });
    expect((await act('approve', codes)).status).toBe(204);
    const { status, json } = await redeem(codes);
    expect(status).toBe(200);
    expect(json).toMatchObject({
      access_token: expect.stringMatching(/^svc_live_[\w-]{43}$/),
      token_type: 'Bearer',
      expires_in: 90 * 86_400,
      scope: 'instances: read',
      api_key: { name: 'cli@laptop', org_id: owner.orgId },
    });
    const key = String(json['access_token']);
    expect((await api.call('GET', '/v1/instances', { key })).status).toBe(200);
    expect((await api.call('GET', '/v1/ssh-keys', { key })).status).toBe(403);
    const { id } = json['api_key'] as { id: string };
    expect(await api.world.journal(id)).toEqual(['api_key.created']);
  });

  test('gives the key once, and nothing that could be read again is stored', async () => {
    const codes = await begin();
    await act('approve', codes);
    const { json } = await redeem(codes);
    expect(await refusal(codes)).toBe('expired_token');
    const again = await begin();
    const stored = JSON.stringify(
      await api.world.db.read.all(
        z.object({ device_hash: text, user_code_hash: text }),
        sql`select device_hash, user_code_hash from device_logins`,
      ),
    );
    for (const secret of [again.device_code, again.user_code, String(json['access_token'])])
      expect(stored).not.toContain(secret);
  });

  test('can be denied, and ends after ten minutes', async () => {
    const denied = await begin();
    expect((await act('deny', denied)).status).toBe(204);
    expect(await refusal(denied)).toBe('access_denied');
    const late = await begin();
    await api.world.clock.advance(600 * SECONDS - 1);
    expect((await show(late)).status).toBe(200);
    await api.world.clock.advance(1);
    expect((await show(late)).status).toBe(404);
    expect((await act('approve', late)).status).toBe(403);
    expect(await refusal(late)).toBe('expired_token');
  });

  test('tells a program that asks too often to slow down, by five seconds each time', async () => {
    const codes = await begin();
    expect(await refusal(codes)).toBe('authorization_pending');
    await api.world.clock.advance(5 * SECONDS - 1);
    expect(await refusal(codes)).toBe('slow_down');
    await api.world.clock.advance(10 * SECONDS - 1);
    expect(await refusal(codes)).toBe('slow_down');
    await api.world.clock.advance(15 * SECONDS);
    expect(await refusal(codes)).toBe('authorization_pending');
  });

  test('takes codes in any spelling', async () => {
    const codes = await begin();
    const spelled = codes.user_code.toLowerCase().replace('-', '');
    expect((await show({ ...codes, user_code: spelled })).status).toBe(200);
  });
});

describe('an attacker', () => {
  // A known attack: the link with the code filled in completes the login by itself, and whoever polls reads the token as often as it likes.
  test('gets nothing by making a person open a link with the code filled in', async () => {
    const codes = await begin();
    expect((await show(codes)).status).toBe(200);
    expect((await show(codes)).status).toBe(200);
    expect(await refusal(codes)).toBe('authorization_pending');
    expect((await api.call('GET', `/v1/auth/device/${codes.user_code}/approve`, { as: ada })).status).toBe(405);
  });

  // A known attack: another site sends the approval for the attacker's code with the cookie of the person.
  test('cannot approve with the cookie of a person from another page', async () => {
    const codes = await begin();
    const cookie = `__Host-svc_session=${ada.token}`;
    for (const headers of [{ cookie }, { cookie, origin: 'https://evil.example' }, { cookie, origin: 'null' }]) {
      const answer = await api.call('POST', `/v1/auth/device/${codes.user_code}/approve`, { headers });
      expect(answer).toMatchObject({ status: 403, json: { code: 'origin_refused' } });
    }
    expect(await refusal(codes)).toBe('authorization_pending');
  });

  test('cannot approve with an API key, or with a session that was not confirmed lately', async () => {
    const codes = await begin();
    const byKey = await api.call('POST', `/v1/auth/device/${codes.user_code}/approve`, { key: owner.key });
    expect(byKey).toMatchObject({ status: 403, json: { code: 'session_required' } });
    await api.world.clock.advance(500 * SECONDS);
    const fresh = await begin();
    await api.world.clock.advance(100 * SECONDS);
    expect(await act('approve', fresh)).toMatchObject({ status: 403, json: { code: 'step_up_required' } });
  });

  test('who has stolen the code of the program gets no key before the approval, and one of them gets it after', async () => {
    const codes = await begin();
    expect(await refusal(codes)).toBe('authorization_pending');
    await act('approve', codes);
    const answers = await Promise.all([redeem(codes), redeem(codes)]);
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 400]);
    expect(await refusal({ ...codes, device_code: api.ids.secret(32) })).toBe('expired_token');
  });

  test('cannot make a person decide twice', async () => {
    const codes = await begin();
    await act('deny', codes);
    expect((await act('approve', codes)).status).toBe(404);
    expect(await refusal(codes)).toBe('access_denied');
  });

  test('cannot fill the table from one address', async () => {
    for (let i = 0; i < 20; i += 1) await begin();
    const refused = await api.call('POST', '/v1/auth/device', { body: { host: 'x', scopes: ['full_access'] } });
    expect(refused).toMatchObject({ status: 429, headers: { 'retry-after': '600' } });
    await api.world.clock.advance(600 * SECONDS);
    expect((await begin()).user_code).toBeDefined();
  });

  test('has room for twenty logins, and a decision about one makes room for one', async () => {
    const open: Codes[] = [];
    for (let n = 0; n < 20; n += 1) open.push(await begin());
    expect(open.filter(({ user_code: code }) => code === undefined)).toEqual([]);
    for (const [i, verb] of (['deny', 'approve'] as const).entries()) {
      expect((await begin()).user_code).toBeUndefined();
      expect((await act(verb, open[i] as Codes)).status).toBe(204);
      expect((await begin()).user_code).toBeDefined();
    }
  });
});

describe('the scopes', () => {
  test('are never above those of the person', async () => {
    const codes = await begin(['members: write']);
    const none = await addPerson(api.world, { orgId: owner.orgId, role: 'billing' });
    expect(await act('approve', await begin(['instances: write', 'files: write']), none)).toMatchObject({
      status: 403,
      json: { code: 'insufficient_scope', required_scope: 'instances: write' },
    });
    expect(await act('approve', codes)).toMatchObject({
      status: 403,
      json: { code: 'insufficient_scope', required_scope: 'members: write' },
    });
    expect(await refusal(codes)).toBe('authorization_pending');
    expect((await show(codes)).json).toMatchObject({ scopes: [], withheld_scopes: ['members: write'] });
    const unknown = await api.call('POST', '/v1/auth/device', { body: { host: 'x', scopes: ['instances: fly'] } });
    expect(unknown).toMatchObject({ status: 422, json: { errors: [{ field: 'scopes[0]' }] } });
  });

  test('are those of the person among what the program asks for', async () => {
    const eve = await addPerson(api.world, { orgId: owner.orgId, role: 'billing' });
    const codes = await begin(['instances: write', 'full_access', 'deposits: write']);
    expect((await show(codes, eve)).json).toMatchObject({
      scopes: ['billing: read', 'deposits: write'],
      withheld_scopes: ['instances: write', 'serverless:read', 'serverless:write'],
    });
    expect((await show(codes)).json).toMatchObject({
      scopes: ['instances: write', 'full_access', 'deposits: write'],
      withheld_scopes: [],
    });
    expect((await act('approve', codes, eve)).status).toBe(204);
    const { json } = await redeem(codes);
    expect(json).toMatchObject({ scope: 'billing: read, deposits: write' });
    const key = String(json['access_token']);
    expect((await api.call('GET', '/v1/balance', { key })).status).toBe(200);
    expect((await api.call('GET', '/v1/instances', { key })).status).toBe(403);
  });

  test('count when the key is made: a person who was removed meanwhile gives none', async () => {
    const codes = await begin();
    await act('approve', codes);
    await api.call('DELETE', `/v1/members/${ada.userId}`, { key: owner.key });
    expect(await refusal(codes)).toBe('access_denied');
    expect(await refusal(codes)).toBe('expired_token');
  });

  test('end with the rights of the person, while keys of the organisation stay', async () => {
    const codes = await begin(['instances: write']);
    await act('approve', codes);
    const key = String((await redeem(codes)).json['access_token']);
    const status = async (): Promise<number> => (await api.call('DELETE', '/v1/instances/x', { key })).status;
    expect(await status()).toBe(404);
    const body = { role: 'read-only' };
    expect((await api.call('PATCH', `/v1/members/${ada.userId}`, { key: owner.key, body })).status).toBe(200);
    expect(await status()).toBe(401);
    expect((await api.call('GET', '/v1/instances', { key: owner.key })).status).toBe(200);
  });
});

test('refusals for programs have the form of OAuth, also those of the body', async () => {
  const answer = await api.call('POST', '/v1/auth/device/token', { body: {} });
  expect(answer.status).toBe(422);
  expect(answer.json).toEqual({
    error: 'validation_failed',
    error_description: expect.stringContaining('device_code'),
  });
});

test('an invitation that was made with the key of a login ends with the membership of its person', async () => {
  const [eve, boss] = [
    await addPerson(api.world, { orgId: owner.orgId, role: 'owner' }),
    await addPerson(api.world, { orgId: owner.orgId, role: 'owner' }),
  ];
  const codes = await begin(scopeTexts().filter((text) => text !== 'full_access'));
  await act('approve', codes, eve);
  const key = String((await redeem(codes)).json['access_token']);
  const made = await api.call('POST', '/v1/invitations', { key, body: { role: 'owner' } });
  expect(made.status).toBe(201);
  expect((await api.call('DELETE', `/v1/members/${eve.userId}`, { as: boss })).status).toBe(204);
  expect((await api.call('GET', '/v1/invitations', { as: boss })).json.data).toEqual([]);
});

describe('somebody who had the session of a person', () => {
  const keyOf = async (codes: Codes): Promise<string> => String((await redeem(codes)).json['access_token']);
  const status = async (key: string): Promise<number> => (await api.call('GET', '/v1/instances', { key })).status;
  const recover = async (): Promise<Person> => {
    const { url } = await api.world.rooms.users.people.reset(ada.userId);
    const body = { token: url.split('#')[1], password: 'a quite new password' };
    const used = await api.call('POST', '/v1/auth/link', { body });
    expect(used.status).toBe(201);
    return { ...ada, token: tokenIn(used) ?? '' };
  };

  test('loses the keys of its programs when the person uses a link of the operator', async () => {
    const [first, other] = [await begin(), await begin()];
    const second = await api.account();
    await api.world.db.tx('test.join', (tx) =>
      insertMember(tx, { org_id: second.orgId, user_id: ada.userId, role: 'member', created_ms: 1 }),
    );
    await act('approve', first);
    const switched = await api.call('POST', '/v1/auth/session/org', { as: ada, body: { org_id: second.orgId } });
    await act('approve', other, { ...ada, token: tokenIn(switched) ?? '' });
    const answer = await redeem(first);
    const keys = [String(answer.json['access_token']), await keyOf(other)];
    const eve = await addPerson(api.world, { orgId: owner.orgId, role: 'member' });
    const theirs = await begin();
    await act('approve', theirs, eve);
    const kept = await keyOf(theirs);
    expect([...(await Promise.all(keys.map(status))), await status(kept)]).toEqual([200, 200, 200]);
    await recover();
    expect([...(await Promise.all(keys.map(status))), await status(kept), await status(owner.key)]).toEqual([
      401, 401, 200, 200,
    ]);
    const { id } = answer.json['api_key'] as { id: string };
    expect(await api.world.journal(id)).toEqual(['api_key.created', 'api_key.revoked']);
  });

  test('gets no key after the recovery for a login that it approved before, and the person gets one', async () => {
    const codes = await begin();
    await act('approve', codes);
    const back = await recover();
    expect(await refusal(codes)).toBe('access_denied');
    expect(await refusal(codes)).toBe('expired_token');
    const own = await begin();
    expect((await act('approve', own, back)).status).toBe(204);
    expect((await redeem(own)).status).toBe(200);
  });

  test('brings nobody in after the recovery with an invitation that it has made', async () => {
    const eve = await addPerson(api.world, { orgId: owner.orgId, role: 'owner' });
    const invite = (as: Person) => api.call('POST', '/v1/invitations', { as, body: { role: 'owner' } });
    const boss = await addPerson(api.world, { orgId: owner.orgId, role: 'owner' });
    const [theirs, others] = [await invite(eve), await invite(boss)];
    const { url } = await api.world.rooms.users.people.reset(eve.userId);
    const used = await api.call('POST', '/v1/auth/link', {
      body: { token: url.split('#')[1], password: 'a quite new password' },
    });
    expect(used.status).toBe(201);
    const accept = async ({ json }: Answer, email: string): Promise<number> => {
      const body = { token: String(json['url']).split('#')[1], email, name: 'Bob', password: 'correct horse battery' };
      return (await api.call('POST', '/v1/invitations/accept', { body })).status;
    };
    expect(await accept(theirs, 'thief@example.com')).toBe(404);
    expect(await accept(others, 'bob@example.com')).toBe(201);
    expect(await api.world.journal(String(theirs.json['id']))).toEqual(['invitation.created', 'invitation.revoked']);
  });

  test('gets no key once the person has ended that session', async () => {
    const codes = await begin();
    await act('approve', codes);
    expect(await api.world.rooms.users.sessions.end(ada.userId, ada.sessionId)).toBe(true);
    expect(await refusal(codes)).toBe('access_denied');
  });

  test('keeps no key that it has made with the key of a login', async () => {
    const codes = await begin(['api_keys: write', 'instances: read']);
    await act('approve', codes);
    const make = async (key: string): Promise<string> => {
      const body = { name: 'child', scopes: ['api_keys: write', 'instances: read'] };
      return String((await api.call('POST', '/v1/api-keys', { key, body })).json['key']);
    };
    const parent = await keyOf(codes);
    const child = await make(parent);
    const all = [parent, child, await make(child)];
    const ofOrg = await make(owner.key);
    expect(await Promise.all(all.map(status))).toEqual([200, 200, 200]);
    expect((await api.call('DELETE', `/v1/members/${ada.userId}`, { key: owner.key })).status).toBe(204);
    expect(await Promise.all([...all, ofOrg].map(status))).toEqual([401, 401, 401, 200]);
  });
});

test('a person may go on in another organisation while the program still asks', async () => {
  const second = await api.account();
  await api.world.db.tx('test.join', (tx) =>
    insertMember(tx, { org_id: second.orgId, user_id: ada.userId, role: 'member', created_ms: 1 }),
  );
  const codes = await begin();
  await act('approve', codes);
  const switched = await api.call('POST', '/v1/auth/session/org', { as: ada, body: { org_id: second.orgId } });
  expect(switched.status).toBe(200);
  expect(await redeem(codes)).toMatchObject({ status: 200, json: { api_key: { org_id: owner.orgId } } });
});
