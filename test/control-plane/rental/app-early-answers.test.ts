// Answers to a body that its application does not read, for a client that reads an answer only after it has sent the whole body.
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { type Duplex, duplexPair } from 'node:stream';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { StreamError } from '../../../control-plane/fleet/link/streams.ts';
import { AUTHORIZATION, HOST, openProxiedApp, type ProxiedApp } from './proxied-app.ts';

/** Far more than all buffers on the way hold. */
const BODY_BYTES = 64 * 1024 * 1024;
const TOO_LARGE = 'HTTP/1.1 413 Payload Too Large\r\nContent-Length: 9\r\n\r\ntoo large';

let proxied: ProxiedApp;
let client: Socket;
beforeEach(async () => {
  proxied = await openProxiedApp();
  client = connect(proxied.port, '127.0.0.1');
  await once(client, 'connect');
});
afterEach(async () => {
  client.destroy();
  await proxied.close();
});

const write = (bytes: string | Buffer): Promise<void> =>
  new Promise((resolve) => void client.write(bytes, () => resolve()));
const head = (method: string, bytes: number): string =>
  `${method} / HTTP/1.1\r\nHost: ${HOST}\r\nAuthorization: ${AUTHORIZATION}\r\nContent-Length: ${bytes}\r\n\r\n`;

/** Sends everything, then reads an answer up to these words, and then sends one more request. */
async function sendThenRead(end: string): Promise<string> {
  await write(head('POST', BODY_BYTES));
  await write(Buffer.alloc(BODY_BYTES));
  let received = '';
  client.setEncoding('latin1').on('data', (chunk: string) => (received += chunk));
  await expect.poll(() => received).toContain(end);
  const answer = received;
  received = '';
  await write(head('GET', 0));
  await expect.poll(() => received).toContain(end);
  return answer;
}

test.each<[string, (inside: Duplex) => unknown]>([
  ['leaves the rest unread', () => undefined],
  ['ends the connection', (inside) => inside.end()],
  ['breaks the connection', (inside) => inside.end(() => inside.destroy())],
])('an application that answers at once and %s is heard, and the connection goes on', async (_, then) => {
  proxied.dial = async () => {
    const [near, inside] = duplexPair();
    inside.once('data', () => {
      inside.pause();
      inside.write(TOO_LARGE);
      then(inside);
    });
    return near;
  };
  expect(await sendThenRead('too large')).toMatch(/^HTTP\/1.1 413 /);
});

test('an application that is not there is reported, and the connection goes on', async () => {
  proxied.dial = async () => {
    throw new StreamError('refused', 'nothing listens');
  };
  expect(await sendThenRead('does not answer')).toMatch(/^HTTP\/1.1 502 /);
});
