// Limits for strangers: header sizes, and input that is not HTTP. Every refusal has the form of its path.
import { once } from 'node:events';
import { connect } from 'node:net';
import { PassThrough } from 'node:stream';
import { afterEach, describe, expect, test } from 'vitest';
import { refuseUnread } from '../../../../control-plane/base/http/unread-requests.ts';
import { createIds } from '../../../../shared/ids.ts';
import { InferenceError } from '../../../../shared/api/inference.ts';
import { HEADER_BYTES_MAX, HEADER_BYTES_READ_MAX } from '../../../../shared/limits.ts';
import { seededRng } from '../../../../shared/rng.ts';
import { virtualClock } from '../../../kit/virtual-clock.ts';
import type { WireReply } from '../../../../control-plane/base/http/route.ts';
import { eventually } from '../../../kit/processes.ts';
import { as, type Bench, openBench, problemOf } from './fixture.ts';

const open: Bench[] = [];
afterEach(async () => {
  for (const bench of open.splice(0)) await bench.close();
});

async function openPort(): Promise<number> {
  const bench = await openBench();
  open.push(bench);
  return (await bench.http.listen({ host: '127.0.0.1', port: 0 })).port;
}

/** Everything that the server sends until it closes the connection. Several texts are sent in separate packets. */
async function exchange(port: number, texts: string | readonly string[]): Promise<{ head: string; body: string }> {
  const chunks: Buffer[] = [];
  const socket = connect({ port, host: '127.0.0.1', noDelay: true }, () => {
    const [first = '', ...more] = [texts].flat();
    socket.write(first);
    more.forEach((text, i) => setTimeout(() => socket.write(text), 50 * (i + 1)));
  });
  socket.on('data', (chunk) => chunks.push(chunk));
  await once(socket, 'close');
  const answer = Buffer.concat(chunks).toString();
  const end = answer.indexOf('\r\n\r\n');
  return { head: answer.slice(0, end), body: answer.slice(end + 4) };
}

const HEAD = 'GET /v1/ip HTTP/1.1\r\nHost: x\r\nConnection: close\r\n';
/** A request whose headers have `bytes` bytes as the parser counts them, including names, values and separators. */
const padded = (bytes: number): string => `${HEAD}X-Padding: ${'x'.repeat(bytes - HEAD.length - 13)}\r\n\r\n`;

describe('headers', () => {
  // Specification 8: Headers have a largest size.
  test('up to the limit are read, above it the answer is 431', async () => {
    const port = await openPort();
    expect((await exchange(port, padded(HEADER_BYTES_MAX - 64))).head).toContain('HTTP/1.1 200');
    const refused = await exchange(port, padded(HEADER_BYTES_MAX + 64));
    expect(refused.head).toMatch(/^HTTP\/1\.1 431 Request Header Fields Too Large\r\n/);
    expect(refused.head).toContain('content-type: application/problem+json');
    expect(JSON.parse(refused.body)).toMatchObject({
      code: 'headers_too_large',
      status: 431,
      detail: expect.stringContaining(String(HEADER_BYTES_MAX)),
    });
  });
  test('a path that is too long is answered with 431, even if it comes in many megabytes', async () => {
    const port = await openPort();
    const long = await exchange(port, `GET /${'x'.repeat(HEADER_BYTES_MAX)} HTTP/1.1\r\nHost: x\r\n\r\n`);
    expect(JSON.parse(long.body)).toMatchObject({ code: 'headers_too_large' });
    const huge = await exchange(port, padded(8 * 1024 * 1024));
    expect(JSON.parse(huge.body)).toMatchObject({ code: 'headers_too_large' });
  });
});

describe('on the paths of inference the refusal is the envelope', () => {
  const HEAD_OF_CHAT = 'POST /v1/chat/thing HTTP/1.1\r\nHost: x\r\n';
  const envelopeOf = ({ head, body }: { head: string; body: string }, status: number): unknown => {
    expect(head).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(head).toContain('content-type: application/json; charset=utf-8');
    const { error } = InferenceError.parse(JSON.parse(body));
    return error.code;
  };

  // Specification 7.1: Inference endpoints have the envelope for 431, 408 and what is no HTTP too.
  test('for headers that are too large, in one packet or in many', async () => {
    const port = await openPort();
    for (const bytes of [HEADER_BYTES_MAX, HEADER_BYTES_READ_MAX - 200]) {
      const text = `${HEAD_OF_CHAT}Connection: close\r\nX-Padding: ${'x'.repeat(bytes)}\r\n\r\n`;
      expect(envelopeOf(await exchange(port, text), 431)).toBe('headers_too_large');
    }
    const slow = `${HEAD_OF_CHAT}Connection: close\r\nX-Padding: ${'x'.repeat(HEADER_BYTES_MAX)}\r\n\r\n`;
    expect(envelopeOf(await exchange(port, [slow.slice(0, 9_000), slow.slice(9_000)]), 431)).toBe('headers_too_large');
  });

  test.each([
    ['a header without a name', `${HEAD_OF_CHAT}: y\r\n\r\n`],
    ['an unknown version', 'POST /v1/chat/thing HTTP/9.9\r\nHost: x\r\n\r\n'],
    ['two lengths', `${HEAD_OF_CHAT}Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}`],
    ['no Host', 'POST /v1/chat/thing HTTP/1.1\r\nConnection: close\r\n\r\n'],
    ['a broken second request', 'POST /v1/chat/thing HTTP/1.1\r\nHost: x\r\n\r\n\x01\x02'],
  ])('for input that is not HTTP: %s', async (_what, text) => {
    const answer = await exchange(await openPort(), text);
    const at = answer.body.lastIndexOf('HTTP/1.1 400');
    const last = at < 0 ? answer : { head: answer.body.slice(at), body: answer.body.split('\r\n\r\n').at(-1) ?? '' };
    expect(envelopeOf(last, 400)).toBe('invalid_request_error');
  });

  test('for a body that is late', async () => {
    const clock = virtualClock();
    const bench = await openBench({ clock });
    open.push(bench);
    const { port } = await bench.http.listen({ host: '127.0.0.1', port: 0 });
    const socket = connect(port, '127.0.0.1');
    const chunks: Buffer[] = [];
    socket.on('data', (chunk) => chunks.push(chunk));
    const json = 'Authorization: Bearer all\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{';
    socket.write(`${HEAD_OF_CHAT}${json}`);
    const closed = once(socket, 'close');
    await eventually('end of the connection', 5_000, async () => {
      await clock.advance(10_000);
      return socket.readableEnded ? true : undefined;
    });
    socket.end();
    await closed;
    const [head = '', body = ''] = Buffer.concat(chunks).toString().split('\r\n\r\n');
    expect(envelopeOf({ head, body }, 408)).toBe('request_timeout');
  });
});

test('a body that trickles in is answered with 408 after a minute, however much of it has arrived', async () => {
  const clock = virtualClock();
  const bench = await openBench({ clock });
  open.push(bench);
  const { port } = await bench.http.listen({ host: '127.0.0.1', port: 0 });
  const chunks: Buffer[] = [];
  const socket = connect(port, '127.0.0.1');
  socket.on('data', (chunk) => chunks.push(chunk));
  const head = 'POST /v1/things HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer all\r\nContent-Type: application/json\r\n';
  socket.write(`${head}Idempotency-Key: k\r\nContent-Length: 20\r\n\r\n{`);
  const closed = once(socket, 'close');
  for (let second = 0; second < 60; second += 1) {
    if (second % 10 === 0) {
      socket.write(' ');
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    expect(socket.destroyed).toBe(false);
    await clock.advance(1_000);
  }
  await closed;
  expect(Buffer.concat(chunks).toString()).toMatch(/^HTTP\/1\.1 408 Request Timeout\r\n[^]*"code":"request_timeout"/);
});

describe('input that is not HTTP', () => {
  // Specification 7.1: What is no HTTP is answered by a problem document too.
  test.each([
    ['a TLS hello', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'],
    ['an unknown method', 'FROBNICATE / HTTP/1.1\r\nHost: x\r\n\r\n'],
    ['an unknown version', 'GET / HTTP/9.9\r\nHost: x\r\n\r\n'],
    ['HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
    ['a header without a name', 'GET / HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n'],
    ['a control character in a header', 'GET / HTTP/1.1\r\nHost: x\r\nA: \x01\r\n\r\n'],
    ['two lengths', 'POST /v1/things HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}'],
    [
      'a length and chunks',
      'POST /v1/things HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n',
    ],
    ['no Host', 'GET /v1/ip HTTP/1.1\r\nConnection: close\r\n\r\n'],
  ])('%s is 400', async (_what, text) => {
    const answer = await exchange(await openPort(), text);
    expect(answer.head).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/);
    expect(answer.head).toContain('application/problem+json');
    const problem = JSON.parse(answer.body) as { request_id: string };
    expect(problem).toMatchObject({ code: 'invalid_request', status: 400 });
    expect(answer.head).toContain(`x-request-id: ${problem.request_id}`);
  });
  test.each(['CONNECT example.com:443', 'OPTIONS /v1/ip', 'TRACE /v1/ip', 'PROPFIND /v1/ip'])(
    '%s is 405',
    async (line) => {
      const answer = await exchange(await openPort(), `${line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
      expect(answer.head).toMatch(/^HTTP\/1\.1 405 /);
      expect(JSON.parse(answer.body)).toMatchObject({ code: 'method_not_allowed', status: 405 });
    },
  );
  test('an unknown expectation is ignored', async () => {
    expect((await exchange(await openPort(), `${HEAD}Expect: the-best\r\n\r\n`)).head).toContain('HTTP/1.1 200');
  });
  test('HTTP/1.0 needs no Host', async () => {
    expect((await exchange(await openPort(), 'GET /v1/ip HTTP/1.0\r\n\r\n')).head).toContain(' 200 ');
  });
  test('a request that does not arrive in time is answered with 408', async () => {
    const clock = virtualClock();
    const socket = new PassThrough();
    refuseUnread(Object.assign(new Error('late'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' }), socket, {
      clock,
      ids: createIds(clock, seededRng(1)),
    });
    const chunks: Buffer[] = [];
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    await once(socket, 'end');
    expect(Buffer.concat(chunks).toString()).toMatch(/^HTTP\/1\.1 408 Request Timeout\r\n[^]*"code":"request_timeout"/);
  });
});

test('a route without a body accepts only an empty one', async () => {
  const bench = await openBench();
  open.push(bench);
  const ask = (payload: object | string): Promise<WireReply> => {
    const headers = as('all', { 'content-type': 'application/json' });
    return bench.http.inject({ method: 'POST', url: '/v1/things/x/touch', headers, payload });
  };
  expect((await ask('')).status).toBe(204);
  expect((await ask({})).status).toBe(204);
  const reply = await ask({ x: 1 });
  expect(reply.status).toBe(422);
  expect(problemOf(reply).errors).toEqual([{ field: 'x', rule: 'is not a known field' }]);
  expect(problemOf(await ask('[]')).errors).toEqual([{ field: 'body', rule: 'must be an object' }]);
});
