// Requests that a client sends to a secondary ahead of their answers.
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { WAITING_MAX } from '../../../../control-plane/base/http/one-by-one.ts';
import { codeOf } from '../../../../shared/errors.ts';
import { ask, begin, exchange, openPlanes, type Planes } from './two-control-planes.ts';

let planes: Planes;
let port: number;
beforeEach(async () => {
  planes = await openPlanes();
  ({ port } = planes);
});
afterEach(() => planes.close());

const get = (path: string, more = ''): string => `GET ${path} HTTP/1.1\r\nHost: x\r\n${more}\r\n`;
const post = (path: string, body: string): string =>
  `POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`;

/** Holds each `GET /v1/scripted` on the primary. */
function hold(): { begun: () => number; left: () => number; release: () => void } {
  const released = Promise.withResolvers<void>();
  let [begun, left] = [0, 0];
  planes.onGet = async ({ gone }) => {
    begun += 1;
    const n = begun;
    gone.addEventListener('abort', () => {
      left += 1;
    });
    await released.promise;
    return { status: 200, body: { n } };
  };
  return { begun: () => begun, left: () => left, release: () => released.resolve() };
}

test('are answered in their order, those that are answered here too', async () => {
  const held = hold();
  planes.onBody = async (body) => ({ status: 200, body: { text: await text(body) } });
  const all = [
    get('/v1/here'),
    get('/v1/scripted'),
    get('/v1/here'),
    post('/v1/scripted', 'one'),
    get('/v1/scripted'),
    post('/v1/scripted', 'two'),
    get('/v1/here'),
    get('/v1/nowhere', 'Connection: close\r\n'),
  ];
  const { answer } = begin(port, all.join(''));
  await expect.poll(held.begun).toBe(1);
  held.release();
  expect((await answer).match(/\{"(by|n|text)".*?\}|"not_found"/g)).toEqual([
    '{"by":"secondary"}',
    '{"n":1}',
    '{"by":"secondary"}',
    '{"text":"one"}',
    '{"n":2}',
    '{"text":"two"}',
    '{"by":"secondary"}',
    '"not_found"',
  ]);
});

test('hold one connection to the primary together', async () => {
  const held = hold();
  const { socket } = begin(port, get('/v1/scripted').repeat(WAITING_MAX));
  for (let i = 0; i < 30; i += 1) await ask(port, { path: '/v1/who' });
  expect(held.begun()).toBe(1);
  held.release();
  await expect.poll(held.begun).toBe(WAITING_MAX);
  socket.destroy();
});

test('are forgotten if their client leaves', async () => {
  const held = hold();
  const { socket } = begin(port, get('/v1/scripted').repeat(WAITING_MAX));
  await expect.poll(held.begun).toBe(1);
  socket.destroy();
  await expect.poll(held.left).toBe(1);
  for (let i = 0; i < 30; i += 1) await ask(port, { path: '/v1/who' });
  expect(held.begun()).toBe(1);
  held.release();
});

test('are forgotten after an answer that is the last of its connection', async () => {
  const held = hold();
  const { socket, answer } = begin(port, get('/v1/scripted').repeat(3));
  await expect.poll(held.begun).toBe(1);
  const closed = planes.secondary.http.close();
  await expect.poll(() => ask(port, { path: '/v1/here' }).catch(codeOf)).toBe('ECONNREFUSED');
  held.release();
  expect((await answer).match(/"n":\d/g)).toEqual(['"n":1']);
  await closed;
  expect([held.begun(), socket.destroyed]).toEqual([1, true]);
});

test('close the connection if they are too many', async () => {
  const held = hold();
  expect(await exchange(port, get('/v1/scripted').repeat(WAITING_MAX + 2))).toBe('');
  expect(held.begun()).toBeLessThanOrEqual(1);
  await expect.poll(held.left).toBe(held.begun());
  held.release();
});

test('that waited are served here if this has become the primary', async () => {
  const held = hold();
  const { answer } = begin(port, get('/v1/scripted') + get('/v1/who', 'Connection: close\r\n'));
  await expect.poll(held.begun).toBe(1);
  planes.believed = 'self';
  held.release();
  expect(await answer).toMatch(/"n":1[^]*"by":"secondary"/);
});
