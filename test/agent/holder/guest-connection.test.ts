// The guest connection, with a good guest and against a hostile container.
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openGuests, type Guests, type SessionEvents } from '../../../agent/holder/guest-connection.ts';
import {
  createFrameDecoder,
  FRAME,
  FRAME_BYTES_MAX,
  FrameError,
  sendFrame,
  sendJson,
} from '../../../agent/wire/frames.ts';
import type { Exit } from '../../../agent/wire/guest-messages.ts';
import { createIds } from '../../../shared/ids.ts';
import { createLog } from '../../../shared/log.ts';
import { seededRng } from '../../../shared/rng.ts';
import { eventually } from '../../kit/processes.ts';
import { virtualClock, type VirtualClock } from '../../kit/virtual-clock.ts';

const dir = mkdtempSync(join(tmpdir(), 'guests-'));
afterAll(() => rmSync(dir, { recursive: true }));
let guests: Guests;
let clock: VirtualClock;
let path: string;
let count = 0;
let changes: number;
let alarms: number;
const log = createLog('test', 'error', { write: () => void (alarms += 1) });

beforeEach(async () => {
  count += 1;
  path = join(dir, `${count}.sock`);
  clock = virtualClock(1_000_000);
  changes = 0;
  alarms = 0;
  const ids = createIds(clock, seededRng(1));
  guests = await openGuests(path, { clock, ids, log, onChange: () => (changes += 1) });
});
afterEach(() => guests.close());

async function dial(): Promise<Socket> {
  const socket = connect(path);
  socket.on('error', () => {});
  await once(socket, 'connect');
  return socket;
}

async function guest(): Promise<Socket> {
  const control = await dial();
  sendJson(control, { kind: 'control' });
  await eventually('guest', 5000, () => Promise.resolve(guests.connected() || undefined));
  return control;
}

const gone = (socket: Socket): Promise<unknown> => {
  socket.resume();
  return socket.closed ? Promise.resolve() : new Promise((resolve) => socket.once('close', resolve));
};

interface Heard extends SessionEvents {
  bytes: string;
  exits: (Exit | undefined)[];
}

function listener(): Heard {
  const heard: Heard = {
    bytes: '',
    exits: [],
    onData: (type, bytes) => {
      heard.bytes += `${type}:${bytes.toString()} `;
      return undefined;
    },
    onEof: () => {},
    onEnd: (exit) => heard.exits.push(exit),
  };
  return heard;
}

/** The token in the holder's next order to the guest. */
async function askedToken(control: Socket): Promise<string> {
  const decode = createFrameDecoder(10_000);
  const [chunk]: Buffer[] = await once(control, 'data');
  const frame = decode(chunk ?? Buffer.alloc(0)).next().value;
  const word: { token: string } = JSON.parse(frame?.payload.toString() ?? '');
  return word.token;
}

const request = { kind: 'dial', host: 'localhost', port: 1 } as const;

test('a session carries its bytes in order and ends with the exit of its program', async () => {
  const control = await guest();
  const heard = listener();
  const opening = guests.open(request, heard);
  const session = await dial();
  sendJson(session, { kind: 'session', token: await askedToken(control) });
  sendJson(session, { kind: 'started' });
  sendFrame(session, FRAME.data, Buffer.from('a'));
  sendFrame(session, FRAME.stderr, Buffer.from('b'));
  sendJson(session, { kind: 'exit', exit: { code: 3, signal: null } });
  await opening;
  await gone(session);
  await eventually('end', 5000, () => Promise.resolve(heard.exits.length > 0 || undefined));
  expect(heard).toMatchObject({ bytes: 'stdout:a stderr:b ', exits: [{ code: 3, signal: null }] });
});

test('a session that the guest refuses, or whose guest disappears, fails with a reason', async () => {
  const control = await guest();
  const refused = guests.open(request, listener());
  const session = await dial();
  sendJson(session, { kind: 'session', token: await askedToken(control) });
  sendJson(session, { kind: 'failed', detail: 'connection refused' });
  await expect(refused).rejects.toThrow('connection refused');
  const heard = listener();
  const opening = guests.open(request, heard);
  const token = await askedToken(control);
  const second = await dial();
  sendJson(second, { kind: 'session', token });
  sendJson(second, { kind: 'started' });
  await opening;
  second.destroy();
  await eventually('end', 5000, () => Promise.resolve(heard.exits.length > 0 || undefined));
  expect(heard.exits).toEqual([undefined]);
});

test('the guest is informed of a session that its owner has cut, and of no other', async () => {
  const control = await guest();
  const words: { kind: string; token: string }[] = [];
  const open = async (): Promise<{ near: Socket; far: Socket; token: string }> => {
    const opening = guests.open(request, listener());
    const token = await askedToken(control);
    const far = await dial();
    sendJson(far, { kind: 'session', token });
    sendJson(far, { kind: 'started' });
    return { near: (await opening).socket, far, token };
  };
  const [ended, left, cut] = [await open(), await open(), await open()];
  const decode = createFrameDecoder(10_000);
  control.on('data', (chunk: Buffer) => {
    for (const { payload } of decode(chunk)) words.push(JSON.parse(payload.toString()));
  });
  ended.far.end();
  left.near.end();
  await Promise.all([gone(ended.far), gone(left.far)]);
  cut.near.destroy();
  await eventually('a word', 5000, () => Promise.resolve(words[0]));
  expect(words).toEqual([{ kind: 'cut', token: cut.token }]);
});

test('all bytes before the close of a session arrive, even at a slow consumer', async () => {
  const control = await guest();
  const heard = listener();
  const taken: (() => void)[] = [];
  const opening = guests.open(request, {
    ...heard,
    onData: (type, bytes) => {
      void heard.onData(type, bytes);
      return new Promise((resolve) => taken.push(resolve));
    },
    onEof: () => (heard.bytes += 'eof '),
  });
  const session = await dial();
  sendJson(session, { kind: 'session', token: await askedToken(control) });
  sendJson(session, { kind: 'started' });
  await opening;
  session.cork();
  sendFrame(session, FRAME.data, Buffer.from('a'));
  sendFrame(session, FRAME.data, Buffer.from('b'));
  sendFrame(session, FRAME.eof, Buffer.alloc(0));
  sendJson(session, { kind: 'exit', exit: { code: 3, signal: null } });
  session.uncork();
  session.end();
  await gone(session);
  for (const nth of [1, 2]) {
    await eventually('bytes', 5000, () => Promise.resolve(taken.length === nth || undefined));
    expect(heard.exits).toEqual([]);
    taken.at(-1)?.();
  }
  await eventually('end', 5000, () => Promise.resolve(heard.exits.length > 0 || undefined));
  expect(heard).toMatchObject({ bytes: 'stdout:a stdout:b eof ', exits: [{ code: 3, signal: null }] });
});

test('opening a session fails with a reason if there is no guest, or if the guest does not start it', async () => {
  await expect(guests.open(request, listener())).rejects.toThrow('does not answer');
  await guest();
  const opening = guests.open(request, listener());
  clock.jump(10_000);
  await expect(opening).rejects.toThrow('in time');
});

test('the exit of the main process is known after its guest has gone, until another guest comes', async () => {
  const control = await guest();
  const exit = { code: 9, signal: null };
  sendJson(control, { kind: 'main_exit', exit });
  await eventually('the exit', 5000, () => Promise.resolve(guests.mainExit() ?? undefined));
  control.destroy();
  await eventually('the end', 5000, () => Promise.resolve(!guests.connected() || undefined));
  expect(guests.mainExit()).toEqual(exit);
  await guest();
  expect(guests.mainExit()).toBeNull();
});

test('a session whose start comes too late is closed on both ends', async () => {
  const control = await guest();
  const heard = listener();
  const opening = guests.open(request, heard);
  const token = await askedToken(control);
  const session = await dial();
  sendJson(session, { kind: 'session', token });
  // The holder has handled the hello once it refuses a second use of the token.
  const second = await dial();
  sendJson(second, { kind: 'session', token });
  await gone(second);
  const cut = once(control, 'data');
  clock.jump(10_000);
  await expect(opening).rejects.toThrow('in time');
  sendJson(session, { kind: 'started' });
  await gone(session);
  const [order]: Buffer[] = await cut;
  expect(order?.toString()).toContain(JSON.stringify({ kind: 'cut', token }));
  expect(heard).toMatchObject({ bytes: '', exits: [] });
});

describe('hostile', () => {
  test('a second control connection does not push the first one out', async () => {
    const first = await guest();
    const second = await dial();
    sendJson(second, { kind: 'control' });
    await gone(second);
    expect(guests.connected()).toBe(true);
    expect(first.destroyed).toBe(false);
  });

  test('unknown tokens, tokens used twice, malformed and giant frames end their own connection', async () => {
    const control = await guest();
    const opening = guests.open(request, listener());
    const token = await askedToken(control);
    const honest = await dial();
    sendJson(honest, { kind: 'session', token });
    sendJson(honest, { kind: 'started' });
    await opening;
    const words: (Buffer | object)[] = [
      { kind: 'session', token: 'guessed' },
      { kind: 'session', token },
      { kind: 'other' },
      Buffer.from([0, 0, 0, 0, 3, 110, 111, 116]),
      Buffer.from([9, 0, 0, 0, 0]),
      Buffer.from([1, 255, 255, 255, 255]),
      Buffer.from([1, 0, 0, 0, 1, 1]),
    ];
    for (const word of words) {
      const socket = await dial();
      if (Buffer.isBuffer(word)) socket.write(word);
      else sendJson(socket, word);
      await gone(socket);
    }
    expect(guests.connected()).toBe(true);
    expect(honest.destroyed).toBe(false);
  });

  test('a malformed exit ends the connection', async () => {
    const control = await guest();
    sendJson(control, { kind: 'main_exit', exit: { code: 'x'.repeat(100_000), signal: null } });
    await gone(control);
    expect(guests.mainExit()).toBeNull();
  });

  test('an end that its owner cannot handle ends nothing else: it is logged', async () => {
    const control = await guest();
    const onEnd = (): never => {
      throw new Error('no such signal');
    };
    const opening = guests.open(request, { ...listener(), onEnd });
    const session = await dial();
    sendJson(session, { kind: 'session', token: await askedToken(control) });
    sendJson(session, { kind: 'started' });
    await opening;
    sendJson(session, { kind: 'exit', exit: { code: null, signal: 'SIGOTHER' } });
    await gone(session);
    // An unhandled error would end the holder; here it fails the test run.
    await eventually('a line in the log', 5000, () => Promise.resolve(alarms > 0 || undefined));
    expect(guests.connected()).toBe(true);
  });

  test('a guest that changes all the time is reported once a second, with its state at that time', async () => {
    const control = await guest();
    expect(changes).toBe(1);
    for (let code = 0; code < 100; code += 1) sendJson(control, { kind: 'main_exit', exit: { code, signal: null } });
    await eventually('the last one', 5000, () => Promise.resolve(guests.mainExit()?.code === 99 || undefined));
    expect(changes).toBe(1);
    clock.jump(1_000);
    expect(changes).toBe(2);
    clock.jump(10_000);
    expect(changes).toBe(2);
    control.destroy();
    await eventually('the end', 5000, () => Promise.resolve(!guests.connected() || undefined));
    expect(changes).toBe(3);
  });

  test('a connection without a hello is closed in time, and the number of such connections is limited', async () => {
    const silent = await Promise.all(Array.from({ length: 64 }, dial));
    const tooMany = await dial();
    await gone(tooMany);
    clock.jump(5_000);
    await Promise.all(silent.map(gone));
    await guest();
  });

  test('a guest that does not read costs little memory, and gets sessions again once it reads', async () => {
    const control = await guest();
    control.pause();
    const large = { kind: 'exec', command: 'x', env: { A: 'x'.repeat(100_000) }, pty: null } as const;
    let refused = 0;
    const opening = Array.from({ length: 100 }, () =>
      guests.open(large, listener()).catch(({ message }: Error) => {
        if (message === 'the helper inside the container does not read its orders') refused += 1;
      }),
    );
    await eventually('refusals', 5000, () => Promise.resolve(refused > 0 || undefined));
    // Eleven exceed the bound. The kernel takes a few more.
    expect(100 - refused).toBeGreaterThanOrEqual(11);
    expect(100 - refused).toBeLessThan(20);
    const tokens: string[] = [];
    const decode = createFrameDecoder(FRAME_BYTES_MAX);
    control.on('data', (chunk: Buffer) => {
      for (const { payload } of decode(chunk)) tokens.push(JSON.parse(payload.toString()).token);
    });
    control.resume();
    await eventually('the orders', 5000, () => Promise.resolve(tokens.length === 100 - refused || undefined));
    const last = guests.open(request, listener());
    await eventually('one more', 5000, () => Promise.resolve(tokens.length === 101 - refused || undefined));
    const session = await dial();
    sendJson(session, { kind: 'session', token: tokens.at(-1) });
    sendJson(session, { kind: 'started' });
    await last;
    clock.jump(10_000);
    await Promise.all(opening);
  });

  test('nothing more is read while a consumer has not taken the bytes before', async () => {
    const control = await guest();
    let taken = 0;
    const opening = guests.open(request, { ...listener(), onData: () => new Promise(() => (taken += 1)) });
    const session = await dial();
    sendJson(session, { kind: 'session', token: await askedToken(control) });
    sendJson(session, { kind: 'started' });
    await opening;
    for (let i = 0; i < 256; i += 1) sendFrame(session, FRAME.data, Buffer.alloc(65_536));
    await eventually('full pipe', 5000, () => Promise.resolve(taken === 1 || undefined));
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(taken).toBe(1);
    expect(session.writableLength).toBeGreaterThan(8 * 1024 * 1024);
  });
});

test('frames arrive whole, whatever the pieces of their bytes', () => {
  const wire = Buffer.concat([
    Buffer.from([1, 0, 0, 0, 3, 97, 98, 99]),
    Buffer.from([3, 0, 0, 0, 0]),
    Buffer.from([0, 0, 0, 0, 2, 123, 125]),
  ]);
  for (let size = 1; size <= wire.length; size += 1) {
    const decode = createFrameDecoder(10);
    const frames = [];
    for (let at = 0; at < wire.length; at += size) frames.push(...decode(wire.subarray(at, at + size)));
    expect(frames.map((frame) => [frame.type, frame.payload.toString()])).toEqual([
      [FRAME.data, 'abc'],
      [FRAME.eof, ''],
      [FRAME.json, '{}'],
    ]);
  }
  expect(() => createFrameDecoder(10)(Buffer.from([1, 0, 0, 0, 11])).next()).toThrow(FrameError);
});
