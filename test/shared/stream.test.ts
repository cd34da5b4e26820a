// A data stream over a real WebSocket: bytes in order, backpressure both ways, half-close, and an abort that is not an end.
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { Readable, type Duplex } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { STREAM_BUFFER_BYTES_HIGH } from '../../shared/limits.ts';
import { STREAM_SOCKET_OPTIONS, streamDuplex } from '../../shared/protocol/stream.ts';

let server: WebSocketServer;
let near: Duplex;
let far: Duplex;
let nearSocket: WebSocket;

beforeEach(async () => {
  server = new WebSocketServer({ port: 0, host: '127.0.0.1', ...STREAM_SOCKET_OPTIONS });
  await once(server, 'listening');
  const accepted = once(server, 'connection') as Promise<[WebSocket]>;
  nearSocket = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`, STREAM_SOCKET_OPTIONS);
  near = streamDuplex(nearSocket);
  const [farSocket] = await accepted;
  far = streamDuplex(farSocket);
  await once(nearSocket, 'open');
  for (const end of [near, far]) end.on('error', () => undefined);
});
afterEach(() => {
  near.destroy();
  far.destroy();
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
    expect(written).toBeLessThan(STREAM_BUFFER_BYTES_HIGH * 16);
    far.resume();
    await expect.poll(() => written, { timeout: 20_000 }).toBe(2000 * chunk.length);
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

  test('of a reader that had nothing to say itself ends the silence of the other', async () => {
    near.end();
    far.resume();
    await once(far, 'end');
    near.destroy();
    await expect.poll(() => far.destroyed).toBe(true);
    expect(far.errored?.message).toBe('the peer closed the stream before its end');
  });

  test('by an unknown word is an error', async () => {
    nearSocket.send('finish');
    const [error] = (await once(far, 'error')) as [Error];
    expect(error.message).toContain('unknown text message');
  });

  test('makes later writes fail instead of vanish', async () => {
    const closed = new Promise((resolve) => near.on('close', resolve));
    far.destroy();
    await closed;
    await expect(pipeline(Readable.from(['x']), near)).rejects.toThrow('destroyed');
  });
});
