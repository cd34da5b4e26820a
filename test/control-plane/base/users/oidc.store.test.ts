// Signing in through an OpenID provider: whom it lets in, and what an attacker cannot do with its answers.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { insertCredential } from '../../../../control-plane/base/users/credential-store.ts';
import { createLog } from '../../../../shared/log.ts';
import { type Answer, type Api, type ApiAccount, openApi } from '../../../contract/api.ts';
import { CLIENT, type OpenidProvider, startOpenidProvider } from '../../../kit/openid-provider.ts';
import { addPerson, cookieOf, type Person, tokenIn } from '../../../kit/people.ts';

let provider: OpenidProvider;
let api: Api;
let account: ApiAccount;
let ada: Person;
let logged: string;
beforeEach(async () => {
  provider = await startOpenidProvider();
  logged = '';
  const log = createLog('test', 'info', { write: (line) => void (logged += line) });
  api = await openApi({ log, settings: { oidc: { ...CLIENT, issuer: provider.issuer } } });
  account = await api.account();
  ada = await addPerson(api.world, { orgId: account.orgId, role: 'member' });
});
afterEach(async () => {
  await api.close();
  await provider.close();
});

const begin = async (): Promise<{ url: string; login: string }> =>
  (await api.call('POST', '/v1/auth/oidc/begin')).json as { url: string; login: string };
const finish = (login: string, query: string): Promise<Answer> =>
  api.call('POST', '/v1/auth/oidc/finish', { body: { login, query } });
const person = (more: object = {}) => ({ sub: 'ada-1', email: ada.email, email_verified: true, ...more });

const linkWith = (userId: string, externalId: string) => ({
  id: 'cred_1',
  user_id: userId,
  kind: 'oidc' as const,
  name: 'key',
  external_id: externalId,
  secret: '',
  counter: 0,
  transports: [],
  confirmed_ms: 1,
  created_ms: 1,
});

async function signIn(who = person(), change: object = {}): Promise<Answer> {
  const { url, login } = await begin();
  return finish(login, provider.signIn(url, who, change));
}

describe('the provider', () => {
  test('is asked for a code, with a challenge that only we can answer', async () => {
    const { url } = await begin();
    expect(Object.fromEntries(new URL(url).searchParams)).toMatchObject({
      response_type: 'code',
      client_id: 'svc',
      redirect_uri: 'https://api.example.com/oidc',
      scope: 'openid email',
      code_challenge_method: 'S256',
      state: expect.stringMatching(/^[\w-]{43}$/),
    });
  });

  test('is asked about itself once in five minutes, by however many people, and not for a login that is not ours', async () => {
    expect((await finish('x', 'code=1')).status).toBe(422);
    expect(provider.asked()).toBe(0);
    const [{ url, login }] = await Promise.all([begin(), begin(), begin()]);
    expect((await finish(login, provider.signIn(url, person()))).status).toBe(201);
    await api.world.clock.advance(299_999);
    await begin();
    expect(provider.asked()).toBe(1);
    await api.world.clock.advance(1);
    await begin();
    expect(provider.asked()).toBe(2);
  });

  test('is asked again at once after it did not answer', async () => {
    provider.setAway(true);
    expect((await api.call('POST', '/v1/auth/oidc/begin')).status).toBe(503);
    provider.setAway(false);
    expect((await api.call('POST', '/v1/auth/oidc/begin')).status).toBe(200);
  });

  test('lets a person in whose verified address has an account, and knows the person by its own id later', async () => {
    const first = await signIn();
    expect(first).toMatchObject({ status: 201, json: { user: { id: ada.userId }, org: { role: 'member' } } });
    expect(tokenIn(first)).toBeDefined();
    const renamed = await signIn(person({ email: 'other@example.com', email_verified: false }));
    expect(renamed.json).toMatchObject({ user: { id: ada.userId } });
  });

  test('lets nobody in whose address is not verified, or has no account', async () => {
    for (const more of [{ email_verified: false }, { email: 'nobody@example.com' }]) {
      const refused = await signIn(person({ sub: 'eve', ...more }));
      expect(refused).toMatchObject({ status: 403, json: { code: 'sign_up_closed' } });
    }
  });

  test('may say that an address is verified as a text', async () => {
    expect(await signIn(person(), { email_verified: 'true' })).toMatchObject({ status: 201 });
    const refused = await signIn(person({ sub: 'eve' }), { email_verified: 'false' });
    expect(refused).toMatchObject({ status: 403, json: { code: 'sign_up_closed' } });
  });

  test.each([{ email: null }, { email: 'ada' }, { email_verified: 'yes' }, { email_verified: null }])(
    'lets a person in whom it knows, and nobody else, if it sends %j',
    async (change) => {
      expect((await signIn()).status).toBe(201);
      expect((await signIn(person(), change)).status).toBe(201);
      expect((await signIn(person({ sub: 'eve' }), change)).status).toBe(403);
    },
  );

  test.each([{ sub: '' }, { sub: null }])('lets nobody in if it sends %j', async (change) => {
    expect(await signIn(person(), change)).toMatchObject({ status: 401, json: { code: 'sign_in_failed' } });
  });

  test.each([
    ['256 characters', 'a'.repeat(256)],
    ['a letter outside ASCII', 'zoë'],
    ['a character that PostgreSQL cannot store', 'ada\0'],
  ])('lets nobody in whose id there has %s, and says why', async (_, sub) => {
    const refused = await signIn(person({ sub }));
    expect(refused).toMatchObject({ status: 400, json: { code: 'access_denied' } });
    expect(refused.json['detail']).toContain('at most 255 ASCII characters');
    expect(logged).toContain('the OpenID provider names a person by an id that OpenID does not allow');
  });

  test('lets a person in whose id there has 255 characters', async () => {
    expect((await signIn(person({ sub: 'a'.repeat(255) }))).status).toBe(201);
  });

  test('does not let anybody into an account that a stranger may have made with the address', async () => {
    const made = await addPerson(api.world, { orgId: account.orgId, role: 'owner' }, { isVouched: false });
    const claims = person({ sub: 'boss', email: made.email });
    expect(await signIn(claims)).toMatchObject({ status: 409, json: { code: 'conflict' } });
    const { url, login } = await begin();
    const body = { login, query: provider.signIn(url, claims) };
    const linked = await api.call('POST', '/v1/auth/oidc/finish', { body, headers: cookieOf(made) });
    expect(linked).toMatchObject({ status: 201, json: { user: { id: made.userId } } });
    expect(await signIn(claims)).toMatchObject({ status: 201, json: { user: { id: made.userId } } });
  });

  test('does not let a person into the account of the one who had the address before', async () => {
    expect((await signIn()).status).toBe(201);
    const claims = person({ sub: 'ada-2' });
    const refused = await signIn(claims);
    expect(refused).toMatchObject({ status: 409, json: { code: 'conflict' } });
    expect(refused.json['detail']).toContain('linked with somebody else');
    expect((await signIn()).json).toMatchObject({ user: { id: ada.userId } });
    const { url, login } = await begin();
    const body = { login, query: provider.signIn(url, claims) };
    const linked = await api.call('POST', '/v1/auth/oidc/finish', { body, headers: cookieOf(ada) });
    expect(linked).toMatchObject({ status: 201, json: { user: { id: ada.userId } } });
    expect((await signIn(claims)).json).toMatchObject({ user: { id: ada.userId } });
  });

  test('that replaces another one lets its people in as at their first sign-in', async () => {
    await api.world.db.tx('test.link', (tx) =>
      insertCredential(tx, linkWith(ada.userId, 'https://old.example.com ada-1')),
    );
    expect((await signIn()).json).toMatchObject({ user: { id: ada.userId } });
  });

  test('cannot add a second factor to those of a person', async () => {
    const operator = await addPerson(api.world, { orgId: account.orgId, role: 'owner' }, { isOperator: true });
    const claims = person({ sub: 'op', email: operator.email });
    const registered = async (): Promise<number> => {
      const token = tokenIn(await signIn(claims)) ?? '';
      return (await api.call('POST', '/v1/auth/passkeys/registration', { headers: cookieOf({ token }) })).status;
    };
    expect(await registered()).toBe(200);
    await api.world.db.tx('test.factor', (tx) =>
      insertCredential(tx, { ...linkWith(operator.userId, 'k'), kind: 'passkey' }),
    );
    expect(await registered()).toBe(403);
  });

  test('makes no network known to whom it lets in: a thief of its account cannot guess codes from ever new ones', async () => {
    const settings = { oidc: { ...CLIENT, issuer: provider.issuer } };
    const trusting = await openApi({ settings }, { trustProxy: ['127.0.0.1'] });
    const person = await addPerson(trusting.world, undefined);
    await trusting.world.db.tx('test.factor', (tx) =>
      insertCredential(tx, { ...linkWith(person.userId, 'k'), kind: 'passkey' }),
    );
    const guess = async (i: number): Promise<number> => {
      const headers = { 'x-forwarded-for': `2001:db8:1:${i.toString(16)}::1` };
      const begun = await trusting.call('POST', '/v1/auth/oidc/begin', { headers });
      const { url, login } = begun.json as { url: string; login: string };
      const query = provider.signIn(url, { sub: 'eve', email: person.email, email_verified: true });
      const entered = await trusting.call('POST', '/v1/auth/oidc/finish', { headers, body: { login, query } });
      const as = { ...person, token: tokenIn(entered) ?? '' };
      return (await trusting.call('POST', '/v1/auth/step-up', { headers, body: { code: '000000' }, as })).status;
    };
    for (let i = 1; i <= 50; i += 1) expect(await guess(i)).toBe(401);
    expect(await guess(51)).toBe(429);
    await trusting.close();
  });

  test('is no second factor: an operator confirms with an own one first', async () => {
    const operator = await addPerson(api.world, { orgId: account.orgId, role: 'owner' }, { isOperator: true });
    const answer = await signIn(person({ sub: 'op', email: operator.email }));
    expect(answer.json).toMatchObject({ must_enrol: true, scopes: [] });
  });
});

describe('an answer', () => {
  test('works once', async () => {
    const { url, login } = await begin();
    const query = provider.signIn(url, person());
    expect((await finish(login, query)).status).toBe(201);
    expect((await finish(login, query)).status).toBe(401);
  });

  test('that the provider refuses uses its login up, and the provider is not asked again', async () => {
    const { url, login } = await begin();
    const query = provider.signIn(url, person());
    const forged = query.replace('code=', 'code=x');
    expect(await finish(login, forged)).toMatchObject({ status: 401, json: { code: 'sign_in_failed' } });
    expect(provider.askedForTokens()).toBe(1);
    for (const again of [forged, query])
      expect(await finish(login, again)).toMatchObject({ status: 401, json: { code: 'sign_in_failed' } });
    expect(provider.askedForTokens()).toBe(1);
    expect((await signIn()).status).toBe(201);
  });

  test('that is not valid reaches the provider thirty times from one network, which then waits for fifteen minutes', async () => {
    const forged = async (): Promise<Answer> => {
      const { url, login } = await begin();
      const state = new URL(url).searchParams.get('state') ?? '';
      return finish(login, new URLSearchParams({ code: 'x', state, iss: provider.issuer }).toString());
    };
    for (let i = 0; i < 40; i += 1) expect((await signIn()).status).toBe(201);
    for (let i = 0; i < 30; i += 1) expect((await forged()).status).toBe(401);
    const { url, login } = await begin();
    const query = provider.signIn(url, person());
    const refused = await finish(login, query);
    expect(refused).toMatchObject({ status: 429, json: { code: 'rate_limit_exceeded' } });
    expect(refused.headers['retry-after']).toBe('900');
    expect(provider.askedForTokens()).toBe(70);
    await api.world.clock.advance(900_000);
    expect((await signIn()).status).toBe(201);
  });

  test('that comes several times at the same moment reaches the provider once', async () => {
    const { url, login } = await begin();
    const query = provider.signIn(url, person());
    const answers = await Promise.all(Array.from({ length: 5 }, () => finish(login, query)));
    const count = (wanted: number): number => answers.filter(({ status }) => status === wanted).length;
    expect([count(201), count(401)]).toEqual([1, 4]);
    expect(provider.askedForTokens()).toBe(1);
  });

  test('works after a provider that was away is back', async () => {
    const { url, login } = await begin();
    const query = provider.signIn(url, person());
    await api.world.clock.advance(300_000);
    provider.setAway(true);
    expect((await finish(login, query)).status).toBe(503);
    provider.setAway(false);
    expect((await finish(login, query)).status).toBe(201);
  });

  const refusedWith = ({ url, login }: { url: string; login: string }, error: string): Promise<Answer> => {
    const state = new URL(url).searchParams.get('state') ?? '';
    return finish(login, new URLSearchParams({ error, state, iss: provider.issuer }).toString());
  };

  test('that a stranger has made up fills no log, however many there are and however long they are', async () => {
    for (let i = 0; i < 40; i += 1)
      expect((await refusedWith(await begin(), 'x'.repeat(3_900))).json).toMatchObject({ code: 'access_denied' });
    const lines = logged.split('\n').filter((line) => line.includes('a sign-in through the OpenID provider failed'));
    expect(lines).toHaveLength(30);
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThan(500);
  });

  test.each(['access_denied', 'login_required', '<b>x</b>'])(
    'that says that the person or the provider refuses (%s) is told as such, and the provider is not asked',
    async (error) => {
      const answer = await refusedWith(await begin(), error);
      expect(answer).toMatchObject({ status: 400, json: { code: 'access_denied' } });
      expect(answer.json['detail']).toContain('you have cancelled, or it has refused');
      expect(answer.body).not.toContain(error === 'access_denied' ? 'password' : error);
      expect(provider.askedForTokens()).toBe(0);
    },
  );

  test('that says that the provider is in trouble is told as such, if it belongs to the login', async () => {
    for (const error of ['server_error', 'temporarily_unavailable'])
      expect(await refusedWith(await begin(), error)).toMatchObject({ status: 503, json: { code: 'unavailable' } });
    const [mine, theirs] = [await begin(), await begin()];
    const planted = await refusedWith({ url: theirs.url, login: mine.login }, 'access_denied');
    expect(planted).toMatchObject({ status: 401, json: { code: 'sign_in_failed' } });
    expect(planted.json['detail']).not.toContain('password');
  });

  test.each(['fails', 'is gone'])(
    'that the provider gives no tokens for, because it %s, is told as such',
    async (how) => {
      const { url, login } = await begin();
      const query = provider.signIn(url, person());
      if (how === 'fails') provider.setAway(true);
      else await provider.close();
      const answer = await finish(login, query);
      expect(answer).toMatchObject({ status: 503, json: { code: 'unavailable' } });
      expect(answer.headers['retry-after']).toBe('30');
      expect(logged).toContain('"level":40');
      expect(logged).toContain('the OpenID provider does not answer');
    },
  );

  test('of a login that another browser has begun is refused', async () => {
    const [mine, theirs] = [await begin(), await begin()];
    const answer = await finish(mine.login, provider.signIn(theirs.url, person()));
    expect(answer).toMatchObject({ status: 401, json: { code: 'sign_in_failed' } });
  });

  test('is refused after ten minutes, and with a login that is not ours', async () => {
    const { url, login } = await begin();
    const query = provider.signIn(url, person());
    expect(await finish('x', query)).toMatchObject({ status: 422, json: { errors: [{ field: 'login' }] } });
    await api.world.clock.advance(600_000);
    expect((await finish(login, query)).status).toBe(422);
  });

  test.each([
    ['for another client', { aud: 'other' }],
    ['of another provider', { iss: 'https://evil.example' }],
    ['with another nonce', { nonce: 'x' }],
    ['that has expired', { exp: 1 }],
  ])('%s is refused', async (_what, change) => {
    expect(await signIn(person(), change)).toMatchObject({ status: 401, json: { code: 'sign_in_failed' } });
  });
});

test.each([
  ['of a mebibyte is read', 0, 200],
  ['of a mebibyte and a byte is not read to its end, also if it arrives packed', 1, 503],
])('an answer of the provider %s', async (_what, more, status) => {
  const server = createServer((_request, response) => {
    const about = JSON.stringify({ issuer, authorization_endpoint: `${issuer}/authorize` });
    response.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' });
    response.end(gzipSync(about.padEnd(2 ** 20 + more)));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const long = await openApi({ settings: { oidc: { ...CLIENT, issuer } } });
  expect((await long.call('POST', '/v1/auth/oidc/begin')).status).toBe(status);
  await long.close();
  server.closeAllConnections();
  server.close();
});

test('without a provider, or if it is away, people are told', async () => {
  await provider.close();
  expect(await api.call('POST', '/v1/auth/oidc/begin')).toMatchObject({ status: 503, json: { code: 'unavailable' } });
  const without = await openApi();
  expect((await without.call('POST', '/v1/auth/oidc/begin')).status).toBe(404);
  const told = async (on: Api): Promise<unknown> => (await on.call('GET', '/v1/auth/methods')).json['single_sign_on'];
  expect([await told(api), await told(without)]).toEqual([true, false]);
  await without.close();
});
