// Names, logins and headers of applications: what is read from a request, and what of it goes on.
import { describe, expect, test } from 'vitest';
import { appUrl, readAppHost } from '../../../control-plane/rental/doors/app-address.ts';
import { requestHeaders, responseHeaders } from '../../../control-plane/rental/edge/app-headers.ts';
import { enter } from '../../../control-plane/rental/edge/app-login.ts';

const ID = 'i-abcdefghij234567abcd';
const DOMAIN = 'apps.example.com';

describe('a host name', () => {
  test.each([
    [`${ID}.${DOMAIN}`, { instanceId: ID, port: null }],
    [`${ID.toUpperCase()}.Apps.Example.com:8443`, { instanceId: ID, port: null }],
    [`p8080-${ID}.${DOMAIN}`, { instanceId: ID, port: 8080 }],
    [`p08-${ID}.${DOMAIN}`, undefined],
    [`x-${ID}.${DOMAIN}`, undefined],
    [`${ID}.${DOMAIN}.evil.com`, undefined],
    [`${ID}.evil${DOMAIN}`, undefined],
    [DOMAIN, undefined],
    ['', undefined],
  ])('%j is read as %j', (host, address) => expect(readAppHost(host, DOMAIN)).toEqual(address));

  test('is what the URL says, with a port where it is not the usual one', () => {
    expect(appUrl({ domain: DOMAIN, publicPort: 443 }, ID)).toBe(`https://${ID}.${DOMAIN}`);
    expect(appUrl({ domain: DOMAIN, publicPort: 8443 }, ID, 80)).toBe(`https://p80-${ID}.${DOMAIN}:8443`);
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
  ])('%s opens', (_, headers, through) => expect(enter(headers, login)).toEqual({ ok: true, through }));

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
  ])('%s does not', (_, headers) => expect(enter(headers, login)).toEqual({ ok: false }));
});

describe('headers', () => {
  const facts = { clientIp: '203.0.113.9', host: 'h', without: 'authorization', isUpgrade: false };

  test('of a request lose the login, forged origins and what belongs to the connection; the rest stays as it was', () => {
    const raw = ['Host', 'h', 'X-Two', '1', 'x-two', '2', 'Authorization', 'Basic x', 'X-Forwarded-For', '1.2.3.4'];
    raw.push('Forwarded', 'for=1.2.3.4', 'Connection', 'keep-alive, X-Hop', 'X-Hop', '1', 'TE', 'trailers');
    const kept = ['Host', 'h', 'X-Two', '1', 'x-two', '2'];
    const ours = ['X-Forwarded-For', '203.0.113.9', 'X-Forwarded-Host', 'h', 'X-Forwarded-Proto', 'https'];
    expect(requestHeaders(raw, facts)).toEqual([...kept, ...ours]);
  });

  test('keep an Authorization that did not open the door', () => {
    const raw = ['Authorization', 'Bearer own', 'X-Svc-Auth', 'secret'];
    expect(requestHeaders(raw, { ...facts, without: 'x-svc-auth' }).slice(0, 2)).toEqual([
      'Authorization',
      'Bearer own',
    ]);
  });

  test('carry an upgrade only where it is one, and say that a body comes in chunks', () => {
    const raw = ['Connection', 'Upgrade', 'Upgrade', 'websocket', 'Transfer-Encoding', 'chunked'];
    expect(requestHeaders(raw, { ...facts, isUpgrade: true })).toEqual(
      expect.arrayContaining(['Connection', 'Upgrade', 'Upgrade', 'websocket']),
    );
    const plain = requestHeaders(raw, facts);
    expect(plain).not.toContain('Upgrade');
    expect(plain.slice(0, 2)).toEqual(['Transfer-Encoding', 'chunked']);
  });

  test('of an answer keep cookies with the host that set them', () => {
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
});
