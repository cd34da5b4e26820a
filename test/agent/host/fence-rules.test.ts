// The rules of the fence as text: bridges, name servers and closed networks.
import type { NetworkInterfaceInfo } from 'node:os';
import { expect, test } from 'vitest';
import { fenceRules } from '../../../agent/host/nftables.ts';
import { readOwnNetworks, engineDnsOf, nameServersOf } from '../../../agent/host/facts.ts';

const lines = (text: string): string[] => text.split('\n').map((line) => line.trim());

test('the table is replaced in one transaction', () => {
  expect(lines(fenceRules({ bridges: [], resolvers: [], networks: [] })).slice(0, 3)).toEqual([
    'table inet svc_fence',
    'delete table inet svc_fence',
    'table inet svc_fence {',
  ]);
});

test('bridges without our prefix are fenced one by one, in both directions and towards the host', () => {
  const rules = lines(fenceRules({ bridges: ['br-2', 'br-1'], resolvers: [], networks: [] }));
  expect(rules.filter((line) => line.includes(' jump '))).toEqual(
    [
      ['iifname', 'to_host'],
      ['iifname', 'from_container'],
      ['oifname', 'to_container'],
    ].flatMap(([direction, chain]) =>
      ['svcbr-*', 'br-1', 'br-2'].map((bridge) => `${direction} "${bridge}" jump ${chain}`),
    ),
  );
});

test('name servers are open at port 53 only, on this host and beyond; those that containers cannot use are left out', () => {
  const resolvers = ['192.168.1.1', '127.0.0.53', '::1', 'fe80::1%eth0', 'fd00::53', '192.168.1.1', 'nonsense; accept'];
  const accepted = lines(fenceRules({ bridges: [], resolvers, networks: [] })).filter((line) => line.includes('dport'));
  const once = [
    'ip daddr { 192.168.1.1 } udp dport 53 accept',
    'ip daddr { 192.168.1.1 } tcp dport 53 accept',
    'ip6 daddr { fd00::53 } udp dport 53 accept',
    'ip6 daddr { fd00::53 } tcp dport 53 accept',
  ];
  expect(accepted).toEqual([...once, ...once]);
});

test('the same facts in another order give the same rules', () => {
  const [one, two] = [
    { bridges: ['a', 'b'], resolvers: ['10.0.0.1', '10.0.0.2'], networks: ['45.0.0.1/24', '46.0.0.1/24'] },
    {
      bridges: ['b', 'a'],
      resolvers: ['10.0.0.2', '10.0.0.1', '10.0.0.1'],
      networks: ['46.0.0.1/24', '45.0.0.1/24', '172.17.0.1/16'],
    },
  ];
  expect(fenceRules(one)).toBe(fenceRules(two));
});

test('name servers are read from resolv.conf and daemon.json', () => {
  const conf =
    '# nameserver 9.9.9.9\nsearch lan\nnameserver 192.168.1.1\n  nameserver\tfe80::1%eth0 # router\noptions edns0\n';
  expect(nameServersOf(conf)).toEqual(['192.168.1.1', 'fe80::1%eth0']);
  expect(engineDnsOf('{"dns": ["10.0.0.2"], "live-restore": true}')).toEqual(['10.0.0.2']);
  for (const text of ['', '{', '{"dns": "10.0.0.2"}', '{"live-restore": true}']) expect(engineDnsOf(text)).toEqual([]);
});

test("the host's own public networks are closed; private ones change nothing, and a network of half the internet is ignored", () => {
  const networks = [
    '45.0.0.1/24',
    '2a00:77::1/64',
    '10.0.0.1/8',
    'fe80::1/64',
    'fd00::1/64',
    '2002::1/64',
    '8.8.8.8/1',
    'x/24',
  ];
  const own = lines(fenceRules({ bridges: [], resolvers: [], networks })).filter((line) =>
    /daddr [^{!]*\/\d+ goto/.test(line),
  );
  expect(new Set(own)).toEqual(new Set(['ip6 daddr 2a00:77::1/64 goto refuse', 'ip daddr 45.0.0.1/24 goto refuse']));
});

test('the networks of an interface are read with their prefix lengths, and loopback is left out', () => {
  const of = (cidr: string | null, internal = false): NetworkInterfaceInfo =>
    ({ cidr, internal }) as NetworkInterfaceInfo;
  const interfaces = { lo: [of('127.0.0.1/8', true)], eth0: [of('45.0.0.1/24'), of('2a00:77::1/64')], odd: [of(null)] };
  expect(readOwnNetworks(interfaces)).toEqual(['45.0.0.1/24', '2a00:77::1/64']);
});
