// A data stream with the `ws` package at its other end: the bytes on the wire are RFC 6455, so proxies on the way can read them.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { dialStream } from '../../agent/wire/dial.ts';
import { acceptStream } from '../../shared/protocol/stream.ts';

const LARGE = randomBytes(300_000);

let server: Server;
let url: string;
let stream: Duplex;
let peer: WebSocket;
let said: Buffer[];

beforeEach(async () => {
  server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(async () => {
  stream.destroy();
  peer.terminate();
  await new Promise((resolve) => server.close(resolve));
});

async function accepted(): Promise<void> {
  const here = Promise.withResolvers<Duplex | undefined>();
  server.once('upgrade', (request, _socket, head) => here.resolve(acceptStream(request, request.socket, head)));
  peer = new WebSocket(url, { perMessageDeflate: false });
  await once(peer, 'open');
  stream = (await here.promise) as Duplex;
}

async function dialled(): Promise<void> {
  const there = new WebSocketServer({ server, perMessageDeflate: false });
  const connected = once(there, 'connection') as Promise<[WebSocket]>;
  stream = await dialStream({ url, ca: null });
  [peer] = await connected;
}

describe.each([
  ['accepted', accepted],
  ['dialled', dialled],
])('a stream that was %s', (_how, open) => {
  beforeEach(async () => {
    await open();
    said = [];
    peer.on('message', (data: Buffer, isBinary) => said.push(isBinary ? data : Buffer.from(`<${data.toString()}>`)));
    peer.on('error', () => undefined);
  });

  test('carries bytes of any length in both directions, and ends each with a message', async () => {
    stream.write('a');
    stream.end(LARGE);
    await expect.poll(() => said.at(-1)?.toString()).toBe('<eof>');
    expect(Buffer.concat(said.slice(0, -1))).toEqual(Buffer.concat([Buffer.from('a'), LARGE]));
    peer.send('b');
    await once(stream, 'error');
    expect(stream.errored?.message).toContain('unknown text');
  });

  test('takes masked, fragmented and empty messages', async () => {
    for (const [piece, fin] of [
      ['one ', false],
      ['', false],
      ['two ', true],
      ['', true],
      ['three', true],
    ] as const) {
      peer.send(Buffer.from(piece), { fin, binary: true });
    }
    peer.send(LARGE);
    peer.send('eof');
    expect(Buffer.concat(await stream.toArray())).toEqual(Buffer.concat([Buffer.from('one two three'), LARGE]));
  });

  test('answers a ping, and closes in order when both ends are done', async () => {
    const pong = once(peer, 'pong') as Promise<[Buffer]>;
    peer.ping('are you there');
    expect((await pong)[0].toString()).toBe('are you there');
    const closed = once(peer, 'close') as Promise<[number]>;
    stream.resume();
    stream.end('good bye');
    peer.send('eof');
    expect((await closed)[0]).toBe(1000);
    expect(said.map(String)).toEqual(['good bye', '<eof>']);
    expect(stream.errored).toBeNull();
  });

  test('fails if the peer closes before its EOF', async () => {
    peer.close();
    await expect(stream.toArray()).rejects.toThrow('before its end');
  });
});

describe('dialling', () => {
  const refusal = (answer: string): void => void server.once('upgrade', (_request, socket) => socket.end(answer));

  beforeEach(accepted);

  test.each([
    ['a status', 'HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n', 'answered 503'],
    [
      'a server that is no WebSocket server',
      'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n',
      'not a WebSocket server',
    ],
    ['a connection that ends', '', 'socket hang up'],
  ])('fails by %s', async (_what, answer, why) => {
    refusal(answer);
    await expect(dialStream({ url, ca: null })).rejects.toThrow(why);
  });
});

test.each([
  ['another version', { 'Sec-WebSocket-Version': '8' }],
  ['a key that is none', { 'Sec-WebSocket-Key': 'short' }],
  ['another protocol', { Upgrade: 'h2c' }],
])('a handshake with %s is none', async (_what, wrong) => {
  await accepted();
  const answer = Promise.withResolvers<Duplex | undefined>();
  server.once('upgrade', (incoming, socket, head) => {
    answer.resolve(acceptStream(incoming, incoming.socket, head));
    socket.destroy();
  });
  const right = {
    'Sec-WebSocket-Version': '13',
    'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==',
    Upgrade: 'websocket',
  };
  const asking = request(url.replace('ws:', 'http:'), { headers: { Connection: 'Upgrade', ...right, ...wrong } });
  asking.on('error', () => undefined).end();
  expect(await answer.promise).toBeUndefined();
});
