// Connections to the ports of an application: what ends, and what breaks off, does so on the other side too.
import { createServer, connect, type AddressInfo, type Server, type Socket } from 'node:net';
import { once } from 'node:events';
import { duplexPair, type Duplex } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Guests, SessionEvents } from '../../../agent/access/guests.ts';
import { openTcpDoor, type TcpDoor } from '../../../agent/access/tcp-door.ts';

let server: Server;
let inside: Socket;
let events: SessionEvents;
let client: Duplex;
let outside: Duplex;
let door: TcpDoor;

beforeEach(async () => {
  server = createServer((socket) => socket.resume()).listen(0, '127.0.0.1');
  await once(server, 'listening');
  inside = connect((server.address() as AddressInfo).port, '127.0.0.1');
  await once(inside, 'connect');
  const guests: Pick<Guests, 'open'> = {
    open: async (_request, heard) => {
      events = heard;
      return { socket: inside, resize: () => undefined, signal: () => undefined };
    },
  };
  [client, outside] = duplexPair();
  client.on('error', () => undefined);
  door = openTcpDoor(guests as Guests);
  await door.serve(80, async () => outside);
});
afterEach(() => {
  inside.destroy();
  server.close();
});

test('an application that has said all ends the stream, and what still comes is dropped', async () => {
  await events.onData('stdout', Buffer.from('bye'));
  events.onEof();
  expect(await text(client.iterator({ destroyOnReturn: false }))).toBe('bye');
  inside.destroy();
  events.onEnd({ code: 0, signal: null });
  // More than a stream holds that nobody reads.
  for (let i = 0; i < 64; i += 1) if (!client.write(Buffer.alloc(64 * 1024))) await once(client, 'drain');
  client.end();
  await once(outside, 'end');
});

test('one that breaks off breaks the stream off: half an answer must not look whole', async () => {
  await events.onData('stdout', Buffer.from('half'));
  events.onEnd(undefined);
  await expect.poll(() => outside.destroyed).toBe(true);
  expect(outside.writableFinished).toBe(false);
});

test('where no stream comes about the connection inside is closed, and its end concerns nobody', async () => {
  await expect(door.serve(80, () => Promise.reject(new Error('404')))).rejects.toThrow('404');
  expect(inside.destroyed).toBe(true);
  // An error that nobody handles would end the holder; here it fails the run.
  events.onEof();
  events.onEnd(undefined);
});
