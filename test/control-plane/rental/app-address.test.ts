// Host names, logins and headers of applications: what is read from a request, and what is passed on.
import { describe, expect, test } from 'vitest';
import { type AppAddress, appUrl, readAppHost } from '../../../control-plane/rental/endpoints/app-address.ts';
import { requestHeaders, responseHeaders } from '../../../control-plane/rental/edge/app-headers.ts';
import { enter, loginCookie } from '../../../control-plane/rental/edge/access.ts';

const ID = 'i-abcdefghij234567abcd';
const DOMAIN = 'apps.example.com';
const HOST = `${ID}.${DOMAIN}`;

describe('a host name', () => {
  test.each([
    [`${ID}.${DOMAIN}`, { instanceId: ID, at: 'primary' }],
    [`${ID.toUpperCase()}.Apps.Example.com:8443`, { instanceId: ID, at: 'primary' }],
    [`p8080-${ID}.${DOMAIN}`, { instanceId: ID, at: 8080 }],
    [`term-${ID}.${DOMAIN}`, { instanceId: ID, at: 'terminal' }],
    [`term-p80-${ID}.${DOMAIN}`, undefined],
    [`p08-${ID}.${DOMAIN}`, undefined],
    [`x-${ID}.${DOMAIN}`, undefined],
    [`${ID}.${DOMAIN}.evil.com`, undefined],
    [`${ID}.evil${DOMAIN}`, undefined],
    [DOMAIN, undefined],
    ['', undefined],
  ])('%j is read as %j', (host, address) => expect(readAppHost(host, DOMAIN)).toEqual(address));

  test('is that of the URL, with a port if it is not 443', () => {
    const url = (publicPort: number, at: AppAddress['at']): string =>
      appUrl({ domain: DOMAIN, publicPort }, { instanceId: ID, at });
    expect(url(443, 'primary')).toBe(`https://${ID}.${DOMAIN}`);
    expect(url(443, 'terminal')).toBe(`https://term-${ID}.${DOMAIN}`);
    expect(url(8443, 80)).toBe(`https://p80-${ID}.${DOMAIN}:8443`);
  });
});

describe('the login', () => {
  const login = { user: 'svc', password: 'secret:with colon' };
  const basic = (text: string): string => `Basic ${Buffer.from(text).toString('base64')}`;
  test.each([
    ['Basic', { authorization: basic('svc:secret:with colon') }, 'authorization'],
    [
      'basic in lower case',
      { authorization: basic('svc:secret:with colon').replace('Basic', 'basic') },
      'authorization',
    ],
    ['the password as Bearer', { authorization: 'Bearer secret:with colon' }, 'authorization'],
    ['X-Svc-Auth as Basic', { 'x-svc-auth': basic('svc:secret:with colon') }, 'x-svc-auth'],
    [
      'X-Svc-Auth with the bare password',
      { 'x-svc-auth': 'secret:with colon', authorization: 'Bearer other' },
      'x-svc-auth',
    ],
  ])('%s opens', (_, headers, through) => expect(enter(headers, login, HOST)).toEqual({ ok: true, through }));

  test.each([
    ['nothing', {}],
    ['a wrong password', { authorization: basic('svc:wrong') }],
    ['a wrong user', { authorization: basic('root:secret:with colon') }],
    ['another scheme', { authorization: 'Digest secret:with colon' }],
    ['the bare password as Authorization', { authorization: 'secret:with colon' }],
    [
      'a wrong X-Svc-Auth, whatever else is right',
      { 'x-svc-auth': 'x', authorization: basic('svc:secret:with colon') },
    ],
  ])('%s does not', (_, headers) => expect(enter(headers, login, HOST)).toEqual({ ok: false }));
});

describe('the cookie of a page that was opened with the login', () => {
  const login = { user: 'svc', password: 'secret' };
  const pair = loginCookie({ 'sec-fetch-mode': 'navigate' }, login, HOST)[1]?.split(';')[0] ?? '';
  const own = { cookie: `a=1; ${pair}`, origin: `https://${HOST}` };

  test('is for this host and TLS only, out of reach of scripts and other sites, and does not say the password', () => {
    const [name, value = ''] = loginCookie({ 'sec-fetch-mode': 'navigate' }, login, HOST);
    expect(name).toBe('Set-Cookie');
    expect(value).toMatch(/^__Host-svc-login=[\w-]{43}; Path=\/; Secure; HttpOnly; SameSite=Strict$/);
    expect(loginCookie({}, login, HOST)).toEqual([]);
  });

  test.each([
    ['a request of that page', own],
    ['a GET that names no origin', { cookie: pair }],
    ['a GET of that page', { cookie: pair, 'sec-fetch-site': 'same-origin' }],
  ])('opens for %s', (_, headers) => {
    expect(enter(headers, login, HOST)).toEqual({ ok: true, through: '__Host-svc-login' });
  });

  test.each([
    ['a page of a neighbour', { ...own, origin: `https://i-zzzzzghij234567abcd.${DOMAIN}` }],
    ['a page without an origin', { ...own, origin: 'null' }],
    ['a picture on a page of a neighbour', { cookie: pair, 'sec-fetch-site': 'same-site' }],
    ['another value', { ...own, cookie: `${pair}x` }],
  ])('does not open for %s', (_, headers) => expect(enter(headers, login, HOST)).toEqual({ ok: false }));

  test('of one host does not open another, nor after the password has changed', () => {
    expect(enter({ cookie: pair }, login, `term-${HOST}`)).toEqual({ ok: false });
    expect(enter({ cookie: pair }, { ...login, password: 'new' }, HOST)).toEqual({ ok: false });
  });
});

describe('headers', () => {
  const facts = {
    clientIp: '203.0.113.9',
    host: 'h',
    without: ['authorization'],
    withoutCookie: 'ours',
    isUpgrade: false,
  };

  test('lose our login cookie, and no other', () => {
    const cookies = (...values: string[]): string[] => values.flatMap((value) => ['Cookie', value]);
    const raw = cookies('a=1; ours=x; b=2', 'ours=y', 'yours=1');
    expect(requestHeaders(raw, facts).slice(0, 4)).toEqual(cookies('a=1; b=2', 'yours=1'));
  });

  test('of a request lose the login, forged origins and what belongs to the connection; the rest stays as it was', () => {
    const raw = ['Host', 'h', 'X-Two', '1', 'x-two', '2', 'Authorization', 'Basic x', 'X-Forwarded-For', '1.2.3.4'];
    raw.push('Forwarded', 'for=1.2.3.4', 'Connection', 'keep-alive, X-Hop', 'X-Hop', '1', 'TE', 'trailers');
    const kept = ['Host', 'h', 'X-Two', '1', 'x-two', '2'];
    const ours = ['X-Forwarded-For', '203.0.113.9', 'X-Forwarded-Host', 'h', 'X-Forwarded-Proto', 'https'];
    expect(requestHeaders(raw, facts)).toEqual([...kept, ...ours]);
  });

  // CGI, WSGI and PHP give an application X_Forwarded_For and X-Forwarded-For under one name.
  test.each(['x-forwarded-for', 'X_FORWARDED_FOR', 'X-Forwarded_Host', 'x_real_ip', 'X-Forwarded-Prefix', 'FORWARDED'])(
    'of a request lose %s of a client, also twice, in an upgrade, or if Connection names ours',
    (name) => {
      const raw = [
        name,
        '1.2.3.4',
        'Host',
        'h',
        name,
        'x',
        'Connection',
        'Upgrade, X-Forwarded-For',
        'Upgrade',
        'echo',
      ];
      const ours = ['X-Forwarded-For', '203.0.113.9', 'X-Forwarded-Host', 'h', 'X-Forwarded-Proto', 'https'];
      expect(requestHeaders(raw, facts)).toEqual(['Host', 'h', ...ours]);
      const upgrade = ['Connection', 'Upgrade', 'Upgrade', 'echo'];
      expect(requestHeaders(raw, { ...facts, isUpgrade: true })).toEqual(['Host', 'h', ...upgrade, ...ours]);
    },
  );

  test('keep an Authorization that did not open the endpoint', () => {
    const raw = ['Authorization', 'Bearer own', 'X-Svc-Auth', 'secret'];
    expect(requestHeaders(raw, { ...facts, without: ['x-svc-auth'] }).slice(0, 2)).toEqual([
      'Authorization',
      'Bearer own',
    ]);
  });

  test('carry an upgrade only if it is one, and mark a chunked body', () => {
    const raw = ['Connection', 'Upgrade', 'Upgrade', 'websocket', 'Transfer-Encoding', 'chunked'];
    expect(requestHeaders(raw, { ...facts, isUpgrade: true })).toEqual(
      expect.arrayContaining(['Connection', 'Upgrade', 'Upgrade', 'websocket']),
    );
    const plain = requestHeaders(raw, facts);
    expect(plain).not.toContain('Upgrade');
    expect(plain.slice(0, 2)).toEqual(['Transfer-Encoding', 'chunked']);
  });

  test('of an answer lose the domain of cookies, so that a cookie stays with its host', () => {
    const raw = [
      'Set-Cookie',
      'a=1; Domain=apps.example.com; Path=/',
      'X-Domain',
      'a; domain=b',
      'Keep-Alive',
      'timeout=5',
    ];
    expect(responseHeaders(raw)).toEqual(['Set-Cookie', 'a=1; Path=/', 'X-Domain', 'a; domain=b']);
  });
  test.each([
    'Domain=x',
    'domain =x',
    ' Domain =x',
    '\tDOMAIN\t= x',
    'Domain',
    ' domain ; Domain = y',
    'Domain==x',
    'Domain=.apps.example.com',
  ])('of an answer have no cookie with the attribute %j, however it is written', (attribute) => {
    const [, cookie] = responseHeaders(['Set-Cookie', `a=1;${attribute}; Secure`]);
    expect(cookie).toBe('a=1; Secure');
  });
  test.each(['domain=1', 'a=1; Path=/domain=2', 'a=domain=x', 'a=1; X-Domain=y', 'domain'])(
    'of an answer keep the cookie %j, which names no domain',
    (cookie) => expect(responseHeaders(['Set-Cookie', cookie])).toEqual(['Set-Cookie', cookie]),
  );
});
