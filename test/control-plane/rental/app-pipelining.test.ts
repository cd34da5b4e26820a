// Requests that a client of an application sends before it has the answers to earlier ones: a hundred on each connection.
import { connect, type Socket } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { AUTHORIZATION, HOST, openProxiedApp, type ProxiedApp } from './proxied-app.ts';

const REQUEST = `GET / HTTP/1.1\r\nHost: ${HOST}\r\nAuthorization: ${AUTHORIZATION}\r\n\r\n`;

let proxied: ProxiedApp;
let socket: Socket;
/** The number of answers that have arrived. */
let answers: number;
beforeEach(async () => {
  proxied = await openProxiedApp();
  proxied.onRequest = (_request, response) => void response.end('done');
  answers = 0;
  socket = connect({ port: proxied.port, host: '127.0.0.1' });
  let rest = '';
  socket.setEncoding('latin1').on('data', (chunk: string) => {
    const parts = (rest + chunk).split('done');
    answers += parts.length - 1;
    rest = parts.at(-1) ?? '';
  });
});
afterEach(async () => {
  socket.destroy();
  await proxied.close();
});

test('a hundred requests ahead of their answers are answered', async () => {
  socket.write(REQUEST.repeat(100));
  await expect.poll(() => answers).toBe(100);
});

test('more requests ahead of their answers end the connection, and cost nothing beyond the hundred', async () => {
  let lookups = 0;
  proxied.onLookup = () => {
    lookups += 1;
    return new Promise(() => undefined);
  };
  const closed = new Promise((resolve) => socket.on('error', () => undefined).once('close', resolve));
  socket.write(REQUEST.repeat(3_000));
  await closed;
  expect(lookups).toBe(100);
});

test('requests that were answered do not count as ahead', async () => {
  for (let i = 1; i <= 150; i += 1) {
    socket.write(REQUEST);
    await expect.poll(() => answers, { interval: 1 }).toBe(i);
  }
  expect(socket.destroyed).toBe(false);
});
