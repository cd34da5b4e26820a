// Signing in with a password: the session that it gives, what an attacker learns from refusals, and how often somebody may try.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { int, text } from '../../../../control-plane/base/db/columns.ts';
import { sql } from '../../../../control-plane/base/db/db.ts';
import { SIGN_UPS_PER_NETWORK_MAX } from '../../../../shared/limits.ts';
import { type Answer, type Api, openApi } from '../../../contract/api.ts';
import { openOperator } from '../../../kit/operator.ts';
import { addPerson, cookieOf, ORIGIN, tokenIn } from '../../../kit/people.ts';

const PASSWORD = 'correct horse battery';
const HOUR_MS = 3_600_000;

let api: Api;
beforeEach(async () => {
  api = await openApi();
});
afterEach(() => api.close());

const signUp = (email = 'ada@example.com', headers: Record<string, string> = {}): Promise<Answer> =>
  api.call('POST', '/v1/auth/sign-up', {
    headers: { origin: ORIGIN, ...headers },
    body: { email, name: 'Ada', password: PASSWORD, org_name: 'Acme' },
  });
const signIn = (body: object = {}, headers: Record<string, string> = {}): Promise<Answer> =>
  api.call('POST', '/v1/auth/sign-in', {
    headers: { origin: ORIGIN, ...headers },
    body: { email: 'ada@example.com', password: PASSWORD, ...body },
  });
const tokenOf = (answer: Answer): string => tokenIn(answer) ?? '';
const sessionOf = (token: string): Promise<Answer> =>
  api.call('GET', '/v1/auth/session', { headers: cookieOf({ token }) });

describe('a sign-in', () => {
  test('sets a cookie that only our host and no script can read, and the session says who it is', async () => {
    await signUp();
    const answer = await signIn();
    expect(answer.status).toBe(201);
    const attributes = (answer.headers['set-cookie'] ?? '').split('; ').slice(1);
    expect(attributes).toEqual(['Path=/', 'Secure', 'HttpOnly', 'SameSite=Lax', 'Max-Age=2592000']);
    expect(answer.headers['cache-control']).toBe('no-store');
    const token = tokenOf(answer);
    expect(Buffer.from(token, 'base64url')).toHaveLength(32);
    expect(answer.body).not.toContain(token);
    const shown = await sessionOf(token);
    expect(shown.json).toMatchObject({
      user: { email: 'ada@example.com', name: 'Ada', is_operator: false },
      org: { name: 'Acme', role: 'owner' },
      has_password: true,
      has_totp: false,
      must_enrol: false,
    });
    expect(shown.json).toEqual(answer.json);
  });

  test('stores neither the token nor the password', async () => {
    const token = tokenOf(await signUp());
    const dump = JSON.stringify(
      await api.world.db.read.all(
        z.object({ token_hash: text, secret: text }),
        sql`select s.token_hash, c.secret from sessions s join credentials c on c.user_id = s.user_id`,
      ),
    );
    expect(dump).not.toContain(token);
    expect(dump).not.toContain(PASSWORD);
    expect(dump).toContain('m=19456,t=2,p=1$');
  });

  test.each([
    [11, 422],
    [12, 201],
    [256, 201],
    [257, 422],
  ])('needs a password of 12 to 256 characters: %i characters are %i', async (length, status) => {
    const body = { email: 'ada@example.com', name: 'Ada', password: 'x'.repeat(length), org_name: 'Acme' };
    expect((await api.call('POST', '/v1/auth/sign-up', { body })).status).toBe(status);
  });

  test('takes an address in upper case', async () => {
    await signUp('Ada@Example.com');
    expect((await signIn({ email: 'ADA@example.COM' })).status).toBe(201);
  });

  test('ends the session that the browser had, so nobody can plant one', async () => {
    const planted = await addPerson(api.world, undefined);
    await signUp();
    const answer = await signIn({}, cookieOf(planted));
    expect(tokenOf(answer)).not.toBe(planted.token);
    expect((await sessionOf(planted.token)).status).toBe(401);
    expect((await sessionOf(tokenOf(answer))).json).toMatchObject({ user: { email: 'ada@example.com' } });
  });

  test('is in the journal of the organisation', async () => {
    const { json } = await signUp();
    const { user } = json as { user: { id: string } };
    await signIn();
    expect(await api.world.journal(user.id)).toEqual(['member.added', 'session.created', 'session.created']);
  });
});

describe('an attacker', () => {
  test('cannot tell an unknown address from a wrong password by the answer', async () => {
    await signUp();
    const answers = [await signIn({ password: 'wrong' }), await signIn({ email: 'nobody@example.com' })];
    const seen = answers.map(({ status, json }) => ({ status, rest: { ...json, request_id: '' } }));
    expect(seen[0]).toEqual(seen[1]);
    expect(seen[0]).toMatchObject({ status: 401, rest: { code: 'sign_in_failed' } });
  });

  test('cannot tell them by the time: a password is hashed for both', async () => {
    await signUp();
    const spent = async (body: object): Promise<number> => {
      const from = process.cpuUsage();
      await signIn(body);
      const { user, system } = process.cpuUsage(from);
      return user + system;
    };
    await spent({ password: 'wrong' });
    const known = await spent({ password: 'wrong' });
    const unknown = await spent({ email: 'nobody@example.com' });
    // A hash is nearly all of the work, so an answer without one takes a small part of it.
    expect(unknown / known).toBeGreaterThan(0.3);
    expect(unknown / known).toBeLessThan(3);
  });

  test('is slowed down after five wrong passwords, even with the right one, and no longer than said', async () => {
    await signUp();
    const from = { 'x-forwarded-for': '198.51.100.7' };
    for (let i = 0; i < 5; i += 1) expect((await signIn({ password: 'wrong' }, from)).status).toBe(401);
    const refused = await signIn({}, from);
    expect(refused).toMatchObject({ status: 429, json: { code: 'rate_limit_exceeded' } });
    expect(refused.headers['retry-after']).toBe('30');
    await api.world.clock.advance(29_999);
    expect((await signIn({}, from)).status).toBe(429);
    await api.world.clock.advance(1);
    expect((await signIn({}, from)).status).toBe(201);
    // A success clears the count.
    expect((await signIn({ password: 'wrong' }, from)).status).toBe(401);
    expect((await signIn({}, from)).status).toBe(201);
  });

  test('cannot try several passwords at once to get around the count', async () => {
    await signUp();
    const answers = await Promise.all(Array.from({ length: 12 }, () => signIn({ password: 'wrong' })));
    expect(answers.filter(({ status }) => status === 401)).toHaveLength(5);
    expect(answers.filter(({ status }) => status === 429)).toHaveLength(7);
  });

  test('waits fifteen minutes at most, and failures are forgotten after an hour', async () => {
    await signUp();
    const waits = new Set<string>();
    for (let i = 0; i < 20; i += 1) {
      const answer = await signIn({ password: 'wrong' });
      if (answer.status !== 429) continue;
      const seconds = answer.headers['retry-after'] ?? '';
      waits.add(seconds);
      await api.world.clock.advance(Number(seconds) * 1000);
    }
    expect([...waits]).toEqual(['30', '300', '900']);
    await api.world.clock.advance(HOUR_MS);
    for (let i = 0; i < 5; i += 1) expect((await signIn({ password: 'wrong' })).status).toBe(401);
  });

  test('keeps the failures of its network with each wrong try, while right ones do not', async () => {
    const headers = cookieOf({ token: tokenOf(await signUp()) });
    const keptMs = async (): Promise<number> => {
      const latest = sql`select updated_ms as ms from sign_in_failures order by failures desc limit 1`;
      return (await api.world.db.read.one(z.object({ ms: int }), latest))?.ms ?? 0;
    };
    for (let i = 0; i < 3; i += 1) await signIn({ email: `nobody${i}@example.com` });
    const post = (path: string, body: object): Promise<Answer> =>
      api.call('POST', `/v1/auth/${path}`, { headers, body });
    const change = { current_password: 'wrong', new_password: 'another good password' };
    const wrong: [number, () => Promise<Answer>][] = [
      [401, () => signIn({ password: 'wrong' })],
      [401, () => signIn({ email: 'nobody@example.com' })],
      [401, () => post('step-up', { password: 'wrong' })],
      [401, () => post('password', change)],
      [409, () => signUp()],
    ];
    for (const [status, attempt] of wrong) {
      await api.world.clock.advance(60_000);
      expect((await attempt()).status).toBe(status);
      expect(await keptMs()).toBe(api.world.clock.now());
      await api.world.clock.advance(1);
      expect((await signIn()).status).toBe(201);
      expect(await keptMs()).toBe(api.world.clock.now() - 1);
    }
  });
});

describe('signing up', () => {
  test('is limited for one network by the hour, also if every sign-up succeeds', async () => {
    for (let i = 0; i < SIGN_UPS_PER_NETWORK_MAX; i += 1) expect((await signUp(`p${i}@example.com`)).status).toBe(201);
    const refused = await signUp('late@example.com');
    expect(refused).toMatchObject({ status: 429, json: { code: 'rate_limit_exceeded' } });
    expect(refused.json['detail']).toContain('signed up from your network');
    expect(refused.headers['retry-after']).toBe('3600');
    // Refused sign-ups are no failed sign-ins, of which a network has a hundred.
    for (let i = 0; i < 110; i += 1) expect((await signUp(`q${i}@example.com`)).status).toBe(429);
    expect((await signIn({ email: 'p0@example.com' })).status).toBe(201);
    await api.world.clock.advance(HOUR_MS);
    expect((await signUp('late@example.com')).status).toBe(201);
  });

  test('with a taken address hashes no password', async () => {
    const spent = async (email: string, status: number): Promise<number> => {
      const from = process.cpuUsage();
      expect((await signUp(email)).status).toBe(status);
      const { user, system } = process.cpuUsage(from);
      return user + system;
    };
    const [free, taken]: [number[], number[]] = [[], []];
    for (let n = 0; n < 5; n += 1) {
      free.push(await spent(`ada${n}@example.com`, 201));
      taken.push(await spent(`ada${n}@example.com`, 409));
    }
    // The least of several, because anything may run between two readings of the clock.
    expect(Math.min(...taken) / Math.min(...free)).toBeLessThan(0.5);
  });
});

describe('a person whom strangers try to lock out', () => {
  test('can still sign in from a network that was used before', async () => {
    const trusting = await openApi({}, { trustProxy: ['127.0.0.1'] });
    const at = (address: string, password = PASSWORD): Promise<Answer> =>
      trusting.call('POST', '/v1/auth/sign-in', {
        headers: { 'x-forwarded-for': address },
        body: { email: 'ada@example.com', password },
      });
    await trusting.call('POST', '/v1/auth/sign-up', {
      headers: { 'x-forwarded-for': '203.0.113.1' },
      body: { email: 'ada@example.com', name: 'Ada', password: PASSWORD, org_name: 'Acme' },
    });
    for (let i = 0; i < 51; i += 1) await at(`198.51.100.${i}`, 'wrong');
    expect((await at('198.51.100.200')).status).toBe(429);
    expect((await at('203.0.113.1')).status).toBe(201);
    await trusting.close();
  });
});

describe('a link of the operator', () => {
  const link = async (path: string, body: object = {}): Promise<string> => {
    const made = await openOperator(api.world).ask('POST', `/admin/${path}`, body);
    return String(made['url']);
  };
  const use = (url: string, password = PASSWORD): Promise<Answer> =>
    api.call('POST', '/v1/auth/link', { body: { token: url.split('#')[1] ?? '', password } });

  test('sets the first password of a new person, once', async () => {
    const url = await link('users', { email: 'op@example.com', name: 'Op', is_operator: true });
    expect(url).toMatch(/^https:\/\/api\.example\.com\/welcome#[\w-]{43}$/);
    const first = await use(url);
    expect(first).toMatchObject({ status: 201, json: { user: { email: 'op@example.com', is_operator: true } } });
    expect((await use(url)).status).toBe(404);
    expect((await signIn({ email: 'op@example.com' })).status).toBe(201);
  });

  test('expires after a day, and a new one ends the one before', async () => {
    const first = await link('users', { email: 'op@example.com', name: 'Op' });
    const second = await link('users/op@example.com/reset');
    expect((await use(first)).status).toBe(404);
    await api.world.clock.advance(24 * HOUR_MS);
    expect((await use(second)).status).toBe(404);
    const third = await link('users/op@example.com/reset');
    await api.world.clock.advance(24 * HOUR_MS - 1);
    expect((await use(third)).status).toBe(201);
  });

  test('gives access back to a person who has lost it, and ends what others may have', async () => {
    const before = tokenOf(await signUp());
    const url = await link('users/ada@example.com/reset');
    // Making a link changes nothing yet.
    expect((await sessionOf(before)).status).toBe(200);
    const after = await use(url, 'another good password');
    expect(after.status).toBe(201);
    expect((await sessionOf(before)).status).toBe(401);
    expect((await signIn()).status).toBe(401);
    expect((await signIn({ password: 'another good password' })).status).toBe(201);
  });

  test('is stored as a hash only, and the audit does not show it', async () => {
    const url = await link('users', { email: 'op@example.com', name: 'Op' });
    const token = url.split('#')[1] ?? '';
    const rows = await api.world.db.read.all(z.object({ token_hash: text }), sql`select token_hash from user_links`);
    expect(JSON.stringify(rows)).not.toContain(token);
    expect(JSON.stringify(await api.world.audit.list(api.world.db.read, {}, { count: 10 }))).not.toContain(token);
  });
});

describe('the ways in', () => {
  test.each(['open', 'invite', 'closed'] as const)('are told to everybody if sign-ups are %s', async (policy) => {
    const own = await openApi({ settings: { signUpPolicy: policy } });
    const answer = await own.call('GET', '/v1/auth/methods');
    expect(answer).toMatchObject({ status: 200, json: { sign_up: policy, single_sign_on: false } });
    await own.close();
  });
});
