// Connections to the ports of an application: an end on one side is an end on the other, and so is a break.
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, connect, type Server, type Socket } from 'node:net';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { duplexPair, type Duplex } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createFrameDecoder, FRAME, FRAME_BYTES_MAX } from '../../../agent/wire/frames.ts';
import type { Guests, SessionEvents } from '../../../agent/holder/guest-connection.ts';
import { openTcpServer, type TcpServer } from '../../../agent/holder/tcp-target.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

let server: Server;
let inside: Socket;
let events: SessionEvents;
let client: Duplex;
let outside: Duplex;
/** The other end of `inside`. */
let guest: Socket;
let dir: string;
let run: TcpServer;
let refusal: Error | undefined;

beforeEach(async () => {
  refusal = undefined;
  dir = mkdtempSync(join(tmpdir(), 'tcp-target-'));
  server = createServer().listen(join(dir, 'socket'));
  await once(server, 'listening');
  const guests: Pick<Guests, 'open'> = {
    open: async (_request, heard) => {
      events = heard;
      if (refusal !== undefined) throw refusal;
      inside = connect(join(dir, 'socket'));
      [guest] = await once(server, 'connection');
      return { socket: inside, resize: () => undefined, signal: () => undefined };
    },
  };
  run = openTcpServer({ guests: guests as Guests, clock: virtualClock(1_000_000) });
  await serve();
});
afterEach(() => {
  inside.destroy();
  server.close();
  rmSync(dir, { recursive: true });
});

async function serve(): Promise<void> {
  const [near, far] = duplexPair();
  near.on('error', () => undefined);
  [client, outside] = [near, far];
  await run.serve(80, async () => far);
}

/** What the guest gets, which reads only now. */
async function heardInside(): Promise<{ bytes: number; whole: boolean }> {
  const heard = { bytes: 0, whole: false };
  const decode = createFrameDecoder(FRAME_BYTES_MAX);
  guest.on('data', (chunk: Buffer) => {
    for (const { type, payload } of decode(chunk)) {
      if (type === FRAME.data) heard.bytes += payload.length;
      if (type === FRAME.eof) heard.whole = true;
    }
  });
  await once(guest, 'close');
  return heard;
}

test.each([0, 50])('the end of an application ends the stream, and bytes %d ms later are dropped', async (laterMs) => {
  await events.onData('stdout', Buffer.from('bye'));
  guest.resume();
  events.onEof();
  expect(await text(client.iterator({ destroyOnReturn: false }))).toBe('bye');
  inside.destroy();
  events.onEnd({ code: 0, signal: null });
  await new Promise((resolve) => setTimeout(resolve, laterMs));
  // More bytes than fit into the buffers of a stream that nobody reads.
  for (let i = 0; i < 64; i += 1) if (!client.write(Buffer.alloc(64 * 1024))) await once(client, 'drain');
  client.end();
  await once(outside, 'end');
});

test('all bytes of a client that sends EOF and closes arrive inside', async () => {
  // One of these is more than the socket to the guest holds, so that the rest is still on its way there.
  for (let kib = 96; kib <= 480; kib += 32) {
    await serve();
    client.end(Buffer.alloc(kib * 1024));
    events.onEof();
    client.resume();
    await once(outside, 'close');
    expect(await heardInside()).toEqual({ bytes: kib * 1024, whole: true });
  }
});

test('a client that breaks off does not look like one that has ended', async () => {
  const heard = heardInside();
  client.write('half');
  await once(guest, 'data');
  outside.destroy();
  expect(await heard).toEqual({ bytes: 4, whole: false });
});

test('an application that breaks off breaks the stream: half an answer must not look whole', async () => {
  await events.onData('stdout', Buffer.from('half'));
  events.onEnd(undefined);
  await expect.poll(() => outside.destroyed).toBe(true);
  expect(outside.writableFinished).toBe(false);
});

test('if no stream can be opened, the connection inside is closed without an unhandled error', async () => {
  await expect(run.serve(80, () => Promise.reject(new Error('404')))).rejects.toThrow('404');
  expect(inside.destroyed).toBe(true);
  // An unhandled error would end the holder; here it fails the test run.
  events.onEof();
  events.onEnd(undefined);
});

test('if the dial inside fails, what still comes from there is dropped, and no stream is opened', async () => {
  refusal = new Error('not in time');
  let streams = 0;
  const dialStream = (): Promise<Duplex> => {
    streams += 1;
    return Promise.reject(new Error('404'));
  };
  await expect(run.serve(80, dialStream)).rejects.toThrow('not in time');
  // No more is read from a guest while this promise is open, so its connection would never be given back.
  await events.onData('stdout', Buffer.from('late'));
  expect(streams).toBe(0);
});
