// SSH clients that leave: bytes before their EOF arrive inside, a broken connection does not look like an end, and nothing stays open.
import { once } from 'node:events';
import type { Socket } from 'node:net';
import type { Client, ClientChannel } from 'ssh2';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createFrameDecoder, FRAME, FRAME_BYTES_MAX } from '../../../agent/wire/frames.ts';
import { SESSION_LINGER_MS, SSH_CHANNELS_MAX } from '../../../shared/limits.ts';
import { eventually } from '../../kit/processes.ts';
import { virtualClock, type VirtualClock } from '../../kit/virtual-clock.ts';
import { client, closeSshServers, exec, startWorld, type World } from '../ssh-server.ts';

/** Sizes around the buffer of the socket to the guest: with one of them, many bytes are still on their way when the client leaves. */
const AMOUNTS = Array.from({ length: 12 }, (_, i) => 96_000 + i * 32_000);
/** More bytes than are on their way at any time, but within the client's SSH window. */
const MUCH = 1_900_000;
let clock: VirtualClock;
let world: World;
let over: Client;

beforeEach(async () => {
  clock = virtualClock(1_000_000);
  world = await startWorld(clock);
  over = client(world);
  await once(over, 'ready');
});
afterEach(closeSshServers);

function forward(): Promise<ClientChannel> {
  return new Promise((resolve, reject) => {
    over.forwardOut('127.0.0.1', 1, '127.0.0.1', 80, (error, channel) => (error ? reject(error) : resolve(channel)));
  });
}

/** The guest's end of the session that was opened in this place. */
async function guestEnd(place: number): Promise<Socket> {
  return eventually('session', 5_000, () => Promise.resolve(world.sessions[place]?.peer));
}

/** Sends the given number of bytes and EOF, and closes the channel without waiting. */
async function sayAndLeave(channel: ClientChannel, bytes: number): Promise<void> {
  channel.end(Buffer.alloc(bytes));
  await once(channel, 'finish');
  channel.close();
}

/** The server has seen the client go. */
async function lost(): Promise<void> {
  await eventually('a closed connection', 4_000, () => Promise.resolve(world.streams[0]?.closed || undefined));
}

interface Heard {
  bytes: number;
  whole: boolean;
}

/** Reads all bytes of the session as the guest does, and closes then. */
async function hear(peer: Socket): Promise<Heard> {
  const heard = { bytes: 0, whole: false };
  const decode = createFrameDecoder(FRAME_BYTES_MAX);
  peer.on('data', (chunk: Buffer) => {
    for (const { type, payload } of decode(chunk)) {
      if (type === FRAME.data) heard.bytes += payload.length;
      if (type === FRAME.eof) heard.whole = true;
    }
  });
  peer.resume();
  await once(peer, 'close');
  return heard;
}

test.each([
  ['a forwarded connection', forward],
  ['a command', () => exec(over)],
])('%s: who leaves after the last word has said all of it', async (_name, open) => {
  for (const [place, bytes] of [...AMOUNTS, MUCH].entries()) {
    const channel = await open();
    const peer = await guestEnd(place);
    peer.pause();
    await sayAndLeave(channel, bytes);
    if (bytes === MUCH) over.end();
    expect(await hear(peer)).toEqual({ bytes, whole: true });
  }
});

test('a connection that ends inside first gives its channel back, although its client has more to say', async () => {
  for (let place = 0; place <= SSH_CHANNELS_MAX; place += 1) {
    const channel = await forward();
    const peer = await guestEnd(place);
    const { events } = world.sessions[place] ?? {};
    channel.write('hello');
    await once(peer, 'data');
    peer.destroy();
    await eventually('a closed session', 4_000, () =>
      Promise.resolve(world.sessions[place]?.socket.closed || undefined),
    );
    channel.write(Buffer.alloc(100_000));
    const closed = once(channel.resume(), 'close');
    events?.onEnd({ code: 0, signal: null });
    await closed;
  }
});

test('a client that is lost before its EOF has not ended its input', async () => {
  const channel = await forward();
  const peer = await guestEnd(0);
  channel.write(Buffer.alloc(1000));
  const heard = hear(peer);
  await once(peer, 'data');
  over.destroy();
  expect(await heard).toEqual({ bytes: 1000, whole: false });
});

test('a guest that reads nothing is waited for, but not for ever', async () => {
  const channel = await forward();
  const peer = await guestEnd(0);
  peer.pause();
  await sayAndLeave(channel, MUCH);
  over.end();
  await lost();
  await new Promise((resolve) => setImmediate(resolve));
  const { socket } = world.sessions[0] ?? {};
  clock.jump(SESSION_LINGER_MS - 1);
  expect(socket?.destroyed).toBe(false);
  clock.jump(1);
  expect(socket?.destroyed).toBe(true);
});

test('a client that leaves during the dial inside leaves no connection open there', async () => {
  const dialled = Promise.withResolvers<void>();
  world.delay = dialled.promise;
  forward().catch(() => undefined);
  const peer = await guestEnd(0);
  over.destroy();
  await lost();
  dialled.resolve();
  await hear(peer);
});

test('a client that leaves while a program connects to its forwarded port leaves no connection open', async () => {
  over.forwardIn('127.0.0.1', 7000, () => undefined);
  await guestEnd(0);
  const taken = Promise.withResolvers<void>();
  await eventually('a listener', 5_000, async () => world.sessions[0]?.events.onAccepted && true);
  world.delay = taken.promise;
  world.sessions[0]?.events.onAccepted?.({ connection: 1, host: '127.0.0.1', port: 1 });
  const peer = await guestEnd(1);
  over.destroy();
  await lost();
  taken.resolve();
  await hear(peer);
});
