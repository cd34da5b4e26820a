// Signing in from Chromium over plain HTTP at localhost: the browser keeps the cookie that only our host may set, sends it from our own page alone,
// and its authenticator makes passkeys that we accept.
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Api, openApi } from '../contract/api.ts';
import { freePort } from '../kit/ports.ts';
import { openBrowser } from '../kit/web-clients.ts';

const PERSON = { email: 'ada@example.com', password: 'correct horse battery' };

let api: Api;
let browser: Browser;
let page: Page;
let port: number;
beforeAll(async () => {
  port = await freePort();
  const origin = `http://localhost:${port}`;
  api = await openApi({ settings: { origin } }, { baseUrl: `${origin}/v1` });
  await api.http.listen({ host: '127.0.0.1', port });
  await api.call('POST', '/v1/auth/sign-up', { body: { ...PERSON, name: 'Ada', org_name: 'Acme' } });
  browser = await openBrowser();
  page = await (await browser.newContext()).newPage();
  // A page of ours without a content policy, which would forbid the requests of this test.
  await page.goto(`${origin}/v1/gpu-types`);
});
afterAll(async () => {
  await browser.close();
  await api.http.close();
  await api.close();
});

/** What a script of the page gets for a request; 0 if the browser does not let it read the answer. */
const fetched = (on: Page, path: string, body?: object): Promise<{ status: number; json: Record<string, unknown> }> =>
  on.evaluate(
    async ([url, sent]) => {
      const json = { 'content-type': 'application/json' };
      const request = sent === undefined ? {} : { method: 'POST', headers: json, body: JSON.stringify(sent) };
      const answer = await fetch(url, { credentials: 'include', ...request }).catch(() => undefined);
      const text = (await answer?.text()) ?? '';
      return { status: answer?.status ?? 0, json: text === '' ? {} : JSON.parse(text) };
    },
    [path, body] as const,
  );

test('the browser keeps the cookie, shows it to no script, and sends it with requests of our page', async () => {
  expect((await fetched(page, '/v1/auth/session')).status).toBe(401);
  expect((await fetched(page, '/v1/auth/sign-in', PERSON)).status).toBe(201);
  expect((await fetched(page, '/v1/auth/session')).json).toMatchObject({ user: { email: PERSON.email } });
  expect(await page.evaluate('document.cookie')).toBe('');
  const [cookie] = await page.context().cookies();
  expect(cookie).toMatchObject({
    name: '__Host-svc_session',
    secure: true,
    httpOnly: true,
    sameSite: 'Lax',
    path: '/',
  });
});

test('another page of the same browser changes nothing', async () => {
  const other = await page.context().newPage();
  // Another host for a browser, the same server.
  await other.goto(`http://127.0.0.1:${port}/v1/gpu-types`);
  expect((await fetched(other, `http://localhost:${port}/v1/auth/sign-out`, {})).status).toBe(0);
  await other.close();
  expect((await fetched(page, '/v1/auth/session')).status).toBe(200);
});

/** A script of the page: the authenticator answers the options, in JSON. */
function askAuthenticator(verb: 'create' | 'get', options: object): string {
  const parse = verb === 'create' ? 'parseCreationOptionsFromJSON' : 'parseRequestOptionsFromJSON';
  const publicKey = `PublicKeyCredential.${parse}(${JSON.stringify(options)})`;
  return `navigator.credentials.${verb}({ publicKey: ${publicKey} }).then((answer) => answer.toJSON())`;
}

test('a passkey of its authenticator is registered, and signs in', async () => {
  const devices = await page.context().newCDPSession(page);
  await devices.send('WebAuthn.enable');
  const options = {
    protocol: 'ctap2',
    transport: 'internal',
    hasResidentKey: true,
    hasUserVerification: true,
  } as const;
  await devices.send('WebAuthn.addVirtualAuthenticator', {
    options: { ...options, isUserVerified: true, automaticPresenceSimulation: true },
  });
  const creation = (await fetched(page, '/v1/auth/passkeys/registration', {})).json;
  const created = await page.evaluate(askAuthenticator('create', creation));
  expect((await fetched(page, '/v1/auth/passkeys', { name: 'laptop', passkey: created })).status).toBe(201);
  expect((await fetched(page, '/v1/auth/sign-out', {})).status).toBe(204);
  expect((await fetched(page, '/v1/auth/sign-in', PERSON)).json).toMatchObject({ code: 'second_factor_required' });
  for (let round = 0; round < 2; round += 1) {
    const request = (await fetched(page, '/v1/auth/passkeys/options', {})).json;
    const signed = await page.evaluate(askAuthenticator('get', request));
    const entered = await fetched(page, '/v1/auth/passkeys/sign-in', { passkey: signed });
    expect(entered).toMatchObject({ status: 201, json: { user: { email: PERSON.email }, passkeys: 1 } });
  }
});
