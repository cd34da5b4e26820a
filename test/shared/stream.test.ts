// A data stream over a real connection: bytes in order, backpressure both ways, half-close, and an abort that is not an end.
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { Readable, type Duplex } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { STREAM_CLOSE_MS_MAX } from '../../shared/limits.ts';
import { streamDuplex } from '../../shared/protocol/stream.ts';
import { frameHeader, OPCODE, type Opcode } from '../../shared/protocol/websocket.ts';

const NOTHING = Buffer.alloc(0);

let server: Server;
let near: Duplex;
let far: Duplex;
let nearSocket: Socket;

beforeEach(async () => {
  server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const accepted = once(server, 'connection') as Promise<[Socket]>;
  nearSocket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  near = streamDuplex(nearSocket, { dialled: true, head: NOTHING });
  const [farSocket] = await accepted;
  far = streamDuplex(farSocket, { dialled: false, head: NOTHING });
  for (const end of [near, far]) end.on('error', () => undefined);
});
afterEach(() => {
  near.destroy();
  far.destroy();
  nearSocket.destroy();
  server.close();
});

const md5 = (data: Buffer): string => createHash('md5').update(data).digest('hex');

describe('bytes', () => {
  test('arrive whole and in order, both ways at once', async () => {
    const up = randomBytes(8 * 1024 ** 2);
    const down = randomBytes(8 * 1024 ** 2);
    // Not toArray: at the end of the one direction it destroys the stream, and with it what is under way in the other.
    const collect = async (end: Duplex): Promise<string> => {
      const chunks: Uint8Array[] = [];
      for await (const chunk of end.iterator({ destroyOnReturn: false })) chunks.push(chunk as Uint8Array);
      return md5(Buffer.concat(chunks));
    };
    const [, , gotUp, gotDown] = await Promise.all([
      pipeline(Readable.from([up]), near, { end: true }),
      pipeline(Readable.from([down]), far),
      collect(far),
      collect(near),
    ]);
    expect([gotUp, gotDown]).toEqual([md5(up), md5(down)]);
  });

  test('that nobody reads stop the sender, at a bounded amount', async () => {
    let written = 0;
    const chunk = Buffer.alloc(64 * 1024);
    const pump = async (): Promise<void> => {
      for (let i = 0; i < 2000; i += 1) {
        written += chunk.length;
        if (!near.write(chunk)) await once(near, 'drain');
      }
    };
    void pump();
    let before = -1;
    while (before !== written) {
      before = written;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    // Kernel buffers on loopback come on top of ours; 125 MB were offered.
    expect(written).toBeLessThan(16 * 1024 ** 2);
    far.resume();
    await expect.poll(() => written).toBe(2000 * chunk.length);
  });
});

describe('an end', () => {
  test('of one direction leaves the other open', async () => {
    near.end('last words');
    expect((await far.toArray()).join('')).toBe('last words');
    far.write('still ');
    far.end('here');
    expect((await near.toArray()).join('')).toBe('still here');
  });

  test('without EOF is an error, not an end', async () => {
    far.write('half a ');
    const reading = near.toArray();
    await once(near, 'readable');
    far.destroy();
    await expect(reading).rejects.toThrow('before its end');
  });

  test('leaves all bytes before it readable, even if the peer disappears first', async () => {
    far.end('last words');
    await once(near, 'readable');
    await expect.poll(() => far.writableFinished).toBe(true);
    const gone = once(nearSocket, 'close');
    far.destroy();
    await gone;
    expect(String(near.read())).toBe('last words');
    near.resume();
    await expect.poll(() => near.destroyed).toBe(true);
    expect([near.readableEnded, near.errored?.message]).toEqual([true, 'the peer closed the stream before its end']);
  });

  test('of a side that has sent nothing arrives at the other side', async () => {
    near.end();
    far.resume();
    await once(far, 'end');
    near.destroy();
    await expect.poll(() => far.destroyed).toBe(true);
    expect(far.errored?.message).toBe('the peer closed the stream before its end');
  });

  test('leaves no connection behind, whoever is done first', async () => {
    near.end('question');
    far.end((await far.toArray()).join('').toUpperCase());
    expect((await near.toArray()).join('')).toBe('QUESTION');
    await expect.poll(() => nearSocket.destroyed).toBe(true);
    expect([near.errored, far.errored]).toEqual([null, null]);
  });

  test('makes later writes fail instead of vanish', async () => {
    const closed = new Promise((resolve) => near.on('close', resolve));
    far.destroy();
    await closed;
    await expect(pipeline(Readable.from(['x']), near)).rejects.toThrow('destroyed');
  });
});

describe('a peer of its own kind', () => {
  let raw: Socket;

  beforeEach(async () => {
    const accepted = once(server, 'connection') as Promise<[Socket]>;
    raw = connect({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', allowHalfOpen: true });
    [nearSocket] = await accepted;
    near = streamDuplex(nearSocket, { dialled: true, head: NOTHING });
  });
  afterEach(() => void raw.destroy());

  test('that keeps the connection open after both ends are done is cut off in time', async () => {
    raw.write(Buffer.concat([frameHeader(OPCODE.text, 3, false), Buffer.from('eof')]));
    near.end();
    near.resume();
    await once(near, 'close');
    expect([nearSocket.destroyed, nearSocket.timeout]).toEqual([false, STREAM_CLOSE_MS_MAX]);
    nearSocket.emit('timeout');
    expect(nearSocket.destroyed).toBe(true);
  });

  test('that sends a byte now and then after both ends are done is cut off too', async () => {
    raw.write(Buffer.concat([frameHeader(OPCODE.text, 3, false), Buffer.from('eof')]));
    near.end();
    near.resume();
    await once(near, 'close');
    raw.on('error', () => undefined);
    for (let sent = 0; sent < 4096; sent += 1) raw.write('x');
    await expect.poll(() => nearSocket.destroyed).toBe(true);
  });

  describe('that sends small messages', () => {
    const COUNT = 10_000;
    const frame = (opcode: Opcode, data: string): Buffer =>
      Buffer.concat([frameHeader(opcode, data.length, false), Buffer.from(data)]);
    const letters = Array.from({ length: COUNT }, (_, i) => String.fromCharCode(97 + (i % 26)));
    const collect = (): string[] => {
      const pieces: string[] = [];
      near.on('data', (piece: Buffer) => void pieces.push(piece.toString()));
      return pieces;
    };

    test.each([
      ['alone', letters.map((letter) => frame(OPCODE.binary, letter))],
      ['with pings between them', letters.flatMap((letter) => [frame(OPCODE.binary, letter), frame(OPCODE.ping, '')])],
    ])('of one byte %s, makes few pieces wait here', async (_how, frames) => {
      raw.resume();
      raw.write(Buffer.concat(frames));
      await expect.poll(() => near.readableLength).toBe(COUNT);
      const pieces = collect();
      await expect.poll(() => pieces.join('').length).toBe(COUNT);
      expect(pieces.join('')).toBe(letters.join(''));
      // The kernel may cut what was written at once into some chunks.
      expect(pieces.length).toBeLessThan(COUNT / 100);
    });

    test.each([
      [4_095, [3 * 4_095]],
      [4_096, [4_096, 4_096, 4_096]],
    ])('of %d bytes, hands on pieces of %j bytes', async (size, expected) => {
      const sizes: number[] = [];
      near.on('data', (piece: Buffer) => void sizes.push(piece.length));
      nearSocket.emit('data', Buffer.concat(Array.from({ length: 3 }, () => frame(OPCODE.binary, 'x'.repeat(size)))));
      await expect.poll(() => sizes).toEqual(expected);
    });

    test.each([
      ['an end', frame(OPCODE.text, 'eof'), 'end'],
      ['a close', frame(OPCODE.close, ''), 'error'],
      ['a broken frame', Buffer.from([0xff, 0xff]), 'error'],
    ])('and %s in the same chunk, is heard to its last byte', async (_what, last, event) => {
      const pieces = collect();
      const over = new Promise((resolve) => near.once(event, resolve));
      raw.write(Buffer.concat([...letters.map((letter) => frame(OPCODE.binary, letter)), last]));
      await over;
      expect(pieces.join('')).toBe(letters.join(''));
    });
  });

  test('that sends pings and reads no pong does not fill our memory', async () => {
    const ping = Buffer.concat([frameHeader(OPCODE.ping, 125, false), Buffer.alloc(125)]);
    const pings = Buffer.concat(Array.from({ length: 1000 }, () => ping));
    near.resume();
    for (let sent = 0; sent < 200; sent += 1) if (!raw.write(pings)) await once(raw, 'drain');
    expect(nearSocket.writableLength).toBeLessThan(1024 ** 2);
    expect(near.destroyed).toBe(false);
  });
});
