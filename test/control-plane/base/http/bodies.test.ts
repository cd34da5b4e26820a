// Bodies that are read whole: what they hold in memory while they arrive, and that a refused one leaves its connection usable.
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { BODY_BYTES_MAX } from '../../../../shared/limits.ts';
import { collectGarbage } from '../../../kit/garbage.ts';
import { virtualClock } from '../../../kit/virtual-clock.ts';
import { type Bench, openBench } from './fixture.ts';

let bench: Bench;
let port: number;
let socket: Socket;
beforeEach(async () => {
  bench = await openBench();
  ({ port } = await bench.http.listen({ host: '127.0.0.1', port: 0 }));
  socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
});
afterEach(async () => {
  socket.destroy();
  await bench.close();
});

const post = (...headers: string[]): string =>
  `${['POST /v1/things HTTP/1.1', 'Host: x', 'Authorization: Bearer all', 'Idempotency-Key: k', 'Content-Type: application/json', ...headers].join('\r\n')}\r\n\r\n`;
const GET = 'GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n';
const received = async (): Promise<string> => {
  let text = '';
  for await (const piece of socket) text += String(piece);
  return text;
};
/** The text in chunks of one byte. */
const inBytes = (text: string): string => text.replaceAll(/./g, (byte) => `1\r\n${byte}\r\n`);

test('a body in pieces of one byte is read, and holds no piece of them while it arrives', async () => {
  collectGarbage();
  const before = process.memoryUsage().heapUsed;
  const padding = ' '.repeat(50_000);
  socket.write(post('Transfer-Encoding: chunked') + inBytes(`{"name":"a"${padding}`));
  await expect.poll(() => socket.writableLength).toBe(0);
  // The server has read what was sent before it answers another connection.
  await fetch(`http://127.0.0.1:${port}/healthz`);
  collectGarbage();
  // The pieces would hold 10 MB: two hundred bytes each, beside the block of the connection that they share.
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(2_000_000);
  socket.write(`${inBytes('}')}0\r\n\r\n${GET}`);
  expect(await received()).toMatch(/^HTTP\/1\.1 202 [^]*HTTP\/1\.1 200 /);
});

test.each([
  [
    'above the limit',
    (): string => post(`Content-Length: ${BODY_BYTES_MAX + 1}`) + ' '.repeat(BODY_BYTES_MAX + 1),
    413,
  ],
  [
    'above the limit, without a length',
    (): string =>
      `${post('Transfer-Encoding: chunked')}${(BODY_BYTES_MAX + 1).toString(16)}\r\n${' '.repeat(BODY_BYTES_MAX + 1)}\r\n0\r\n\r\n`,
    413,
  ],
  ['that is no JSON', (): string => `${post('Content-Length: 1')}{`, 400],
])('a body %s is refused, and its connection serves the next request', async (_, request, status) => {
  socket.write(request() + GET);
  const answers = await received();
  expect(answers).toMatch(new RegExp(`^HTTP/1\\.1 ${status} [^]*HTTP/1\\.1 200 `));
});

test('a caller that closes its connection after the answer sends its body to the end first', async () => {
  const order: string[] = [];
  socket.on('data', () => order.push('answered'));
  socket.write(`${post('Connection: close', `Content-Length: ${BODY_BYTES_MAX + 2}`)} `);
  // The server has read the head of the request before it answers another connection.
  await fetch(`http://127.0.0.1:${port}/healthz`);
  order.push('the last byte');
  socket.write(' '.repeat(BODY_BYTES_MAX + 1));
  expect(await received()).toMatch(/^HTTP\/1\.1 413 /);
  expect(order).toEqual(['the last byte', 'answered']);
});

test('a caller that closes its connection and never ends its body is answered all the same', async () => {
  const clock = virtualClock();
  const own = await openBench({ clock });
  const { port: ownPort } = await own.http.listen({ host: '127.0.0.1', port: 0 });
  const slow = connect(ownPort, '127.0.0.1');
  slow.write(`${post('Connection: close', `Content-Length: ${BODY_BYTES_MAX + 2}`)} `);
  const answered = once(slow, 'data');
  await expect.poll(() => clock.waiting()).toBeGreaterThan(1);
  await clock.advance(1_000);
  expect(String((await answered)[0])).toMatch(/^HTTP\/1\.1 413 /);
  slow.destroy();
  await own.close();
});
