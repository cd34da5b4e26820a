// Sessions as principals: how long they live, what ends them, what a browser may send with them, and what an organisation may not do.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { deleteMember, insertMember } from '../../../../control-plane/base/users/store.ts';
import { funding, wallet } from '../../../../control-plane/money/ledger/accounts.ts';
import { type Answer, type Api, type ApiAccount, openApi } from '../../../contract/api.ts';
import { openFakeUpstream } from '../../../kit/fake-upstream.ts';
import { someModels } from '../../../kit/models.ts';
import { addPerson, cookieOf, type Person, tokenIn } from '../../../kit/people.ts';
import { LAUNCH } from '../../../kit/world.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const PASSWORD = 'correct horse battery';

let api: Api;
let account: ApiAccount;
let ada: Person;
beforeEach(async () => {
  api = await openApi();
  account = await api.account();
  ada = await addPerson(api.world, { orgId: account.orgId, role: 'owner' });
});
afterEach(() => api.close());

const get = (path: string, as = ada): Promise<Answer> => api.call('GET', path, { as });
const isAlive = async (as = ada): Promise<boolean> => (await get('/v1/auth/session', as)).status === 200;

describe('a session', () => {
  test('ends after twelve hours without a request', async () => {
    await api.world.clock.advance(12 * HOUR_MS - 1);
    expect(await isAlive()).toBe(true);
    await api.world.clock.advance(12 * HOUR_MS);
    expect(await get('/v1/instances')).toMatchObject({ status: 401, json: { code: 'unauthorized' } });
  });

  test('ends after thirty days, however busy it is', async () => {
    for (let hour = 0; hour < 30 * 24 - 10; hour += 10) {
      await api.world.clock.advance(10 * HOUR_MS);
      expect(await isAlive()).toBe(true);
    }
    await api.world.clock.advance(10 * HOUR_MS);
    expect(await isAlive()).toBe(false);
  });

  test('writes its last use once a minute, not with each request', async () => {
    const lastUsed = async (): Promise<unknown> => (await get('/v1/auth/sessions')).json.data?.[0]?.['last_used_at'];
    const first = await lastUsed();
    await api.world.clock.advance(59_999);
    expect(await lastUsed()).toBe(first);
    await api.world.clock.advance(1);
    expect(await lastUsed()).not.toBe(first);
  });

  test('is listed and ended by its person alone', async () => {
    const { rooms, core } = api.world;
    const visitor = { clientIp: '198.51.100.9', userAgent: 'phone', sessionToken: undefined };
    const phone = await core.db.tx('test.phone', (tx) =>
      rooms.users.sessions.begin(tx, { userId: ada.userId, visitor, isStrong: false, method: 'password' }),
    );
    const { data } = (await get('/v1/auth/sessions')).json;
    expect(data).toMatchObject([
      { id: phone.id, client_ip: '198.51.100.9', user_agent: 'phone', is_current: false },
      { id: ada.sessionId, is_current: true },
    ]);
    const eve = await addPerson(api.world, { orgId: account.orgId, role: 'owner' });
    expect((await api.call('DELETE', `/v1/auth/sessions/${phone.id}`, { as: eve })).status).toBe(404);
    expect((await api.call('DELETE', `/v1/auth/sessions/${phone.id}`, { as: ada })).status).toBe(204);
    expect(await isAlive({ ...ada, token: phone.token })).toBe(false);
  });

  test('ends with a sign-out, and the browser forgets it', async () => {
    const answer = await api.call('POST', '/v1/auth/sign-out', { as: ada });
    expect(answer.status).toBe(204);
    expect(answer.headers['set-cookie']).toMatch(/^__Host-svc_session=; .*Max-Age=0$/);
    expect(await isAlive()).toBe(false);
  });

  test('is one of fifty at most: the oldest ends', async () => {
    const { rooms, core } = api.world;
    const visitor = { clientIp: '198.51.100.9', userAgent: '', sessionToken: undefined };
    for (let i = 0; i < 50; i += 1) {
      await api.world.clock.advance(1);
      await core.db.tx('test.more', (tx) =>
        rooms.users.sessions.begin(tx, { userId: ada.userId, visitor, isStrong: false, method: 'password' }),
      );
    }
    expect(await isAlive()).toBe(false);
  });

  test('switches to another organisation of the person under another id, and to no other', async () => {
    const other = await api.account();
    const refused = await api.call('POST', '/v1/auth/session/org', { as: ada, body: { org_id: other.orgId } });
    expect(refused.status).toBe(404);
    const invited = await api.call('POST', '/v1/invitations', { key: other.key, body: { role: 'billing' } });
    const token = String(invited.json['url']).split('#')[1];
    const joined = await api.call('POST', '/v1/invitations/join', { as: ada, body: { token } });
    expect(joined.json).toMatchObject({ org: { id: other.orgId, role: 'billing' } });
    expect(joined.json['id']).not.toBe(ada.sessionId);
    expect(joined.json['orgs']).toHaveLength(2);
    expect(await isAlive()).toBe(false);
    const back = { ...ada, token: tokenIn(joined) ?? '' };
    const switched = await api.call('POST', '/v1/auth/session/org', { as: back, body: { org_id: account.orgId } });
    expect(switched.json).toMatchObject({ org: { id: account.orgId, role: 'owner' } });
  });

  test('begins in the organisation that the person chose last, as long as the person is a member there', async () => {
    const { rooms, core, db } = api.world;
    const newest = await api.account();
    await api.world.clock.advance(1);
    await core.db.tx('test.join', (tx) =>
      insertMember(tx, {
        org_id: newest.orgId,
        user_id: ada.userId,
        role: 'member',
        created_ms: api.world.clock.now(),
      }),
    );
    const visitor = { clientIp: '198.51.100.9', userAgent: 'phone', sessionToken: undefined };
    const orgOfNext = async (): Promise<unknown> => {
      const next = await core.db.tx('test.sign_in', (tx) =>
        rooms.users.sessions.begin(tx, { userId: ada.userId, visitor, isStrong: false, method: 'password' }),
      );
      return (await rooms.users.sessions.show(next.id)).org?.id;
    };
    expect(await orgOfNext()).toBe(account.orgId);
    const switched = await api.call('POST', '/v1/auth/session/org', { as: ada, body: { org_id: newest.orgId } });
    expect(switched.status).toBe(200);
    expect(await orgOfNext()).toBe(newest.orgId);
    await db.tx('test.leave', (tx) => deleteMember(tx, newest.orgId, ada.userId));
    expect(await orgOfNext()).toBe(account.orgId);
  });

  test('launches like a key: its operation and its replay belong to it alone', async () => {
    await api.world.machine();
    const headers = { 'idempotency-key': 'l1' };
    const launched = await api.call('POST', '/v1/instances', { as: ada, headers, body: LAUNCH });
    expect(launched.status).toBe(202);
    const replayed = await api.call('POST', '/v1/instances', { as: ada, headers, body: LAUNCH });
    expect(replayed.headers['idempotent-replayed']).toBe('true');
    const url = `/v1/operations/${String(launched.json['operation_id'])}`;
    expect((await get(url)).status).toBe(200);
    expect((await api.call('GET', url, { key: account.key })).status).toBe(404);
    const bob = await addPerson(api.world, { orgId: account.orgId, role: 'owner' });
    expect((await get(url, bob)).status).toBe(404);
  });

  test('calls models, and the receipt names it', async () => {
    const upstream = await openFakeUpstream();
    const served = await openApi({ settings: { models: someModels(upstream.baseUrl) } });
    const { orgId } = await served.account();
    const as = await addPerson(served.world, { orgId, role: 'member' });
    const body = { model: 'small', messages: [{ role: 'user', content: 'hi' }] };
    expect((await served.call('POST', '/v1/chat/completions', { as, body })).status).toBe(200);
    const { data } = (await served.call('GET', '/v1/receipts', { as })).json;
    expect(data).toMatchObject([{ api_key_id: as.sessionId, state: 'settled' }]);
    await served.call('POST', '/v1/auth/sign-out', { as });
    expect((await served.call('POST', '/v1/chat/completions', { as, body })).status).toBe(401);
    await served.close();
    await upstream.close();
  });

  test('makes API keys with at most its own scopes', async () => {
    const member = await addPerson(api.world, { orgId: account.orgId, role: 'member' });
    const make = (scope: string): Promise<Answer> =>
      api.call('POST', '/v1/api-keys', { as: member, body: { name: 'ci', scopes: [scope] } });
    expect((await make('instances: write')).status).toBe(201);
    expect(await make('members: write')).toMatchObject({ status: 403, json: { code: 'insufficient_scope' } });
  });
});

describe('a browser', () => {
  const rename = (headers: Record<string, string>, body = '{"name":"x"}'): Promise<Answer> =>
    api.call('PATCH', '/v1/instances/x', { headers, form: { type: 'application/json', text: body } });

  test('may change something from our own page only', async () => {
    const { cookie = '', origin = '' } = cookieOf(ada);
    expect((await rename({ cookie, origin })).status).toBe(404);
    for (const wrong of [{}, { origin: 'https://evil.example' }, { origin: 'null' }, { origin: `${origin}:444` }]) {
      expect(await rename({ cookie, ...wrong })).toMatchObject({ status: 403, json: { code: 'origin_refused' } });
    }
    expect((await api.call('GET', '/v1/instances', { headers: { cookie } })).status).toBe(200);
  });

  test('sends JSON: a form of another site cannot', async () => {
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x']) {
      const form = { type, text: '{"name":"x"}' };
      const answer = await api.call('PATCH', '/v1/instances/x', { headers: cookieOf(ada), form });
      expect(answer).toMatchObject({ status: 415, json: { code: 'unsupported_media_type' } });
    }
    // This route takes forms of programs.
    const form = { type: 'multipart/form-data; boundary=x', text: '--x--\r\n' };
    const video = await api.call('POST', '/v1/videos', { headers: cookieOf(ada), form });
    expect(video.status).toBe(415);
    expect((await api.call('POST', '/v1/videos', { key: account.key, form })).status).not.toBe(415);
  });

  test('may sign in from our own page only, so nobody is signed in as somebody else', async () => {
    const body = { email: 'a@example.com', password: 'wrong' };
    const from = (origin: string): Promise<Answer> =>
      api.call('POST', '/v1/auth/sign-in', { headers: { origin }, body });
    expect(await from('https://evil.example')).toMatchObject({ status: 403, json: { code: 'origin_refused' } });
    expect((await from('https://api.example.com')).status).toBe(401);
  });

  test('that sends a key too acts with the key', async () => {
    const { key } = await api.account(['billing: read']);
    const answer = await api.call('GET', '/v1/instances', { key, headers: cookieOf(ada) });
    expect(answer).toMatchObject({ status: 403, json: { code: 'insufficient_scope' } });
  });

  test('with a cookie of another name or form is not signed in', async () => {
    for (const cookie of [`svc_session=${ada.token}`, `__Host-svc_session=x`, `__Host-svc_session=${ada.token}.x`])
      expect((await api.call('GET', '/v1/auth/session', { headers: { cookie } })).status).toBe(401);
  });
});

describe('an organisation that came by sign-up', () => {
  test('may read, and change nothing before money has come for the first time', async () => {
    const body = { email: 'new@example.com', name: 'New', password: PASSWORD, org_name: 'New' };
    const signedUp = await api.call('POST', '/v1/auth/sign-up', { body });
    const { org } = signedUp.json as { org: { id: string } };
    const bea = { ...ada, token: tokenIn(signedUp) ?? '' };
    const launch = (): Promise<Answer> => api.call('POST', '/v1/instances', { as: bea, body: LAUNCH });
    const key = { name: 'x', scopes: ['instances: read'] };
    for (const path of ['/v1/instances', '/v1/balance', '/v1/members']) expect((await get(path, bea)).status).toBe(200);
    const writes: [string, object][] = [
      ['/v1/instances', LAUNCH],
      ['/v1/api-keys', key],
      ['/v1/invitations', { role: 'member' }],
    ];
    for (const [path, sent] of writes) {
      const refused = await api.call('POST', path, { as: bea, body: sent });
      expect(refused).toMatchObject({ status: 403, json: { code: 'org_unfunded' } });
    }
    await api.world.machine();
    const fund = { debit: funding, credit: wallet(org.id), kind: 'funding.manual', subjectId: org.id, effectiveMs: 1 };
    await api.world.db.tx('test.fund', (tx) =>
      api.world.rooms.ledger.post(tx, 'f', [{ ...fund, id: 'f', amountUcents: 10n ** 11n }]),
    );
    expect((await launch()).status).toBe(202);
    // It stays open when the money is gone: then the balance itself refuses.
    expect(await api.world.rooms.accounts.restrictionOf(org.id)).toBeUndefined();
  });
});

describe('a suspended organisation', () => {
  test('signs in, reads and deletes, and starts nothing that costs money', async () => {
    await api.world.machine();
    const id = await api.world.launch(account, LAUNCH);
    const chat = { model: 'x/y', messages: [{ role: 'user', content: 'x' }] };
    expect((await api.call('POST', '/v1/chat/completions', { key: account.key, body: chat })).status).toBe(404);
    await api.world.rooms.accounts.suspendOrg(account.orgId, 'unpaid');
    for (const who of [{ as: ada }, { key: account.key }]) {
      const launch = await api.call('POST', '/v1/instances', { ...who, body: LAUNCH });
      expect(launch).toMatchObject({ status: 403, json: { code: 'org_suspended' } });
      const asked = await api.call('POST', '/v1/chat/completions', { ...who, body: chat });
      expect(asked).toMatchObject({ status: 403, json: { error: { code: 'org_suspended' } } });
      for (const path of ['/v1/instances', '/v1/usage', '/v1/bill', '/v1/balance', '/v1/files'])
        expect((await api.call('GET', path, who)).status).toBe(200);
    }
    expect((await api.call('DELETE', `/v1/instances/${id}`, { key: account.key })).status).toBe(202);
    await api.world.rooms.accounts.resumeOrg(account.orgId);
    expect((await api.call('POST', '/v1/instances', { key: account.key, body: LAUNCH })).status).toBe(202);
  });
});

test('what is over is forgotten', async () => {
  await api.call('POST', '/v1/auth/device', { body: { host: 'x', scopes: ['full_access'] } });
  await api.call('POST', '/v1/invitations', { as: ada, body: { role: 'member' } });
  await api.call('POST', '/v1/auth/sign-in', { body: { email: 'a@example.com', password: 'x' } });
  await api.world.rooms.users.people.reset(ada.userId);
  const forgets = api.world.brings().flatMap((room) => room.forgets ?? []);
  const forget = async (): Promise<Record<string, number>> => {
    const gone: Record<string, number> = {};
    for (const { what, run } of forgets) gone[what] = await run(new AbortController().signal);
    return gone;
  };
  const nothing = {
    sessions: 0,
    invitations: 0,
    device_logins: 0,
    user_links: 0,
    sign_in_failures: 0,
    known_networks: 0,
  };
  expect(await forget()).toMatchObject(nothing);
  await api.world.clock.advance(90 * DAY_MS);
  const all = { sessions: 1, invitations: 1, device_logins: 1, user_links: 1, sign_in_failures: 3, known_networks: 1 };
  expect(await forget()).toMatchObject(all);
});
