// Second factors: authenticator apps, recovery codes and passkeys. Each code, challenge and counter works once, and operators need a factor.
import { generateSync } from 'otplib';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { text } from '../../../../control-plane/base/db/columns.ts';
import { sql } from '../../../../control-plane/base/db/db.ts';
import { type Answer, type Api, openApi } from '../../../contract/api.ts';
import { type Authenticator, openAuthenticator } from '../../../kit/authenticator.ts';
import { addPerson, ORIGIN, type Person, tokenIn } from '../../../kit/people.ts';

const PASSWORD = 'correct horse battery';
const SITE = { origin: ORIGIN, rpId: 'api.example.com' };

let api: Api;
let ada: Person;
beforeEach(async () => {
  api = await openApi();
  const body = { email: 'ada@example.com', name: 'Ada', password: PASSWORD, org_name: 'Acme' };
  const signedUp = await api.call('POST', '/v1/auth/sign-up', { body });
  const { user, id } = signedUp.json as { user: { id: string }; id: string };
  ada = { userId: user.id, email: body.email, sessionId: id, token: tokenIn(signedUp) ?? '' };
});
afterEach(() => api.close());

/** Asks as the person, whose browser keeps the new cookie. */
async function ask(method: 'GET' | 'POST' | 'DELETE', path: string, body?: object): Promise<Answer> {
  const answer = await api.call(method, `/v1/auth/${path}`, { as: ada, ...(body === undefined ? {} : { body }) });
  ada = { ...ada, token: tokenIn(answer) ?? ada.token };
  return answer;
}
const signIn = (more: object = {}): Promise<Answer> =>
  api.call('POST', '/v1/auth/sign-in', { body: { email: ada.email, password: PASSWORD, ...more } });
const codeAt = (secret: string): string => generateSync({ secret, epoch: Math.floor(api.world.clock.now() / 1000) });
const nextStep = (): Promise<void> => api.world.clock.advance(30_000);

async function setUpTotp(): Promise<{ secret: string; codes: string[] }> {
  const secret = String((await ask('POST', 'totp')).json['secret']);
  const confirmed = await ask('POST', 'totp/confirm', { code: codeAt(secret) });
  return { secret, codes: confirmed.json['recovery_codes'] as string[] };
}

async function setUpPasskey(): Promise<{ authenticator: Authenticator; answer: Answer }> {
  const authenticator = openAuthenticator(SITE);
  const { json } = await ask('POST', 'passkeys/registration');
  const passkey = authenticator.create(String(json['challenge']));
  return { authenticator, answer: await ask('POST', 'passkeys', { name: 'laptop', passkey }) };
}
const challenge = async (): Promise<string> =>
  String((await api.call('POST', '/v1/auth/passkeys/options')).json['challenge']);
const withPasskey = (passkey: object): Promise<Answer> =>
  api.call('POST', '/v1/auth/passkeys/sign-in', { body: { passkey } });

describe('an authenticator app', () => {
  test('counts once its first code was shown, and is needed from then on', async () => {
    const begun = await ask('POST', 'totp');
    expect(begun.json['uri']).toMatch(/^otpauth:\/\/totp\/api\.example\.com:ada%40example\.com\?secret=[A-Z2-7]{32}/);
    expect((await signIn()).status).toBe(201);
    const wrong = await ask('POST', 'totp/confirm', { code: '000000' });
    expect(wrong).toMatchObject({ status: 422, json: { errors: [{ field: 'code' }] } });
    const secret = String(begun.json['secret']);
    expect((await ask('POST', 'totp/confirm', { code: codeAt(secret) })).status).toBe(200);
    expect(await signIn()).toMatchObject({ status: 403, json: { code: 'second_factor_required' } });
    await nextStep();
    expect((await signIn({ code: codeAt(secret) })).json).toMatchObject({ has_totp: true, recovery_codes_left: 10 });
  });

  test('gives codes that work once, also for the confirmation of the app', async () => {
    const { secret } = await setUpTotp();
    expect((await signIn({ code: codeAt(secret) })).status).toBe(401);
    await nextStep();
    const code = codeAt(secret);
    expect((await signIn({ code })).status).toBe(201);
    const replayed = await signIn({ code });
    expect(replayed).toMatchObject({ status: 401, json: { code: 'sign_in_failed' } });
    expect(await api.world.journal(ada.userId)).toContain('session.refused');
  });

  test('gives no code that counts while the clock is behind the last one', async () => {
    const { secret } = await setUpTotp();
    api.world.clock.step(-120_000);
    expect(await signIn({ code: codeAt(secret) })).toMatchObject({ status: 401, json: { code: 'sign_in_failed' } });
    api.world.clock.step(150_000);
    expect((await signIn({ code: codeAt(secret) })).status).toBe(201);
  });

  test('does not slow its network down: a right password without a code is no failed try', async () => {
    const { secret } = await setUpTotp();
    for (let i = 0; i < 6; i += 1) {
      expect((await signIn()).status).toBe(403);
      expect((await ask('POST', 'step-up', { password: PASSWORD })).status).toBe(403);
    }
    await nextStep();
    expect((await signIn({ code: codeAt(secret) })).status).toBe(201);
    const counted = await api.world.db.read.all(
      z.object({ failures: text }),
      sql`select cast(failures as text) as failures from sign_in_failures`,
    );
    // Only the sign-up at the beginning counts.
    expect(counted.filter(({ failures }) => failures !== '0')).toEqual([{ failures: '1' }]);
  });

  test('is still guarded against guesses of its code by somebody who knows the password', async () => {
    await setUpTotp();
    for (let i = 0; i < 5; i += 1) {
      expect((await signIn()).status).toBe(403);
      expect((await signIn({ code: '000000' })).status).toBe(401);
    }
    expect((await signIn()).status).toBe(429);
  });

  test('may be half a minute late, and no more', async () => {
    const { secret } = await setUpTotp();
    await nextStep();
    const code = codeAt(secret);
    await api.world.clock.advance(60_000);
    expect((await signIn({ code })).status).toBe(401);
    const late = codeAt(secret);
    await nextStep();
    expect((await signIn({ code: late })).status).toBe(201);
  });

  test('is stored sealed', async () => {
    const { secret } = await setUpTotp();
    const stored = await api.world.db.read.all(z.object({ secret: text }), sql`select secret from credentials`);
    expect(JSON.stringify(stored)).not.toContain(secret);
  });

  test('can be removed, and the recovery codes end with it', async () => {
    await setUpTotp();
    expect((await ask('DELETE', 'totp')).status).toBe(204);
    expect((await signIn()).json).toMatchObject({ has_totp: false, recovery_codes_left: 0 });
  });
});

describe('recovery codes', () => {
  test('are shown once, work once in any spelling, and only their hashes are stored', async () => {
    const { codes } = await setUpTotp();
    expect(codes).toHaveLength(10);
    expect(new Set(codes).size).toBe(10);
    const [first = '', second = ''] = codes;
    expect(first).toMatch(/^([a-z2-7]{4}-){3}[a-z2-7]{4}$/);
    expect((await signIn({ code: first })).json).toMatchObject({ recovery_codes_left: 9 });
    expect((await signIn({ code: first })).status).toBe(401);
    expect((await signIn({ code: second.toUpperCase().replaceAll('-', ' ') })).status).toBe(201);
    const stored = await api.world.db.read.all(
      z.object({ code_hash: text }),
      sql`select code_hash from recovery_codes`,
    );
    expect(JSON.stringify(stored)).not.toContain(codes[2]?.replaceAll('-', ''));
  });

  test('of before end when new ones are made', async () => {
    const { codes } = await setUpTotp();
    const made = await ask('POST', 'recovery-codes');
    const [fresh = ''] = made.json['recovery_codes'] as string[];
    expect((await signIn({ code: codes[0] })).status).toBe(401);
    expect((await signIn({ code: fresh })).status).toBe(201);
  });

  test('need a second factor to stand in for', async () => {
    expect(await ask('POST', 'recovery-codes')).toMatchObject({
      status: 403,
      json: { code: 'second_factor_required' },
    });
  });
});

describe('a passkey', () => {
  test('signs in alone, and the password alone does not any more', async () => {
    const { authenticator, answer } = await setUpPasskey();
    expect(answer).toMatchObject({ status: 201, json: { name: 'laptop', last_used_at: null } });
    expect(answer.json['recovery_codes']).toHaveLength(10);
    expect(await signIn()).toMatchObject({ status: 403, json: { code: 'second_factor_required' } });
    const entered = await withPasskey(authenticator.get(await challenge()));
    expect(entered).toMatchObject({ status: 201, json: { user: { email: ada.email }, passkeys: 1 } });
    expect((await ask('GET', 'passkeys')).json.data).toMatchObject([
      { name: 'laptop', last_used_at: expect.any(String) },
    ]);
  });

  test('is refused for another site, without verification of the person, and with a lower counter', async () => {
    const { authenticator } = await setUpPasskey();
    const faults = [{ origin: 'https://evil.example' }, { isVerified: false }, { counter: 1 }, { counter: 0 }];
    for (const fault of faults) {
      const refused = await withPasskey(authenticator.get(await challenge(), fault));
      expect(refused).toMatchObject({ status: 401, json: { code: 'sign_in_failed' } });
    }
    expect((await withPasskey(authenticator.get(await challenge(), { counter: 9 }))).status).toBe(201);
  });

  test('of another person or another key is refused', async () => {
    await setUpPasskey();
    const stranger = openAuthenticator(SITE);
    expect((await withPasskey(stranger.get(await challenge()))).status).toBe(401);
    const { authenticator } = await setUpPasskey();
    const forged = { ...stranger.get(await challenge()), id: (authenticator.get('x') as { id: string }).id };
    expect((await withPasskey(forged)).status).toBe(401);
  });

  test('signs each challenge once, and only a fresh one of ours', async () => {
    const { authenticator } = await setUpPasskey();
    const once = await challenge();
    expect((await withPasskey(authenticator.get(once))).status).toBe(201);
    expect((await withPasskey(authenticator.get(once))).status).toBe(401);
    expect((await withPasskey(authenticator.get(api.ids.secret(41)))).status).toBe(401);
    const old = await challenge();
    await api.world.clock.advance(300_000);
    expect((await withPasskey(authenticator.get(old))).status).toBe(401);
  });

  test('cannot be registered for another site, twice, or without a challenge of ours', async () => {
    const { authenticator } = await setUpPasskey();
    const begin = async (): Promise<string> => String((await ask('POST', 'passkeys/registration')).json['challenge']);
    const add = (passkey: object): Promise<Answer> => ask('POST', 'passkeys', { name: 'x', passkey });
    const elsewhere = openAuthenticator(SITE).create(await begin(), { origin: 'https://evil.example' });
    expect(await add(elsewhere)).toMatchObject({ status: 422, json: { errors: [{ field: 'passkey' }] } });
    expect((await add(openAuthenticator(SITE).create(api.ids.secret(41)))).status).toBe(401);
    expect(await add(authenticator.create(await begin()))).toMatchObject({ status: 409 });
    expect((await add(openAuthenticator(SITE).create(await begin()))).status).toBe(201);
  });

  test('is one of twenty at most', async () => {
    for (let i = 0; i < 20; i += 1) expect((await setUpPasskey()).answer.status).toBe(201);
    expect((await setUpPasskey()).answer).toMatchObject({ status: 409, json: { code: 'conflict' } });
  });

  test('is removed by its owner alone', async () => {
    const { answer } = await setUpPasskey();
    const id = String(answer.json['id']);
    const other = await addPerson(api.world, undefined);
    expect((await api.call('DELETE', `/v1/auth/passkeys/${id}`, { as: other })).status).toBe(404);
    expect((await ask('DELETE', `passkeys/${id}`)).status).toBe(204);
    expect((await signIn()).status).toBe(201);
  });
});

test('an answer of a passkey with very deep levels is refused, though it may have members that are not known', async () => {
  const deep = `${'['.repeat(30_000)}${']'.repeat(30_000)}`;
  const answer = await api.http.inject({
    method: 'POST',
    url: '/v1/auth/passkeys/sign-in',
    headers: { 'content-type': 'application/json' },
    payload: `{"passkey":{"id":"x","rawId":"x","type":"public-key","response":{"clientDataJSON":"","a":${deep}},"clientExtensionResults":{}}}`,
  });
  expect(answer.status).toBe(400);
});

describe('a step-up', () => {
  const TEN_MINUTES_MS = 600_000;
  const makeKey = (): Promise<Answer> =>
    api.call('POST', '/v1/api-keys', { as: ada, body: { name: 'x', scopes: ['members: read'] } });
  beforeEach(async () => {
    // The organisation has had money, so that it may make keys.
    const { orgId } = await api.account();
    await api.world.db.tx('test.join', (tx) =>
      tx.run(sql`insert into members (org_id, user_id, role, created_ms) values (${orgId}, ${ada.userId}, 'owner', 0)`),
    );
    await ask('POST', 'session/org', { org_id: orgId });
  });

  test('is asked for ten minutes after the last confirmation', async () => {
    expect((await makeKey()).status).toBe(201);
    await api.world.clock.advance(TEN_MINUTES_MS - 1);
    expect((await makeKey()).status).toBe(201);
    await api.world.clock.advance(1);
    expect(await makeKey()).toMatchObject({ status: 403, json: { code: 'step_up_required' } });
    expect((await api.call('GET', '/v1/api-keys', { as: ada })).status).toBe(200);
    expect((await ask('POST', 'step-up', { password: PASSWORD })).status).toBe(200);
    expect((await makeKey()).status).toBe(201);
  });

  test('changes the token and keeps the principal, so operations of the session stay visible', async () => {
    const before = ada;
    const answer = await ask('POST', 'step-up', { password: PASSWORD });
    expect(ada.token).not.toBe(before.token);
    const { json } = await ask('GET', 'session');
    expect(answer.json['id']).toBe(json['id']);
    expect((await api.call('GET', '/v1/auth/session', { as: before })).status).toBe(401);
  });

  test('takes the password only of people without a second factor', async () => {
    const { secret } = await setUpTotp();
    expect(await ask('POST', 'step-up', { password: PASSWORD })).toMatchObject({
      status: 403,
      json: { code: 'second_factor_required' },
    });
    expect((await ask('POST', 'step-up', { code: codeAt(secret) })).status).toBe(401);
    await nextStep();
    expect((await ask('POST', 'step-up', { code: codeAt(secret) })).status).toBe(200);
    const { authenticator } = await setUpPasskey();
    expect((await ask('POST', 'step-up', { passkey: authenticator.get(await challenge()) })).status).toBe(200);
  });

  test('takes exactly one proof', async () => {
    expect((await ask('POST', 'step-up', {})).status).toBe(422);
    expect((await ask('POST', 'step-up', { password: PASSWORD, code: '123456' })).status).toBe(422);
  });

  test('slows guessing down too', async () => {
    for (let i = 0; i < 5; i += 1) expect((await ask('POST', 'step-up', { password: 'wrong' })).status).toBe(401);
    expect((await ask('POST', 'step-up', { password: PASSWORD })).status).toBe(429);
  });

  test('slows a thief of the session down who guesses from ever new networks, and not the person at home', async () => {
    const trusting = await openApi({}, { trustProxy: ['127.0.0.1'] });
    const at = (address: string, path: string, body: object, as?: Person): Promise<Answer> =>
      trusting.call('POST', `/v1/auth/${path}`, {
        headers: { 'x-forwarded-for': address },
        body,
        ...(as === undefined ? {} : { as }),
      });
    const body = { email: 'ada@example.com', name: 'Ada', password: PASSWORD, org_name: 'Acme' };
    const signedUp = await at('2001:db8::1', 'sign-up', body);
    const stolen = { ...ada, token: tokenIn(signedUp) ?? '' };
    const guess = async (i: number): Promise<number> =>
      (await at(`2001:db8:1:${i.toString(16)}::1`, 'step-up', { code: '000000' }, stolen)).status;
    for (let i = 1; i <= 50; i += 1) expect(await guess(i)).toBe(401);
    expect(await guess(51)).toBe(429);
    expect((await at('2001:db8::2', 'step-up', { password: PASSWORD }, stolen)).status).toBe(200);
    await trusting.close();
  });
});

describe('an operator', () => {
  test('may do nothing but set up a second factor before there is one', async () => {
    const { orgId } = await api.account();
    ada = await addPerson(api.world, { orgId, role: 'owner' }, { isOperator: true });
    const instances = (): Promise<Answer> => api.call('GET', '/v1/instances', { as: ada });
    expect(await instances()).toMatchObject({ status: 403, json: { code: 'second_factor_required' } });
    expect((await ask('GET', 'session')).json).toMatchObject({ must_enrol: true, scopes: [] });
    await setUpTotp();
    expect((await ask('GET', 'session')).json).toMatchObject({ must_enrol: false });
    expect((await instances()).status).toBe(200);
  });

  test('cannot remove the last second factor', async () => {
    ada = await addPerson(api.world, undefined, { isOperator: true });
    await setUpTotp();
    expect(await ask('DELETE', 'totp')).toMatchObject({ status: 409, json: { code: 'conflict' } });
    await setUpPasskey();
    expect((await ask('DELETE', 'totp')).status).toBe(204);
  });
});
