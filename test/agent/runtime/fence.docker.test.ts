// The network fence, attacked from inside real containers: with the fence, without it, and after others have meddled with it.
import { mkdtempSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type Docker from 'dockerode';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Bundle, BUNDLE_TARGET, prepareBundle } from '../../../agent/holders/bundle.ts';
import { readResolvers } from '../../../agent/host/facts.ts';
import { pullImage } from '../../kit/engine.ts';
import { busyboxImage, type TestImage } from '../../kit/images.ts';
import { MULTICAST_GROUP, NAMED_ADDRESS, openOutside, type Outside, UDP_PORT } from '../../kit/outside.ts';
import { eventually } from '../../kit/processes.ts';
import { requireProgram } from '../../kit/setup.ts';
import { startAgentWorld, type AgentWorld } from '../agent-world.ts';
import { attack, QUESTION, runInside } from './fence-attack.ts';

let world: AgentWorld;
let outside: Outside;
let image: TestImage;
let bundle: Bundle;
const resolvers = (await readResolvers()).filter((each) => /^\d/.test(each) && !each.startsWith('127.'));

const CLOSED = /^(10|192\.168|100|169\.254|172)\./;

const IPV6_SUBNET = 'fd00:88::/64';
const IPV6_GATEWAY = 'fd00:88::1';

beforeAll(async () => {
  world = await startAgentWorld({ quarantineMinutes: 0 });
  outside = await openOutside(world.engine, resolvers);
  image = await busyboxImage(world.registry);
  bundle = await prepareBundle(world.stateDir);
  const { docker } = world.engine;
  // An earlier agent that named no bridges has left this network.
  await docker.createNetwork({ Name: 'svc-wl_old', Labels: { 'svc.machine_id': 'earlier' } });
  await publishedPort();
  // Docker keeps networks apart too; here nothing may hide what the fence lets through.
  const iptables = requireProgram('iptables');
  await outside.onHost(iptables, '--wait', '-I', 'DOCKER-USER', '-j', 'ACCEPT');
  const leads = ['-p', 'tcp', '-d', '45.0.0.1', '--dport', '8082', '-j', 'DNAT', '--to', '45.0.0.2:80'];
  await outside.onHost(iptables, '--wait', '-t', 'nat', '-I', 'PREROUTING', ...leads);
  world.plane.desire(['wl_a', 'wl_b', 'wl_old'].map((id) => world.workload(id, image.pinnedRef)));
  for (const id of ['wl_a', 'wl_b', 'wl_old']) await world.plane.phase(id, 'running');
  await docker.getNetwork('svc-wl_old').connect({ Container: 'svc-wl_old' });
  await docker.getNetwork(await networkOf('wl_old')).disconnect({ Container: 'svc-wl_old' });
  await docker.createNetwork({
    Name: 'six',
    EnableIPv6: true,
    IPAM: { Config: [{ Subnet: IPV6_SUBNET, Gateway: IPV6_GATEWAY }] },
    Options: { 'com.docker.network.bridge.name': 'svcbr-six' },
  });
  await docker.getNetwork('six').connect({ Container: 'svc-wl_a' });
  for (const subnet of [IPV6_SUBNET, `${await addressOf('wl_b')}/32`]) await outside.routeBack(subnet);
  // The network that came last has the default route.
  for (const name of ['six', 'svc-wl_old']) await outside.join(await gatewayOf(name));
});
afterAll(async () => {
  const { docker } = world.engine;
  await docker.getContainer('published').remove({ force: true });
  await outside.stop();
  await world.stop();
});

/** A service of the supplier's own, reached at the host's port 8081. */
async function publishedPort(): Promise<void> {
  const { docker } = world.engine;
  await pullImage(docker, image.ref);
  const published = await docker.createContainer({
    name: 'published',
    Image: image.ref,
    Cmd: ['httpd', '-f', '-p', '80'],
    HostConfig: { PortBindings: { '80/tcp': [{ HostPort: '8081' }] } },
  });
  await published.start();
}

const networksOf = async (id: string): Promise<[string, Docker.NetworkInfo][]> =>
  Object.entries((await world.engine.docker.getContainer(`svc-${id}`).inspect()).NetworkSettings.Networks);
/** The one that the agent made for it, or has once made. */
const networkOf = async (id: string): Promise<string> =>
  (await networksOf(id)).map(([name]) => name).find((name) => name.startsWith('svc-')) ?? '';
const addressOf = async (id: string): Promise<string> =>
  (await networksOf(id)).find(([name]) => name.startsWith('svc-'))?.[1].IPAddress ?? '';
const gatewayOf = async (network: string): Promise<string> => {
  const { IPAM: ipam } = (await world.engine.docker.getNetwork(network).inspect()) as Docker.NetworkInspectInfo;
  const gateways = (ipam?.Config ?? []).map(({ Gateway: gateway }) => gateway ?? '');
  return gateways.find((gateway) => gateway.includes('.')) ?? '';
};

/** What a tenant has no business with, by its name. */
async function closed(id: string): Promise<Record<string, string>> {
  const gateway = await gatewayOf(await networkOf(id));
  const tcp = (host: string, port = 80): string => `tcp ${host} ${port}`;
  return {
    'the gateway': tcp(gateway, 8080),
    'the gateway by UDP': `udp ${gateway} ${UDP_PORT}`,
    'the host in its network': tcp('192.168.77.1', 8080),
    "the host's public address": tcp('45.0.0.1', 8080),
    "the host's public address by UDP": `udp 45.0.0.1 ${UDP_PORT}`,
    'a published port of the host': tcp('45.0.0.1', 8081),
    'a published port at the gateway': tcp(gateway, 8081),
    'a port that the host leads elsewhere': tcp('45.0.0.1', 8082),
    'a neighbour 192.168': tcp('192.168.77.2'),
    'a neighbour by UDP': `udp 192.168.77.2 ${UDP_PORT}`,
    'a neighbour 10': tcp('10.77.0.2'),
    'a neighbour 172.16': tcp('172.31.77.2'),
    'a neighbour 100.64': tcp('100.64.77.2'),
    'a neighbour 198.18': tcp('198.18.77.2'),
    "a neighbour in the host's public network": tcp('45.0.0.2'),
    'cloud metadata': tcp('169.254.169.254'),
    'platform address of Azure': tcp('168.63.129.16'),
    'IPv4 in IPv6': tcp('::ffff:192.168.77.2'),
    'another workload': tcp(await addressOf('wl_b'), 1),
    'a multicast group': `udp ${MULTICAST_GROUP.host} ${MULTICAST_GROUP.port}`,
  };
}

const CLOSED_IPV6 = {
  'the gateway': `tcp ${IPV6_GATEWAY} 8080`,
  'the gateway by UDP': `udp ${IPV6_GATEWAY} ${UDP_PORT}`,
  "the host's public address": 'tcp 2a00:77::1 8080',
  'a neighbour ULA': 'tcp fd00:77::2 80',
  "a neighbour in the host's public network": 'tcp 2a00:77::2 80',
  'a neighbour in 6to4': 'tcp 2002:c0a8:4d02::2 80',
};
const OPEN = {
  'a public address': 'tcp 46.0.0.2 80',
  'a public address by UDP': `udp 46.0.0.2 ${UDP_PORT}`,
  'and what a router says of a packet': 'icmp 46.0.0.2 9',
};
const OPEN_IPV6 = { 'a public address': 'tcp 2a00:78::2 80' };

/** Node in a container, by the container's name. */
const nodeIn =
  (name: string) =>
  (argv: string[]): Promise<string> =>
    runInside(world.engine.docker.getContainer(name), [...bundle.node, ...argv]);
const attackFrom = (id: string, targets: Record<string, string>): Promise<{ reached: string[]; refused: string[] }> =>
  attack(nodeIn(`svc-${id}`), targets);
const nothing = (targets: object): { reached: string[]; refused: string[] } => ({
  reached: [],
  refused: Object.keys(targets),
});
const everything = (targets: object): { reached: string[]; refused: string[] } => ({
  reached: Object.keys(targets),
  refused: [],
});

describe.each(['wl_a', 'wl_old'])('from %s', (id) => {
  test('neither the host nor anything private is reached', async () => {
    const targets = await closed(id);
    expect(await attackFrom(id, targets)).toEqual(nothing(targets));
  });

  test('the public internet is', async () => {
    expect(await attackFrom(id, OPEN)).toEqual(everything(OPEN));
  });

  test.skipIf(resolvers.length === 0)('names are resolved', async () => {
    const label = `for-${id.replace('_', '-')}`;
    const lookup = `require('node:dns').resolve4('${label}.test', (error, found) => console.log(String(error ?? found)))`;
    expect((await nodeIn(`svc-${id}`)(['-e', lookup])).trim()).toBe(NAMED_ADDRESS);
    await outside.asked(label);
  });

  test.skipIf(!CLOSED.test(resolvers[0] ?? ''))('a private name server is open at port 53 alone', async () => {
    const targets = { 'another port': `tcp ${resolvers[0]} 80` };
    expect(await attackFrom(id, targets)).toEqual(nothing(targets));
  });
});

const FROM_OUTSIDE = async (): Promise<Record<string, string>> => ({
  'a workload': `tcp ${await addressOf('wl_b')} 1`,
});
const onNeighbour = (argv: string[]): Promise<string> => outside.onNeighbour(process.execPath, ...argv);

test('no workload can be reached from outside; its host, and so its supplier, can reach it', async () => {
  const targets = await FROM_OUTSIDE();
  expect(await attack(onNeighbour, targets)).toEqual(nothing(targets));
  expect(await attack((argv) => outside.onHost(process.execPath, ...argv), targets)).toEqual(everything(targets));
});

test('IPv6: nothing private, and the public internet', async () => {
  expect(await attackFrom('wl_a', CLOSED_IPV6)).toEqual(nothing(CLOSED_IPV6));
  expect(await attackFrom('wl_a', OPEN_IPV6)).toEqual(everything(OPEN_IPV6));
});

describe('from a container with rights that ours do not have, in the network of a workload', () => {
  const crowbar = nodeIn('crowbar');
  beforeAll(async () => {
    const made = await world.engine.docker.createContainer({
      name: 'crowbar',
      Image: image.ref,
      HostConfig: {
        NetworkMode: await networkOf('wl_a'),
        CapAdd: ['NET_ADMIN'],
        Binds: [`${bundle.folder}:${BUNDLE_TARGET}:ro`],
      },
    });
    await made.start();
    return () => made.remove({ force: true });
  });

  test('raw sockets do not help', async () => {
    const [gateway, address] = [await gatewayOf(await networkOf('wl_a')), await addressOf('wl_b')];
    const targets = {
      'the gateway': `ping ${gateway}`,
      'the host': 'ping 45.0.0.1',
      'a neighbour': 'ping 192.168.77.2',
      'another workload': `ping ${address}`,
    };
    expect(await attack(crowbar, targets)).toEqual(nothing(targets));
    const open = { 'a public address': 'ping 46.0.0.2' };
    expect(await attack(crowbar, open)).toEqual(everything(open));
  });

  test('an address of its own choice does not leave the network', async () => {
    const ask = (name: string, from: string): Promise<string> => crowbar(['-e', QUESTION, name, NAMED_ADDRESS, from]);
    await runInside(world.engine.docker.getContainer('crowbar'), [
      '/bin/ip',
      'addr',
      'add',
      '9.9.9.9/32',
      'dev',
      'eth0',
    ]);
    await ask('spoofed', '9.9.9.9');
    await ask('honest', '0.0.0.0');
    await outside.asked('honest');
    expect(outside.names()).not.toContain('spoofed');
  });

  test('containers of one network reach each other, where bridged packets pass the rules too', async () => {
    await outside.onHost('sysctl', '-qw', 'net.bridge.bridge-nf-call-iptables=1');
    const address = await addressOf('wl_a');
    const targets = { port: `tcp ${address} 1`, ping: `ping ${address}` };
    expect(await attack(crowbar, targets)).toEqual(everything(targets));
  });
});

test('a table that was deleted, and one that was weakened, are put back', async () => {
  const table = (): Promise<string> =>
    outside.onHost('nft', '-s', 'list', 'table', 'inet', 'svc_fence').catch(() => 'none');
  const before = await table();
  for (const meddle of [
    ['delete', 'table', 'inet', 'svc_fence'],
    ['flush', 'chain', 'inet', 'svc_fence', 'to_host'],
    ['insert', 'rule', 'inet', 'svc_fence', 'forward', 'accept'],
  ]) {
    await outside.onHost('nft', ...meddle);
    await eventually('the fence', 15_000, async () => (await table()) === before || undefined);
  }
});

/** The test of the tests: without the fence all of it is open, so that what was refused above was refused by the fence. */
test('an agent that leaves keeps the fence; without it, every attack succeeds; the next agent puts it up again', async () => {
  await world.agent().stop('SIGTERM');
  const targets = await closed('wl_a');
  expect(await attackFrom('wl_a', targets)).toEqual(nothing(targets));
  await outside.onHost('nft', 'delete', 'table', 'inet', 'svc_fence');
  expect(await attackFrom('wl_a', targets)).toEqual(everything(targets));
  expect(await attackFrom('wl_a', CLOSED_IPV6)).toEqual(everything(CLOSED_IPV6));
  const fromOutside = await FROM_OUTSIDE();
  expect(await attack(onNeighbour, fromOutside)).toEqual(everything(fromOutside));
  await world.startAgent();
  await world.agent().waitForOutput(/the network fence stands/, 30_000);
  expect(await world.svcAgent('status')).toMatchObject({ code: 0 });
  expect(await attackFrom('wl_a', targets)).toEqual(nothing(targets));
});

describe('with an nft that', () => {
  /** Starts the agent with a script in place of nft; resolves with why the fence does not stand. */
  async function reasonWith(script: string): Promise<string> {
    await world.agent().stop('SIGTERM');
    const bin = mkdtempSync(join(world.dir, 'bin-'));
    writeFileSync(join(bin, 'nft'), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
    const hellos = world.plane.hellos.length;
    await world.startAgent({ PATH: `${bin}:${process.env['PATH']}` });
    const said = await eventually('the reason', 15_000, () =>
      Promise.resolve((world.plane.hellos.length > hellos && world.plane.inventory()?.fence_error) || undefined),
    );
    expect(world.plane.inventory()?.network_fence).toBe('nftables');
    return said;
  }

  test('leaves a hole, the attack finds it', async () => {
    const hole = `case $1 in -f) sed 's/chain to_host {/& accept;/' | ${requireProgram('nft')} -f - ;; *) exec ${requireProgram('nft')} "$@" ;; esac`;
    expect(await reasonWith(hole)).toContain('a container reached this host');
  });

  test('puts the rules where no container passes, the attack finds that too', async () => {
    await outside.onHost('nft', 'delete', 'table', 'inet', 'svc_fence');
    expect(await reasonWith('echo packets 5')).toContain('it saw no packet of a container');
  });

  test('fails, the host says why, what runs goes on, and nothing new is started', async () => {
    expect(await reasonWith('echo "Operation not permitted" >&2; exit 1')).toContain('Operation not permitted');
    const { code: wellOrNot, stdout } = await world.svcAgent('status');
    expect(stdout.toString()).toMatch(/^network fence: nftables, does not stand: nft .* Operation not permitted$/m);
    expect(wellOrNot).toBe(1);
    world.plane.desire(['wl_a', 'wl_b', 'wl_old', 'wl_late'].map((id) => world.workload(id, image.pinnedRef)));
    const { failure_code: code, detail } = await world.plane.phase('wl_late', 'failed');
    expect(code).toBe('start_failed');
    expect(detail).toContain('Operation not permitted');
    expect(await world.plane.phase('wl_a', 'running')).toBeDefined();
    expect((await world.engine.docker.getContainer('svc-wl_late').inspect()).State.Status).toBe('created');
  });
});
