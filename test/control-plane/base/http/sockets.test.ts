// The server on a real socket: proxies, upgrades, callers who leave, closing, and the unix socket of the operator.
import { once } from 'node:events';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { connect, type Socket } from 'node:net';
import { PassThrough } from 'node:stream';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { route, uploadRoute } from '../../../../control-plane/base/http/route.ts';
import { codeOf, fail } from '../../../../shared/errors.ts';
import { createLog } from '../../../../shared/log.ts';
import { virtualClock } from '../../../kit/virtual-clock.ts';
import { callerWith, openBench } from './fixture.ts';
import { openPlanes } from './two-control-planes.ts';

test('proxy headers count only where the proxy is trusted', async () => {
  const forwarded = { 'x-forwarded-for': '203.0.113.7' };
  const plain = await openBench();
  const { port } = await plain.http.listen({ host: '127.0.0.1', port: 0 });
  expect((await get(port, '/v1/ip', forwarded)).body).toBe('{"clientIp":"127.0.0.1"}');
  await plain.close();
  const trusting = await openBench({ http: { trustProxy: ['127.0.0.1'] } });
  const behind = await trusting.http.listen({ host: '127.0.0.1', port: 0 });
  expect((await get(behind.port, '/v1/ip', forwarded)).body).toBe('{"clientIp":"203.0.113.7"}');
  await trusting.close();
});

test('upgrades go to the listener of their path, and an offer on another path is handled as a plain request', async () => {
  const own = await openBench();
  const seen: string[] = [];
  own.http.onUpgrade('/agent/', ({ request, socket }) => {
    seen.push(request.url ?? '');
    socket.end('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\nhello');
  });
  const { port } = await own.http.listen({ host: '127.0.0.1', port: 0 });
  const talk = (path: string) =>
    exchange(port, `GET ${path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n`);
  expect(await talk('/agent/v1/link')).toContain('hello');
  expect(await talk('/healthz')).toContain('{"status":"ok"}');
  expect(seen).toEqual(['/agent/v1/link']);
  await own.close();
});

test('a caller who disconnects in the middle of a body is not logged as our error', async () => {
  const lines: string[] = [];
  const log = createLog('test', 'error', { write: (line) => void lines.push(line) });
  const own = await openBench({ log });
  const { port } = await own.http.listen({ host: '127.0.0.1', port: 0 });
  const head = 'POST /v1/things HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer all\r\nContent-Type: application/json';
  const socket = connect(port, '127.0.0.1', () => {
    socket.write(`${head}\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n`);
  });
  // The server signals that it is reading.
  socket.once('data', () => socket.destroy());
  await once(socket, 'close');
  // This request comes after the end of the other connection, so the server has noticed that end.
  await get(port, '/healthz');
  expect(lines).toEqual([]);
  await own.close();
});

test('a handler learns that its caller has left, also if that was while the caller was authenticated', async () => {
  const asked = Promise.withResolvers<void>();
  const known = Promise.withResolvers<void>();
  const hasLeft = Promise.withResolvers<boolean>();
  const own = await openBench({
    authenticate: async (token) => {
      asked.resolve();
      await known.promise;
      return callerWith(token);
    },
    routes: () => [
      route({
        method: 'GET',
        path: '/v1/wait',
        operationId: 'wait',
        tag: 'test',
        summary: 'Wait',
        scope: 'instances:read',
        idempotency: 'none',
        responses: { 200: { description: 'Waited' } },
        errors: [],
        handler: async ({ gone }) => {
          hasLeft.resolve(gone.aborted);
          return { status: 200 };
        },
      }),
    ],
  });
  const { port } = await own.http.listen({ host: '127.0.0.1', port: 0 });
  const socket = connect(port, '127.0.0.1');
  socket.write('GET /v1/wait HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer all\r\n\r\n');
  await asked.promise;
  socket.destroy();
  // This request comes after the end of the other connection, so the server has noticed that end.
  await get(port, '/healthz');
  known.resolve();
  expect(await hasLeft.promise).toBe(true);
  await own.close();
});

test('a caller whose key ends while it holds its body back is refused, and one with a quick body is read once', async () => {
  const clock = virtualClock();
  let isLiving = true;
  let asked = Promise.withResolvers<void>();
  let reads = 0;
  const own = await openBench({
    clock,
    authenticate: async (token) => {
      reads += 1;
      asked.resolve();
      return isLiving ? callerWith(token) : undefined;
    },
  });
  const { port } = await own.http.listen({ host: '127.0.0.1', port: 0 });
  const head =
    'POST /v1/things HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer all\r\nIdempotency-Key: ';
  const send = async (key: string, meanwhile: () => Promise<void>): Promise<string> => {
    asked = Promise.withResolvers();
    const body = '{"name":"a"}';
    const type = `Content-Type: application/json\r\nContent-Length: ${body.length}`;
    const { socket, answer } = begin(port, `${head}${key}\r\n${type}\r\n\r\n`);
    await asked.promise;
    await meanwhile();
    socket.write(body);
    return (await answer).slice(0, 12);
  };
  expect(await send('quick', () => clock.advance(999))).toBe('HTTP/1.1 202');
  expect(reads).toBe(1);
  expect(await send('late', () => clock.advance(1_000))).toBe('HTTP/1.1 202');
  expect(reads).toBe(3);
  const ended = async (): Promise<void> => {
    isLiving = false;
    await clock.advance(1_000);
  };
  expect(await send('ended', ended)).toBe('HTTP/1.1 401');
  expect(await own.effects()).toBe(2);
  await own.close();
});

test('closing lets a request in progress finish and accepts no more', async () => {
  const entered = Promise.withResolvers<void>();
  const release = Promise.withResolvers<void>();
  const slow = route({
    method: 'GET',
    path: '/slow',
    operationId: 'slow',
    tag: 'x',
    summary: 'x',
    scope: 'none',
    idempotency: 'none',
    responses: { 200: { description: 'x', schema: z.strictObject({ done: z.boolean() }) } },
    errors: [],
    handler: async () => {
      entered.resolve();
      await release.promise;
      return { status: 200, body: { done: true } };
    },
  });
  const own = await openBench({ routes: () => [slow] });
  const { port } = await own.http.listen({ host: '127.0.0.1', port: 0 });
  const answer = get(port, '/slow', { connection: 'keep-alive' });
  await entered.promise;
  const closed = own.close();
  await expect(get(port, '/healthz')).rejects.toThrow('ECONNREFUSED');
  release.resolve();
  const reply = await answer;
  expect(reply.body).toBe('{"done":true}');
  expect(reply.headers['connection']).toBe('close');
  await closed;
});

test('the connection of an answer that began before the end of the server ends with it', async () => {
  const stream = new PassThrough();
  const streams = route({
    method: 'GET',
    path: '/stream',
    operationId: 'stream',
    tag: 'x',
    summary: 'x',
    scope: 'none',
    idempotency: 'none',
    responses: { 200: { description: 'x', mediaType: 'text/plain' } },
    errors: [],
    handler: async () => ({ status: 200, headers: { 'content-type': 'text/plain' }, stream }),
  });
  // Time does not pass, so no time limit ends the connection.
  const own = await openBench({ routes: () => [streams], clock: virtualClock() });
  const { port } = await own.http.listen({ host: '127.0.0.1', port: 0 });
  const { socket, answer } = begin(port, 'GET /stream HTTP/1.1\r\nHost: x\r\n\r\n');
  stream.write('begun, ');
  await once(socket, 'data');
  const closed = own.close();
  await expect.poll(() => get(port, '/healthz').catch(codeOf)).toBe('ECONNREFUSED');
  stream.end('ended');
  expect(await answer).toMatch(/keep-alive[^]*begun, [^]*ended/);
  await closed;
});

test('the connection of an answer of the primary that began before the end of a secondary ends with it too', async () => {
  const stream = new PassThrough();
  const own = await openPlanes({ clock: virtualClock() });
  own.onGet = async () => ({ status: 200, headers: { 'content-type': 'text/event-stream' }, stream });
  const { socket, answer } = begin(own.port, 'GET /v1/scripted HTTP/1.1\r\nHost: x\r\n\r\n');
  stream.write('begun, ');
  await once(socket, 'data');
  const closed = own.secondary.http.close();
  await expect.poll(() => get(own.port, '/healthz').catch(codeOf)).toBe('ECONNREFUSED');
  stream.end('ended');
  expect(await answer).toMatch(/keep-alive[^]*begun, [^]*ended/);
  await closed;
  await own.close();
});

test('the request after an upload that was refused midway is answered on the same connection', async () => {
  const refusing = uploadRoute({
    method: 'POST',
    path: '/v1/pieces',
    operationId: 'sendPieces',
    tag: 'x',
    summary: 'x',
    scope: 'none',
    idempotency: 'none',
    upload: {},
    responses: { 200: { description: 'x' } },
    errors: ['storage_full'],
    handler: async ({ body }) => {
      for await (const _first of body.stream.iterator({ destroyOnReturn: false })) break;
      fail('storage_full', 'a planted refusal');
    },
  });
  const own = await openBench({ routes: () => [refusing] });
  const { port } = await own.http.listen({ host: '127.0.0.1', port: 0 });
  // A body of this length is more than Node reads ahead.
  const body = ' '.repeat(1024 ** 2);
  const upload = `POST /v1/pieces HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  const answers = await exchange(port, `${upload}GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
  expect(answers.match(/HTTP\S+ \d+/g)).toEqual(['HTTP/1.1 507', 'HTTP/1.1 200']);
  await own.close();
});

test('a connection that has sent nothing does not hold up the end of the server', async () => {
  // Time does not pass, so no time limit ends the connections.
  const own = await openBench({ clock: virtualClock() });
  const { port } = await own.http.listen({ host: '127.0.0.1', port: 0 });
  const sockets = Array.from({ length: 3 }, () => connect(port, '127.0.0.1'));
  const closed = sockets.map((socket) => once(socket, 'close'));
  for (const socket of sockets) socket.on('error', () => undefined).resume();
  await Promise.all(sockets.map((socket) => once(socket, 'connect')));
  sockets[1]?.write('GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n');
  // The end of a head that never comes is no request.
  sockets[2]?.write('GET /healthz HTTP/1.1\r\n');
  await get(port, '/healthz');
  await own.close();
  await Promise.all(closed);
});

test('the unix socket is only for its owner, and a socket that a killed process left behind is replaced', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'svc-'));
  const socketPath = join(directory, 'admin.sock');
  const first = await openBench({ http: { audience: 'operator' } });
  await first.http.listen({ socketPath });
  expect(statSync(socketPath).mode & 0o777).toBe(0o600);
  const second = await openBench({ http: { audience: 'operator' } });
  await expect(second.http.listen({ socketPath })).rejects.toThrow('another process is listening');
  await first.close();
  await second.close();
  rmSync(directory, { recursive: true });
});

const get = (port: number, path: string, headers: Record<string, string> = {}) =>
  new Promise<{ status: number; body: string; headers: Record<string, unknown> }>((resolve, reject) => {
    const request = httpRequest({ port, path, headers, agent: false }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('end', () =>
        resolve({
          status: response.statusCode ?? 0,
          body: Buffer.concat(chunks).toString(),
          headers: response.headers,
        }),
      );
    });
    request.on('error', reject).end();
  });

function exchange(port: number, text: string): Promise<string> {
  return begin(port, text).answer;
}

/** Sends the text, and may send more. The answer is all that comes until the connection closes. */
function begin(port: number, text: string): { socket: Socket; answer: Promise<string> } {
  const socket: Socket = connect(port, '127.0.0.1', () => socket.write(text));
  const answer = new Promise<string>((resolve, reject) => {
    const chunks: Buffer[] = [];
    socket.on('data', (chunk) => chunks.push(chunk));
    socket.on('close', () => resolve(Buffer.concat(chunks).toString()));
    socket.on('error', reject);
  });
  return { socket, answer };
}
