// Tests each guard of the SSH server with an attack. The test plays the guest.
import { generateKeyPairSync } from 'node:crypto';
import type { Socket } from 'node:net';
import { once } from 'node:events';
import { PassThrough, type Duplex } from 'node:stream';
import ssh2, { type AuthContext, type ClientChannel, type ConnectConfig } from 'ssh2';
import { afterEach, describe, expect, test } from 'vitest';
import { createLoginJudge } from '../../../agent/holder/ssh-admission.ts';
import { algorithmsFor } from '../../../agent/holder/ssh-server.ts';
import { eventually } from '../../kit/processes.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';
import { client, closeSshServers, exec, keys, startWorld, stranger, user, type World } from '../ssh-server.ts';

const { utils } = ssh2;
afterEach(closeSshServers);

/** Internals of ssh2 that an attacker's client changes. */
interface Internals {
  _protocol: {
    channelWindowAdjust(id: number, bytes: number): void;
    ping(): void;
    rekey(): void;
    session(id: number, window: number, packet: number): void;
    _handlers: Record<string, () => void>;
  };
  _sock: Socket;
}
const internals = (over: ssh2.Client): Internals => over as unknown as Internals;
const outgoingOf = (channel: ClientChannel): { id: number; window: number } =>
  (channel as unknown as { outgoing: { id: number; window: number } }).outgoing;

/** From now on, the client says that its channels take packets of at most `bytes`. */
function announcePackets(over: ssh2.Client, bytes: number): void {
  const { _protocol: protocol } = internals(over);
  const open = protocol.session.bind(protocol);
  protocol.session = (id, window) => open(id, window, bytes);
}

describe('logging in', () => {
  const attempt = (patch: Partial<Record<string, unknown>>): AuthContext => {
    const parsed = utils.parseKey(user.public);
    if (parsed instanceof Error) throw parsed;
    const key = { algo: parsed.type, data: parsed.getPublicSSH() };
    return { method: 'publickey', username: 'root', key, ...patch } as unknown as AuthContext;
  };
  const judge = (patch: Partial<Record<string, unknown>>): string =>
    createLoginJudge(keys.authorized_keys)(attempt(patch));

  test('a question about a known key is answered; a signature must be valid', () => {
    expect(judge({})).toBe('accept');
    const blob = Buffer.from('session');
    const parsed = utils.parseKey(user.private);
    if (parsed instanceof Error) throw parsed;
    const signature = parsed.sign(blob);
    expect(judge({ blob, signature })).toBe('accept');
    expect(judge({ blob: Buffer.from('other'), signature })).toBe('reject');
  });

  test('an Error as result of verify() is a refusal, although an Error is truthy', () => {
    expect(judge({ blob: Buffer.from('x'), signature: Buffer.from('y'), hashAlgo: 'no-such-digest' })).toBe('reject');
  });

  test('a signature without its data, and data without a signature, are refused', () => {
    expect(judge({ signature: Buffer.alloc(64) })).toBe('reject');
    expect(judge({ blob: Buffer.alloc(64) })).toBe('reject');
  });

  test('RSA with SHA-1 is refused', () => {
    const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    const parsed = utils.parseKey(privateKey.export({ type: 'pkcs1', format: 'pem' }));
    if (parsed instanceof Error) throw parsed;
    expect(publicKey.asymmetricKeyType).toBe('rsa');
    const line = `ssh-rsa ${parsed.getPublicSSH().toString('base64')}`;
    const rsaJudge = createLoginJudge([line]);
    const blob = Buffer.from('session');
    const key = { algo: 'ssh-rsa', data: parsed.getPublicSSH() };
    expect(rsaJudge(attempt({ key, blob, signature: parsed.sign(blob, 'sha1') }))).toBe('reject');
    expect(rsaJudge(attempt({ key, blob, signature: parsed.sign(blob, 'sha1'), hashAlgo: 'sha1' }))).toBe('reject');
    expect(rsaJudge(attempt({ key, blob, signature: parsed.sign(blob, 'sha256'), hashAlgo: 'sha256' }))).toBe('accept');
  });

  test('the third bad signature ends the connection; many offered keys alone do not, up to a bound', () => {
    const counting = createLoginJudge(keys.authorized_keys);
    const bad = attempt({ blob: Buffer.from('x'), signature: Buffer.alloc(64) });
    expect([counting(bad), counting(bad), counting(bad)]).toEqual(['reject', 'reject', 'disconnect']);
    const offering = createLoginJudge([stranger.public]);
    const verdicts = Array.from({ length: 31 }, () => offering(attempt({})));
    expect(verdicts.slice(0, 30)).toEqual(Array.from({ length: 30 }, () => 'reject'));
    expect(verdicts[30]).toBe('disconnect');
  });

  test('a client that goes on after too many tries is cut, and not only asked to leave', async () => {
    const world = await startWorld(virtualClock(1_000_000));
    const over = client(world, {
      // Offers the same key again and again.
      authHandler: (_left, _partial, next) =>
        next({ type: 'publickey', username: 'root', key: stranger.private } as ssh2.PublicKeyAuthMethod),
    });
    internals(over)._sock.allowHalfOpen = true;
    internals(over)._protocol._handlers['DISCONNECT'] = () => undefined;
    const stream = await eventually('connection', 5000, () => Promise.resolve(world.streams[0]));
    await expect.poll(() => stream.writableEnded).toBe(true);
    await expect.poll(() => stream.destroyed).toBe(true);
  });

  test('passwords are refused, and the probe key opens nothing for anyone else', async () => {
    const world = await startWorld();
    const refusal = (config: Partial<ConnectConfig>): Promise<string> =>
      new Promise((resolve) => {
        client(world, { privateKey: '', ...config }).on('error', (error) => resolve(error.message));
      });
    const errors = [await refusal({ password: 'secret' }), await refusal({ privateKey: stranger.private })];
    expect(errors).toEqual(Array.from({ length: 2 }, () => 'All configured authentication methods failed'));
  });
});

describe('memory', () => {
  test.each([
    ['does not read', () => undefined],
    ['begins a key exchange and does not go on', ({ _protocol: protocol }: Internals) => protocol.rekey()],
  ])('a client that grants a huge window and %s costs little memory', async (_, begin) => {
    const world = await startWorld();
    const over = client(world);
    await once(over, 'ready');
    const inner = internals(over);
    inner._protocol.channelWindowAdjust(outgoingOf(await exec(over)).id, 2 ** 31);
    await eventually('session', 5000, () => Promise.resolve(world.sessions[0]));
    begin(inner);
    inner._sock.pause();
    let sentBytes = 0;
    let waiting = false;
    const chunk = Buffer.alloc(256 * 1024);
    const flood = async (): Promise<void> => {
      for (let i = 0; i < 2000; i += 1) {
        waiting = true;
        await world.sessions[0]?.events.onData('stdout', chunk);
        waiting = false;
        sentBytes += chunk.length;
      }
    };
    void flood();
    let before = -1;
    await eventually('a flood that waits', 10_000, async () => {
      if (waiting && sentBytes === before) return true;
      before = sentBytes;
      await new Promise((resolve) => setTimeout(resolve, 300));
      return undefined;
    });
    expect(world.streams[0]?.writableLength ?? 0).toBeLessThan(4 * 1024 * 1024);
    expect(sentBytes).toBeLessThan(32 * 1024 * 1024);
    expect(sentBytes).toBeGreaterThan(0);
  });

  test('output goes on after a key exchange', async () => {
    const world = await startWorld();
    const over = client(world);
    await once(over, 'ready');
    let [sentBytes, gotBytes] = [0, 0];
    (await exec(over)).on('data', (piece: Buffer) => (gotBytes += piece.length));
    const session = await eventually('session', 5000, () => Promise.resolve(world.sessions[0]));
    let isOver = false;
    over.once('handshake', () => (isOver = true));
    internals(over)._protocol.rekey();
    const chunk = Buffer.alloc(32 * 1024);
    for (; !isOver; sentBytes += chunk.length) {
      await session.events.onData('stdout', chunk);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await expect.poll(() => gotBytes).toBe(sentBytes);
  });

  test.each([1, 0])('a client that takes packets of %i bytes gets larger ones', async (bytes) => {
    const world = await startWorld();
    const over = client(world);
    await once(over, 'ready');
    announcePackets(over, bytes);
    const pieces: number[] = [];
    const ended = Promise.withResolvers<void>();
    (await exec(over)).on('data', (piece: Buffer) => pieces.push(piece.length)).once('close', ended.resolve);
    const session = await eventually('session', 5000, () => Promise.resolve(world.sessions[0]));
    await session.events.onData('stdout', Buffer.alloc(1024));
    session.events.onEnd({ code: 0, signal: null });
    await ended.promise;
    expect(pieces).toEqual([256, 256, 256, 256]);
  });

  test('nothing more is read from a client that sends requests and reads no answers', async () => {
    const world = await startWorld();
    const over = client(world);
    await once(over, 'ready');
    await exec(over);
    const inner = internals(over);
    const [stream] = world.streams;
    // Writes stall, as if the client and the kernel's buffers took no more bytes.
    stream?.cork();
    for (let asked = 0; asked < 100 && stream?.isPaused() === false; asked += 1) {
      for (let i = 0; i < 2000; i += 1) inner._protocol.ping();
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(stream?.isPaused()).toBe(true);
    expect(stream?.writableLength).toBeLessThan(4 * 1024 ** 2);
    stream?.uncork();
    // About a hundred thousand answers are encrypted until it reads again.
    await expect.poll(() => stream?.isPaused(), { timeout: 60_000 }).toBe(false);
  });

  test('nothing more is read from a client while the guest has not answered a request of it', async () => {
    const world = await startWorld();
    const over = client(world);
    await once(over, 'ready');
    const channel = await exec(over);
    const guest = Promise.withResolvers<void>();
    world.delay = guest.promise;
    const forwarded = new Promise<number>((resolve) => {
      over.forwardIn('127.0.0.1', 7000, (_error, port) => resolve(port));
    });
    await eventually('listener', 5000, () => Promise.resolve(world.sessions[1]));
    const [stream] = world.streams;
    const readBytes = stream?.bytesRead ?? 0;
    channel.write(Buffer.alloc(1024 ** 2));
    await expect.poll(() => stream?.isPaused()).toBe(true);
    expect((stream?.bytesRead ?? 0) - readBytes).toBeLessThan(512 * 1024);
    guest.resolve();
    expect(await forwarded).toBe(7000);
    await expect.poll(() => stream?.isPaused()).toBe(false);
    await expect.poll(() => (stream?.bytesRead ?? 0) - readBytes).toBeGreaterThan(1024 ** 2);
  });

  test('a client that writes past its window is cut off', async () => {
    const world = await startWorld();
    const over = client(world);
    await once(over, 'ready');
    const channel = await exec(over);
    const session = await eventually('session', 5000, () => Promise.resolve(world.sessions[0]));
    session.peer.pause();
    outgoingOf(channel).window = 2 ** 31;
    const ended = new Promise<void>((resolve) => over.once('close', () => resolve()));
    // Not a divisor of the window: ssh2 itself stops only a client that hits zero exactly.
    const chunk = Buffer.alloc(30_000);
    let open = true;
    over.once('close', () => (open = false));
    for (let i = 0; i < 64 * 32 && open; i += 1) {
      channel.write(chunk);
      outgoingOf(channel).window = 2 ** 31;
      if (i % 32 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    await ended;
  });
});

describe('limits', () => {
  const silent = (): Duplex => new PassThrough();

  test('a caller that does not log in within the grace time is cut', async () => {
    const clock = virtualClock(1_000_000);
    const world = await startWorld(clock);
    const stream = silent();
    world.run.serve(stream, keys);
    clock.jump(19_000);
    expect(stream.destroyed).toBe(false);
    clock.jump(1_000);
    expect(stream.destroyed).toBe(true);
  });

  /** Waits until the server has noticed closed connections. */
  const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  const serveFrom = (world: World, address: string, count = 1): Duplex[] => {
    const streams = Array.from({ length: count }, silent);
    for (const stream of streams) world.run.serve(stream, { ...keys, client_ip: address });
    return streams;
  };
  const alive = (streams: readonly Duplex[]): number => streams.filter((stream) => !stream.destroyed).length;

  test('a caller waits for a place for ten seconds, and no longer', async () => {
    const clock = virtualClock(1_000_000);
    const world = await startWorld(clock);
    const first = serveFrom(world, '192.0.2.1', 5);
    const [sixth] = serveFrom(world, '192.0.2.1');
    const begun = sixth?.listenerCount('readable');
    expect(begun).toBe(0);
    // No caller may be replaced in its first five seconds.
    clock.jump(4_999);
    expect(alive(first)).toBe(5);
    clock.jump(1);
    await settled();
    expect(alive(first)).toBe(4);
    expect(alive(sixth === undefined ? [] : [sixth])).toBe(1);
    const queue = serveFrom(world, '192.0.2.1', 40);
    clock.jump(9_999);
    await settled();
    expect(alive(queue.slice(20))).toBe(20);
    clock.jump(1);
    expect(alive(queue.slice(20))).toBe(0);
  });

  test('idle connections of two addresses hold ten places, and a third address gets one at once', async () => {
    const clock = virtualClock(1_000_000);
    const world = await startWorld(clock);
    const flood = [...serveFrom(world, '192.0.2.1', 12), ...serveFrom(world, '192.0.2.2', 12)];
    expect(alive(flood)).toBe(24);
    const [customer] = serveFrom(world, '198.51.100.1');
    await settled();
    expect(alive(flood)).toBe(23);
    expect(customer?.listenerCount('readable')).toBe(1);
  });

  test('ten idle connections of ten addresses give way after five seconds', async () => {
    const clock = virtualClock(1_000_000);
    const world = await startWorld(clock);
    const flood = Array.from({ length: 10 }, (_, i) => serveFrom(world, `192.0.2.${i}`)).flat();
    const [customer] = serveFrom(world, '198.51.100.1');
    clock.jump(4_999);
    await settled();
    expect(customer?.listenerCount('readable')).toBe(0);
    clock.jump(1);
    await settled();
    expect(alive(flood)).toBe(9);
    expect(customer?.listenerCount('readable')).toBe(1);
  });

  test('the probe has a reserved place, even if strangers hold all others', async () => {
    const world = await startWorld();
    serveFrom(world, '192.0.2.1', 64);
    serveFrom(world, '192.0.2.2', 64);
    const probe = client(world, { port: world.probePort, privateKey: stranger.private });
    await once(probe, 'ready');
    probe.end();
  });

  test('a burst of honest clients is served', async () => {
    const world = await startWorld();
    const clients = Array.from({ length: 30 }, () => client(world));
    await Promise.all(clients.map((one) => once(one, 'ready')));
  });

  test('the hundred-and-twenty-ninth connection replaces the oldest one that has not logged in', async () => {
    const world = await startWorld();
    const flood = [...serveFrom(world, '192.0.2.1', 100), ...serveFrom(world, '192.0.2.2', 28)];
    serveFrom(world, '198.51.100.1');
    await settled();
    expect(flood[0]?.destroyed).toBe(true);
    expect(alive(flood)).toBeGreaterThanOrEqual(126);
  });

  test('a connection is refused if a hundred and twenty-eight are logged in', async () => {
    const world = await startWorld();
    const clients = Array.from({ length: 128 }, () => client(world));
    await Promise.all(clients.map((one) => once(one, 'ready')));
    expect(() => serveFrom(world, '198.51.100.1')).toThrow('too many SSH connections to this workload');
  });

  test('the sixty-fifth channel of a connection is refused', async () => {
    const world = await startWorld();
    const over = client(world);
    await once(over, 'ready');
    const channels = await Promise.all(Array.from({ length: 64 }, () => exec(over)));
    expect(channels).toHaveLength(64);
    await expect(exec(over)).rejects.toThrow('Channel open failure');
    channels[0]?.resume();
    const closed = once(channels[0] ?? over, 'close');
    world.sessions[0]?.events.onEnd({ code: 0, signal: null });
    await closed;
    await expect(exec(over)).resolves.toBeDefined();
  });
});

describe('algorithms', () => {
  test('nothing weak is offered to anyone, and OpenSSH gets the fast ciphers', () => {
    for (const ident of ['', 'SSH-2.0-OpenSSH_9.2p1', 'SSH-2.0-dropbear_2022.83']) {
      const offered = JSON.stringify(algorithmsFor(ident));
      expect(offered).not.toMatch(/sha1|cbc|ssh-rsa|zlib|md5|group1|group14/);
    }
    expect(algorithmsFor('SSH-2.0-OpenSSH_9.2p1').cipher).toEqual(['aes128-gcm@openssh.com', 'aes256-gcm@openssh.com']);
    expect(algorithmsFor('SSH-2.0-dropbear_2022.83').cipher).toEqual(expect.arrayContaining(['aes128-ctr']));
  });

  test('a client that knows only weak ones gets no connection', async () => {
    const world = await startWorld();
    const weak = client(world, { algorithms: { hmac: ['hmac-sha1'], cipher: ['aes128-ctr'] } });
    const [error]: Error[] = await once(weak, 'error');
    expect(error?.message).toContain('Handshake failed');
  });
});
