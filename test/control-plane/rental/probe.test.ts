// Logins of the control plane at a real SSH server, and the keys for them: ssh2 alone makes an unreadable one in 256.
import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { PassThrough, type Duplex } from 'node:stream';
import ssh2 from 'ssh2';
import { afterEach, expect, test } from 'vitest';
import type { Endpoint } from '../../../control-plane/rental/endpoints/endpoints.ts';
import {
  type Login,
  logIn,
  newLoginKey,
  openProbes,
  PROBE_MS_MAX,
} from '../../../control-plane/rental/outages/probe.ts';

import type { Probes } from '../../../control-plane/rental/instances/steps.ts';
import { systemClock } from '../../../shared/clock.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';
import { makeKeyPair } from '../../../agent/holder/host-key.ts';
import { closeSshServers, hostKeyLine, startWorld, stranger, user } from '../../agent/ssh-server.ts';

const MANY = 1_500;
afterEach(closeSshServers);

const dial = async (port: number): Promise<Duplex> => {
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
  return socket;
};
/** The login of a decoy. */
const customer: Login = { user: 'root', privateKey: user.private, hostKey: hostKeyLine, ident: 'OpenSSH_9.6p1' };

test('a probe and a decoy log in, each over its own kind of stream', async () => {
  const world = await startWorld();
  const probe: Login = { user: 'svc-probe', privateKey: stranger.private, hostKey: hostKeyLine };
  expect(await logIn(probe, () => dial(world.probePort), systemClock())).toEqual({ ok: true });
  expect(await logIn(customer, () => dial(world.port), systemClock())).toEqual({ ok: true });
  expect(await logIn(probe, () => dial(world.port), systemClock())).toMatchObject({ ok: false, leg: 'auth' });
});

test('a probe logs in with the key that its stream names, and every process has another key', async () => {
  const world = await startWorld();
  const named = new Set<string>();
  const row = { id: 'i', machine_id: 'm', workload_id: 'w' };
  const probes = (): Probes =>
    openProbes({
      db: { read: { all: async () => [], one: async <T>() => row as T } },
      clock: systemClock(),
      endpoints: { find: async () => ({ open: true, host_key: hostKeyLine }) as Endpoint },
      link: {
        openStream: (_machine, _workload, target) => {
          if (target.kind === 'probe') named.add((world.probeKey = target.probe_key));
          return dial(world.probePort);
        },
      },
      sshHost: '127.0.0.1',
      listens: () => true,
    });
  const [one, another] = [probes(), probes()];
  for (const each of [one, one, another]) expect(await each.holder('i')).toEqual({ ok: true });
  expect(named.size).toBe(2);
});

test.each([
  ['is good if this process listens there', true, true, { ok: true }],
  ['is bad if another program listens there', false, true, { ok: false, leg: 'listener' }],
  ['is bad if nobody listens there', true, false, { ok: false, leg: 'listener' }],
])('the public port of an instance %s', async (_what, isOurs, isOpen, expected) => {
  const server = createServer((socket) => socket.on('error', () => undefined)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  if (!isOpen) await new Promise((resolve) => server.close(resolve));
  const { listener } = openProbes({
    db: { read: { all: async () => [], one: async () => undefined } },
    clock: systemClock(),
    endpoints: { find: async () => ({ ssh_port: port }) as Endpoint },
    link: { openStream: () => Promise.reject(new Error('no host')) },
    sshHost: '127.0.0.1',
    listens: () => isOurs,
  });
  expect(await listener('i')).toMatchObject(expected);
  server.close();
});

test('a login names the first leg that failed', async () => {
  const world = await startWorld();
  const closed = async (): Promise<Duplex> => {
    throw new Error('the host is not connected');
  };
  const other = { ...customer, hostKey: stranger.public };
  const hungUp = async (): Promise<Duplex> => new PassThrough().end();
  const legs = await Promise.all(
    [
      logIn(customer, closed, systemClock()),
      logIn(customer, hungUp, systemClock()),
      logIn(other, () => dial(world.port), systemClock()),
      logIn({ ...customer, privateKey: stranger.private }, () => dial(world.port), systemClock()),
    ].map(async (login) => {
      const result = await login;
      return result.ok ? 'none' : result.leg;
    }),
  );
  expect(legs).toEqual(['stream', 'banner', 'host_key', 'auth']);
});

test.each<[string, ssh2.Algorithms, boolean]>([
  ['that a holder offers is agreed to', {}, true],
  ['with packed answers, which could be bombs, is refused', { compress: ['zlib'] }, false],
  ['with a key exchange of large numbers is refused', { kex: ['diffie-hellman-group18-sha512'] }, false],
])('a login over algorithms %s', async (_, algorithms, isAgreed) => {
  const hostKey = makeKeyPair();
  let agreed = false;
  const server = new ssh2.Server({ hostKeys: [hostKey.private], algorithms }, (client) => {
    client.on('error', () => undefined);
    client.on('handshake', () => (agreed = true));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  await logIn({ ...customer, hostKey: hostKey.public }, () => dial(port), systemClock());
  expect(agreed).toBe(isAgreed);
  server.close();
});

test('a login without an answer ends after five seconds, and a stream that opens later is closed', async () => {
  const clock = virtualClock(1_000_000);
  const late = Promise.withResolvers<Duplex>();
  const result = logIn(customer, () => late.promise, clock);
  clock.jump(PROBE_MS_MAX);
  expect(await result).toEqual({ ok: false, leg: 'stream', detail: 'stream: no answer within 5 s' });
  const stream = new PassThrough();
  late.resolve(stream);
  await new Promise((resolve) => setImmediate(resolve));
  expect(stream.destroyed).toBe(true);
});

test('a host that sends much for one login is cut at 32 KiB', async () => {
  const stream = new PassThrough();
  const result = logIn(customer, async () => stream, virtualClock(1_000_000));
  const line = `${'x'.repeat(1023)}\n`;
  for (let kib = 0; kib < 33; kib += 1) stream.write(line);
  expect(await result).toEqual({ ok: false, leg: 'banner', detail: 'banner: more than 32 KiB came' });
});

test.each([
  ['has succeeded', hostKeyLine, true],
  ['has failed', stranger.public, false],
])('a stream is closed when its login %s, although the host keeps it open', async (_, hostKey, ok) => {
  const world = await startWorld();
  const stream = await dial(world.port);
  expect(await logIn({ ...customer, hostKey }, async () => stream, systemClock())).toMatchObject({ ok });
  expect(stream.destroyed).toBe(true);
});

test('every key is another one, can be read again, and its public half is whole', () => {
  const lines = new Set<string>();
  for (let i = 0; i < MANY; i += 1) {
    const key = newLoginKey();
    const [secret, line] = [ssh2.utils.parseKey(key.privateKey), ssh2.utils.parseKey(key.publicLine)];
    if (secret instanceof Error || line instanceof Error) throw new Error('a key cannot be read');
    expect(secret.getPublicSSH()).toEqual(line.getPublicSSH());
    expect(line.verify('text', secret.sign('text'))).toBe(true);
    lines.add(key.publicLine);
  }
  expect(lines.size).toBe(MANY);
});
