// The public ports of a control plane that serves beside the primary: its connections reach the hosts through the primary.
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { type Duplex, duplexPair } from 'node:stream';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Foundation } from '../../control-plane/foundation.ts';
import { openPrimaryStreams, portOpener } from '../../control-plane/primary-streams.ts';
import { openPortStreams, type PortStreams } from '../../control-plane/rental/edge/port-streams.ts';
import { openPublicPorts, type PublicPorts } from '../../control-plane/rental/edge/public-ports.ts';
import { SSH_KEYS_PER_ORG_MAX } from '../../shared/limits.ts';
import { createLog } from '../../shared/log.ts';
import type { OpenMessage } from '../../shared/protocol/link.ts';
import { createIds } from '../../shared/ids.ts';
import { seededRng } from '../../shared/rng.ts';
import { freePort } from '../kit/ports.ts';
import { openPeerPrimary, type PeerPrimary } from './fleet/peer-primary.ts';

const HOST = '127.0.0.5';
/** All keys that an organisation may have. Together they are longer than the head of a request may be. */
const KEYS = Array.from({ length: SSH_KEYS_PER_ORG_MAX }, (_, i) => `ssh-rsa ${'A'.repeat(700)} ${i}`);

let primary: PeerPrimary;
let now: ReturnType<Foundation['primary']>;
let ports: PublicPorts;
let sshPort: number;
let appPort: number;
let lines: string[];
let mayConnect: boolean;
/** What the host waits for before it opens a stream. */
let ready: Promise<void>;
/** What the host was asked for, and both ends of the streams. */
let asked: OpenMessage['target'][];
let opened: Duplex[];
let hosts: Duplex[];
/** Asked while this process is the primary itself. */
let own: PortStreams['ask'];
const clients: Socket[] = [];

beforeEach(async () => {
  [lines, asked, opened, hosts, mayConnect] = [[], [], [], [], true];
  ready = Promise.resolve();
  own = async () => undefined;
  primary = openPeerPrimary();
  primary.openPort = portOpener(
    openPortStreams({
      clock: primary.clock,
      access: async () => (mayConnect ? { machineId: 'm', workloadId: 'w', authorizedKeys: KEYS } : undefined),
      link: {
        isBehind: () => false,
        openStream: async (_machineId, _workloadId, target) => {
          const [near, far] = duplexPair();
          asked.push(target);
          await ready;
          opened.push(near);
          hosts.push(far);
          return near;
        },
      },
    }),
  );
  now = { id: 'primary', url: await primary.start() };
  const log = createLog('test', 'info', { write: (line: string) => void lines.push(line) });
  const { clock, sealing } = primary;
  const noLink = (): never => {
    throw new Error('a secondary has no links');
  };
  const streams = openPrimaryStreams(() => now, { clock, sealing, ids: createIds(clock, seededRng(3)) }, noLink);
  [sshPort, appPort] = [await freePort(), await freePort()];
  ports = openPublicPorts({
    clock,
    log,
    host: HOST,
    trustProxy: [],
    db: { read: { all: async () => [], one: async () => undefined } },
    endpoints: {
      openEndpoints: async () => [
        { instance_id: 'i', ssh_port: sshPort, tcp_ports: [{ port: 7_000, public_port: appPort }] },
      ],
    },
    streams: streams.portsThrough({ ask: (...what) => own(...what) }),
  });
  await ports.sync();
});
afterEach(async () => {
  for (const client of clients.splice(0)) client.destroy();
  await ports.close(0);
  primary.cut();
  await primary.stop();
});

async function dial(port: number): Promise<Socket> {
  const client = connect({ port, host: HOST, localAddress: '127.0.0.6' });
  clients.push(client);
  client.on('error', () => undefined);
  await once(client, 'connect');
  return client;
}

/** What one end reads next. */
async function nextOf(end: Duplex): Promise<string> {
  const [data] = (await once(end, 'data')) as [Buffer];
  return data.toString();
}

const hostOf = async (count: number): Promise<Duplex> => {
  await expect.poll(() => hosts.length).toBe(count);
  const host = hosts[count - 1];
  if (host === undefined) throw new Error('no host was asked');
  return host;
};

test('a connection to SSH reaches the host through the primary, with all keys and the address of the client', async () => {
  const client = await dial(sshPort);
  const host = await hostOf(1);
  expect(asked).toEqual([{ kind: 'ssh', authorized_keys: KEYS, client_ip: '127.0.0.6' }]);
  host.write('SSH-2.0-host');
  expect(await nextOf(client)).toBe('SSH-2.0-host');
  client.write('SSH-2.0-client');
  expect(await nextOf(host)).toBe('SSH-2.0-client');
  client.end();
  host.end();
  await once(client, 'close');
});

test('a connection to a TCP port of the application reaches that port, and its end closes it on both sides', async () => {
  const client = await dial(appPort);
  const host = await hostOf(1);
  expect(asked).toEqual([{ kind: 'tcp', port: 7_000 }]);
  host.end('all');
  expect(await nextOf(client)).toBe('all');
  client.end();
  await once(client, 'close');
});

test.each<[string, () => void]>([
  ['nobody may connect', () => (mayConnect = false)],
  ['no control plane is the primary', () => (now = 'unknown')],
])('a connection is closed if %s', async (_why, make) => {
  make();
  const client = await dial(sshPort);
  await once(client.resume(), 'close');
  expect(asked).toEqual([]);
  expect(lines.map((line) => (JSON.parse(line) as { msg: string }).msg)).toEqual(['a connection could not be relayed']);
});

test('a client that leaves while the host has not answered leaves no connection to the primary, and no port taken', async () => {
  const gate = Promise.withResolvers<void>();
  ready = gate.promise;
  const client = await dial(sshPort);
  await expect.poll(() => asked.length).toBe(1);
  expect(await primary.connections()).toBe(1);
  client.resetAndDestroy();
  await expect.poll(() => primary.connections()).toBe(0);
  expect(primary.broken).toEqual(['read ECONNRESET']);
  gate.resolve();
  await expect.poll(() => opened.map((stream) => stream.destroyed)).toEqual([true]);
  expect(lines).toEqual([]);
});

test('a connection ends soon after another control plane has become the primary, though the one before does not end it', async () => {
  const client = await dial(sshPort);
  const host = await hostOf(1);
  host.write('SSH-2.0-host');
  expect(await nextOf(client)).toBe('SSH-2.0-host');
  await primary.clock.advance(60_000);
  expect(client.closed).toBe(false);
  now = { id: 'next', url: 'http://127.0.0.9:1' };
  await primary.clock.advance(5_000);
  await expect.poll(() => client.closed).toBe(true);
  await expect.poll(() => primary.connections()).toBe(0);
  expect(primary.clock.waiting()).toBe(0);
});

test('a primary that stops waits for connections through other control planes, as long as for its own', async () => {
  const client = await dial(sshPort);
  const host = await hostOf(1);
  host.write('SSH-2.0-host');
  expect(await nextOf(client)).toBe('SSH-2.0-host');
  const drained = primary.drain(40_000);
  await primary.clock.advance(39_999);
  host.write('still here');
  expect(await nextOf(client)).toBe('still here');
  client.resume();
  await primary.clock.advance(1);
  await drained;
  await expect.poll(() => client.closed).toBe(true);
});

test('a primary that stops waits no longer than the connections through other control planes last', async () => {
  const client = await dial(sshPort);
  const host = await hostOf(1);
  const startMs = primary.clock.monotonicMs();
  const drained = primary.drain(40_000);
  client.end();
  host.resume().end();
  await drained;
  expect([primary.clock.monotonicMs(), primary.clock.waiting()]).toEqual([startMs, 0]);
});

test('once this process is the primary, its ports lead to its own links', async () => {
  const targets: unknown[] = [];
  own = async (target) => (targets.push(target), undefined);
  now = 'self';
  const client = await dial(sshPort);
  await once(client.resume(), 'close');
  expect([targets.length, asked]).toEqual([1, []]);
});
