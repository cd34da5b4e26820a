// Which URLs and addresses may be called: every spelling of an internal address is refused, by default and beside exceptions.
import { describe, expect, test } from 'vitest';
import { openPolicy, type OutboundPolicy } from '../../../../control-plane/base/outbound/policy.ts';

const PUBLIC: OutboundPolicy = { ports: [443, 8443], privateNetworks: [], namedHosts: [] };
const policy = openPolicy(PUBLIC);
const refusal = (url: string, rules: Partial<OutboundPolicy> = {}): string | undefined => {
  try {
    openPolicy({ ...PUBLIC, ...rules }).target(url);
    return undefined;
  } catch (error) {
    expect(error).toMatchObject({ name: 'OutboundError', code: 'blocked_address', remoteAddress: null });
    return (error as Error).message;
  }
};

describe('a URL', () => {
  test.each([
    'https://example.com',
    'https://example.com:8443/a?b=c',
    'https://93.184.215.14/',
    'https://[2606:4700::1111]/',
    'https://[2003::1]/',
    'https://168.63.129.15/',
    'https://168.63.129.17/',
  ])('may be called: %s', (url) => expect(refusal(url)).toBeUndefined());
  test.each([
    ['nonsense', 'a whole URL'],
    ['/hook', 'a whole URL'],
    ['http://example.com/', 'https'],
    ['ftp://example.com/', 'https'],
    ['file:///etc/passwd', 'https'],
    ['https://user@example.com/', 'user name or password'],
    ['https://:secret@example.com/', 'user name or password'],
    ['https://example.com:22/', 'port 443 or 8443'],
    ['https://example.com:80/', 'port 443 or 8443'],
    ['https://localhost/', 'localhost'],
    ['https://LOCALHOST./', 'localhost'],
    ['https://a.localhost/', 'localhost'],
  ])('is refused: %s', (url, rule) => expect(refusal(url)).toContain(rule));

  test.each([
    '127.0.0.1',
    '127.1',
    '2130706433',
    '0x7f000001',
    '0x7f.1',
    '0177.0.0.1',
    '127.0.0.1.',
    '%31%32%37.0.0.1',
    '１２７.0.0.1',
    '0.0.0.0',
    '10.0.0.1',
    '172.16.0.1',
    '192.168.1.1',
    '169.254.169.254',
    '100.64.0.1',
    '192.0.0.8',
    '198.18.0.1',
    '192.0.2.1',
    '198.51.100.1',
    '203.0.113.1',
    '224.0.0.1',
    '240.0.0.1',
    '255.255.255.255',
    '[::]',
    '[::1]',
    '[fe80::1]',
    '[fc00::1]',
    '[fd00:ec2::254]',
    '[ff02::1]',
    '[2001:db8::1]',
    '[3fff::1]',
    '[5f00::1]',
    '[::ffff:127.0.0.1]',
    '[::ffff:8.8.8.8]',
    '[::ffff:0:127.0.0.1]',
    '[64:ff9b::7f00:1]',
    '[64:ff9b:1::7f00:1]',
    '[2002:7f00:1::]',
    '[2001::1]',
    '[0:0:0:0:0:ffff:7f00:1]',
    '[::7f00:1]',
    '[::a9fe:a9fe]',
    '[100:0:0:1::1]',
    '[4000::1]',
    '[1fff:ffff::1]',
    '168.63.129.16',
  ])('is refused for its literal address: %s', (host) => {
    expect(refusal(`https://${host}/`)).toContain('not a public address');
  });
});

describe('an exception', () => {
  test('for a private network allows its own addresses and no others', () => {
    const privateNetworks = ['10.1.0.0/16', 'fd00::/64'];
    expect(refusal('https://10.1.255.255/', { privateNetworks })).toBeUndefined();
    expect(refusal('https://[fd00::1]/', { privateNetworks })).toBeUndefined();
    expect(refusal('https://10.2.0.0/', { privateNetworks })).toContain('10.2.0.0');
    expect(refusal('https://[fd00:0:0:1::1]/', { privateNetworks })).toContain('fd00:0:0:1::1');
    expect(refusal('https://[::ffff:10.1.0.1]/', { privateNetworks })).toContain('not a public address');
    expect(refusal('http://10.1.0.1/', { privateNetworks })).toContain('https');
    expect(refusal('https://10.1.0.1:22/', { privateNetworks })).toContain('port');
  });
  test('that is not a network is refused at once', () => {
    expect(() => openPolicy({ ...PUBLIC, privateNetworks: ['10.0.0.0'] })).toThrow(/CIDR/i);
  });
  test('for a configured host allows any address, at the configured port only', () => {
    const namedHosts = [
      { host: '127.0.0.1:5000', plainHttp: true },
      { host: 'registry.internal', plainHttp: false },
      { host: 'tls.internal:443', plainHttp: false },
    ];
    expect(refusal('http://127.0.0.1:5000/v2/', { namedHosts })).toBeUndefined();
    expect(refusal('https://127.0.0.1:5000/v2/', { namedHosts })).toBeUndefined();
    expect(refusal('https://127.0.0.1/', { namedHosts })).toContain('not a public address');
    expect(refusal('https://registry.internal:5001/', { namedHosts })).toBeUndefined();
    expect(refusal('http://registry.internal/', { namedHosts })).toContain('https');
    expect(openPolicy({ ...PUBLIC, namedHosts }).target('https://tls.internal/')).toMatchObject({ isNamed: true });
    expect(refusal('https://a@registry.internal/', { namedHosts })).toContain('user name');
  });
});

describe('an address that a name resolved to', () => {
  const target = policy.target('https://example.com/');
  test.each(['8.8.8.8', '2606:4700::1111'])('may be connected to: %s', (address) => {
    expect(policy.allows(target, address)).toBe(true);
  });
  test.each(['127.0.0.1', '10.0.0.1', '169.254.169.254', '::1', '::ffff:8.8.8.8', 'fe80::1%eth0', 'nonsense', ''])(
    'may not: %s',
    (address) => expect(policy.allows(target, address)).toBe(false),
  );
});
