// Requests to a secondary: it answers a few itself, and passes the others on to the primary, whose answers come back unchanged.
import { once } from 'node:events';
import { type IncomingMessage, request as sendRequest } from 'node:http';
import { type AddressInfo, createServer as createTcpServer, type Server as TcpServer, type Socket } from 'node:net';
import { PassThrough, Readable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { codeOf } from '../../../../shared/errors.ts';
import { virtualClock } from '../../../kit/virtual-clock.ts';
import { as } from './fixture.ts';
import { ask, at, begin, exchange, open, openPlanes, type Planes, PRIMARY, type Sent } from './two-control-planes.ts';

const RATE_LIMITS = {
  perKeyPerSecond: 1,
  perIpPerSecond: 1,
  burst: 2,
  inference: { perKeyPerSecond: 1, burst: 1, perOrgPerSecond: 1, orgBurst: 1 },
};
const EVENTS = { 'content-type': 'text/event-stream' };

let planes: Planes;
let port: number;
beforeEach(async () => {
  planes = await openPlanes({ http: { rateLimits: RATE_LIMITS } });
  ({ port } = planes);
});
afterEach(() => planes.close());

const who = async (sent: Partial<Sent> = {}): Promise<unknown> =>
  JSON.parse((await ask(port, { path: '/v1/who', ...sent })).body);

/** The next GET of the primary waits until it is released. */
function holdGet(): { entered: PromiseWithResolvers<void>; release: PromiseWithResolvers<void> } {
  const [entered, release] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  planes.onGet = async () => {
    entered.resolve();
    await release.promise;
    return { status: 200, body: { ended: true } };
  };
  return { entered, release };
}

describe('a request', () => {
  test.each([
    ['a GET', { path: '/v1/things/x?include=all', headers: as('reader') }],
    ['a refusal', { path: '/v1/things/gone', headers: as('reader') }],
    ['a HEAD', { method: 'HEAD', path: '/v1/things/x', headers: as('reader') }],
    ['a path that there is not', { path: '/v1/nowhere' }],
    ['a method that a path does not take', { method: 'PUT', path: '/v1/echo', body: 'x' }],
    [
      'a POST with JSON',
      {
        method: 'POST',
        path: '/v1/echo',
        headers: { 'content-type': 'application/json' },
        body: '{"text": "\u00e9\u{1f600}", "list": [1, 2]}',
      },
    ],
  ] satisfies [string, Sent][])('comes back as from the primary itself: %s', async (_what, sent) => {
    const named = { ...sent, headers: { 'x-request-id': 'trace-1', ...('headers' in sent ? sent.headers : {}) } };
    const undated = async (of: number): Promise<unknown> => {
      const { status, rawHeaders, body } = await ask(of, named);
      return { status, headers: rawHeaders.map((text, i) => (rawHeaders[i - 1] === 'Date' ? 'then' : text)), body };
    };
    expect(await undated(port)).toEqual(await undated(planes.primaryPort));
  });

  test('to a route that is everywhere is answered here', async () => {
    expect((await ask(port, { path: '/v1/here' })).body).toBe('{"by":"secondary"}');
    expect(await who()).toMatchObject({ by: 'primary' });
    planes.believed = 'unknown';
    for (const path of ['/healthz', '/readyz']) {
      expect((await ask(port, { path })).status).toBe(200);
      expect((await ask(port, { method: 'HEAD', path })).status).toBe(200);
    }
  });

  test('has one id on both', async () => {
    const { headers, body } = await ask(port, { path: '/v1/who' });
    expect(headers['x-request-id']).toMatch(/^req_/);
    expect(JSON.parse(body)).toMatchObject({ requestId: headers['x-request-id'] });
    expect(await who({ headers: { 'x-request-id': 'mine' } })).toMatchObject({ requestId: 'mine' });
  });

  test('that only reads is not counted by the rate limits of the secondary', async () => {
    for (let i = 0; i < 4; i += 1) {
      expect((await ask(port, { path: '/v1/who' })).status).toBe(200);
      expect((await ask(port, { path: '/v1/nowhere' })).status).toBe(404);
    }
  });

  test('that takes a connection of its own to the primary is counted by the rate of its address', async () => {
    const statuses: unknown[] = [];
    for (let i = 0; i < 4; i += 1) statuses.push((await ask(port, { method: 'POST', path: '/v1/nowhere' })).status);
    expect(statuses).toEqual([404, 404, 429, 429]);
    expect((await ask(port, { path: '/v1/who' })).status).toBe(200);
  });

  test('without a body gets none on the way', async () => {
    const head = `POST /v1/things/x/touch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer all\r\nConnection: close\r\n\r\n`;
    expect(await exchange(port, head)).toContain('HTTP/1.1 204');
  });

  test('that waits for the leave to send its body gets it once', async () => {
    const head =
      'POST /v1/scripted HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\nExpect: 100-continue';
    const { socket, answer } = begin(port, `${head}\r\n\r\n`);
    await once(socket, 'data');
    socket.write('ab');
    expect((await answer).match(/HTTP\S+ \d+|\{.*/g)).toEqual(['HTTP/1.1 100', 'HTTP/1.1 200', '{"bytes":2}']);
  });

  test('is measured here by its route', async () => {
    await ask(port, { path: '/v1/things/x', headers: as('reader') });
    await ask(port, { path: '/v1/nowhere' });
    const counts = (await planes.metrics.text())
      .split('\n')
      .filter((line) => line.startsWith('http_request_duration_seconds_count'));
    expect(counts).toEqual([
      expect.stringContaining('route="/v1/things/:id",status="200"} 1'),
      expect.stringContaining('route="unmatched",status="404"} 1'),
    ]);
  });

  test('of HTTP/1.0 needs no Host', async () => {
    expect(await exchange(port, 'GET /v1/who HTTP/1.0\r\n\r\n')).toMatch(/^HTTP\/1\.1 200 OK\r\n[^]*"by":"primary"/);
  });

  test('is passed on once: two that take each other for the primary refuse it', async () => {
    planes.believed = at(port);
    const { status, body } = await ask(port, { path: '/v1/who' });
    expect([status, JSON.parse(body)]).toMatchObject([503, { code: 'unavailable' }]);
  });

  test('is served here once this is the primary, and one that was passed on goes on', async () => {
    const { entered, release } = holdGet();
    const before = ask(port, { path: '/v1/scripted' });
    await entered.promise;
    planes.believed = 'self';
    expect(await who()).toMatchObject({ by: 'secondary' });
    release.resolve();
    expect((await before).body).toBe('{"ended":true}');
  });

  test('in progress when the secondary closes is answered, and its connection takes no other', async () => {
    const { entered, release } = holdGet();
    const { answer } = begin(port, 'GET /v1/scripted HTTP/1.1\r\nHost: x\r\n\r\n');
    await entered.promise;
    const closed = planes.secondary.http.close();
    await expect.poll(() => ask(port, { path: '/v1/here' }).catch(codeOf)).toBe('ECONNREFUSED');
    release.resolve();
    expect(await answer).toMatch(/^HTTP\/1\.1 200 OK\r\n[^]*connection: close\r\n[^]*\{"ended":true\}$/i);
    await closed;
  });
});

describe('the address of a client', () => {
  const forged = { 'x-forwarded-for': '192.0.2.1, 198.51.100.7', 'x-real-ip': '192.0.2.1', forwarded: 'for=192.0.2.1' };

  test('is the one that we see, whatever a stranger claims', async () => {
    expect(await who({ headers: forged })).toMatchObject({ by: 'primary', clientIp: '127.0.0.1' });
    const named = 'Connection: close, X-Forwarded-For\r\nX-Forwarded-For: 192.0.2.1';
    expect(await exchange(port, `GET /v1/who HTTP/1.1\r\nHost: x\r\n${named}\r\n\r\n`)).toContain('"127.0.0.1"');
  });

  test('is the one that a trusted proxy has added', async () => {
    const behind = await openPlanes({ http: { trustProxy: ['127.0.0.1'] } });
    const { body } = await ask(behind.port, { path: '/v1/who', headers: forged });
    expect(JSON.parse(body)).toMatchObject({ by: 'primary', clientIp: '198.51.100.7' });
    await behind.close();
  });
});

describe('a stream', () => {
  test('of events arrives piece by piece', async () => {
    const stream = new PassThrough();
    planes.onGet = async () => ({ status: 200, stream, headers: EVENTS });
    stream.write('data: 1\n\n');
    const answer = await open(port, { path: '/v1/scripted' });
    const pieces = answer[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
    for (const n of [1, 2, 3]) {
      expect(String((await pieces.next()).value)).toBe(`data: ${n}\n\n`);
      stream.write(`data: ${n + 1}\n\n`);
    }
    answer.destroy();
  });

  test('that the client leaves ends on the primary', async () => {
    const left = Promise.withResolvers<void>();
    const stream = new PassThrough();
    stream.write('data: 1\n\n');
    planes.onGet = async ({ gone }) => {
      gone.addEventListener('abort', () => left.resolve());
      return { status: 200, stream, headers: EVENTS };
    };
    const { socket } = begin(port, 'GET /v1/scripted HTTP/1.1\r\nHost: x\r\n\r\n');
    await once(socket, 'data');
    socket.destroy();
    await left.promise;
  });

  test('that the client leaves before the answer ends on the primary', async () => {
    const entered = Promise.withResolvers<void>();
    const left = Promise.withResolvers<void>();
    planes.onGet = async ({ gone }) => {
      gone.addEventListener('abort', () => left.resolve());
      entered.resolve();
      await left.promise;
      return { status: 200, body: {} };
    };
    const { socket } = begin(port, 'GET /v1/scripted HTTP/1.1\r\nHost: x\r\n\r\n');
    await entered.promise;
    socket.destroy();
    await left.promise;
    expect(planes.lines).toEqual([]);
  });

  const PIECE = Buffer.alloc(65_536, 'x');
  /** More than the network takes on both ways. */
  const PIECES = 768;

  test('of an upload flows as fast as the primary reads it', async () => {
    const entered = Promise.withResolvers<void>();
    const release = Promise.withResolvers<void>();
    planes.onBody = async (body) => {
      entered.resolve();
      await release.promise;
      let bytes = 0;
      for await (const piece of body as AsyncIterable<Buffer>) bytes += piece.length;
      return { status: 200, body: { bytes } };
    };
    const outgoing = sendRequest({ port, host: '127.0.0.1', method: 'POST', path: '/v1/scripted', agent: false });
    let isSent = false;
    outgoing.once('finish', () => (isSent = true));
    Readable.from(Array.from({ length: PIECES }, () => PIECE)).pipe(outgoing);
    await entered.promise;
    await atRest(() => outgoing.socket?.bytesWritten);
    expect(isSent).toBe(false);
    release.resolve();
    const [answer] = (await once(outgoing, 'response')) as [IncomingMessage];
    expect(String(await answer.toArray())).toBe(`{"bytes":${PIECES * PIECE.length}}`);
  });

  test('of an answer flows as fast as the client reads it', async () => {
    let taken = 0;
    let isSent = false;
    const pieces = function* (): Generator<Buffer> {
      for (; taken < PIECES; taken += 1) yield PIECE;
      isSent = true;
    };
    planes.onGet = async () => ({ status: 200, stream: Readable.from(pieces()), headers: EVENTS });
    const answer = await open(port, { path: '/v1/scripted' });
    await atRest(() => taken);
    expect(isSent).toBe(false);
    let bytes = 0;
    for await (const piece of answer as AsyncIterable<Buffer>) bytes += piece.length;
    expect(bytes).toBe(PIECES * PIECE.length);
  });

  /** Resolves when the number has not changed during many other requests. */
  async function atRest(read: () => number | undefined): Promise<void> {
    for (let [still, last] = [0, read()]; still < 30; still = read() === last ? still + 1 : 0) {
      last = read();
      await ask(port, { path: '/v1/who' });
    }
  }

  test('that is refused before its end is answered, and its connection takes the next request', async () => {
    const body = ' '.repeat(8 * 1_048_576);
    const upload = `POST /v1/things HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
    const answers = await exchange(port, `${upload}GET /v1/here HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
    expect(answers.match(/HTTP\S+ \d+/g)).toEqual(['HTTP/1.1 401', 'HTTP/1.1 200']);
  });

  test('that is refused is answered although the client closes its connection after the answer', async () => {
    const body = ' '.repeat(8 * 1_048_576);
    const head = `POST /v1/things HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: ${body.length}`;
    // Time does not pass, so the answer waits until the rest was read.
    const own = await openPlanes({ clock: virtualClock() });
    expect(await exchange(own.port, `${head}\r\n\r\n${body}`)).toContain('HTTP/1.1 401');
    await own.close();
  });

  test('that is refused is answered after its rest if the client then closes its connection', async () => {
    const own = await openPlanes({ clock: virtualClock() });
    const head = 'POST /v1/things HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 4';
    const { socket, answer } = begin(own.port, `${head}\r\n\r\nab`);
    for (let i = 0; i < 30; i += 1) await ask(own.port, { path: '/v1/who' });
    expect(socket.bytesRead).toBe(0);
    socket.write('cd');
    expect(await answer).toContain('HTTP/1.1 401');
    await own.close();
  });

  test('whose body waits is refused at once: the head goes on alone', async () => {
    const head = 'POST /v1/things HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n';
    const { socket } = begin(port, head);
    expect(String(((await once(socket, 'data')) as [Buffer])[0])).toContain('HTTP/1.1 401');
    socket.destroy();
  });
});

describe('without a primary', () => {
  const refused = { status: 503, headers: { 'retry-after': '1', 'content-type': 'application/problem+json' } };

  test('that is known, a request is refused in the form of its path', async () => {
    planes.believed = 'unknown';
    const reply = await ask(port, { path: '/v1/who' });
    expect(reply).toMatchObject(refused);
    expect(JSON.parse(reply.body)).toMatchObject({ code: 'unavailable', request_id: reply.headers['x-request-id'] });
    const chat = await ask(port, { method: 'POST', path: '/v1/chat/thing', body: '{}' });
    expect([chat.status, chat.headers['retry-after']]).toEqual([503, '1']);
    expect(JSON.parse(chat.body)).toMatchObject({ error: { type: 'server_error' } });
    expect(planes.lines).toEqual([]);
  });

  test('that takes connections, a request is refused, and the log says why, thirty times a minute', async () => {
    await planes.primary.http.close();
    for (let i = 0; i < 31; i += 1) expect(await ask(port, { path: '/v1/who' })).toMatchObject(refused);
    expect(planes.lines).toHaveLength(30);
    expect(JSON.parse(planes.lines[0] ?? '')).toMatchObject({
      client_ip: '127.0.0.1',
      primary: `http://127.0.0.1:${planes.primaryPort}`,
      detail: expect.stringContaining('ECONNREFUSED'),
    });
  });

  test('that answers within five seconds, a request on a connection that is there waits', async () => {
    const clock = virtualClock();
    const own = await openPlanes({ clock });
    let calls = 0;
    for (let i = 0; i < 2; i += 1) {
      const entered = Promise.withResolvers<void>();
      const release = Promise.withResolvers<void>();
      own.onGet = async () => {
        calls += 1;
        entered.resolve();
        await release.promise;
        return { status: 200, body: {} };
      };
      const reply = ask(own.port, { path: '/v1/scripted' });
      await entered.promise;
      await clock.advance(60_000);
      release.resolve();
      expect((await reply).status).toBe(200);
    }
    expect(calls).toBe(2);
    await own.close();
  });

  test.each(['its first', 'one that was used before'])(
    'that still is the primary, a request whose answer never comes is refused within five seconds, on %s connection',
    async (which) => {
      const clock = virtualClock();
      const own = await openPlanes({ clock });
      if (which !== 'its first') await ask(own.port, { path: '/v1/who' });
      const entered = Promise.withResolvers<void>();
      const left = Promise.withResolvers<void>();
      let calls = 0;
      own.onGet = async ({ gone }) => {
        calls += 1;
        gone.addEventListener('abort', () => left.resolve());
        entered.resolve();
        await left.promise;
        return { status: 200, body: {} };
      };
      const reply = ask(own.port, { path: '/v1/scripted' });
      await entered.promise;
      own.believed = 'unknown';
      await clock.advance(5_000);
      expect(await reply).toMatchObject(refused);
      await left.promise;
      expect(calls).toBe(1);
      await own.close();
    },
  );

  test('that takes a connection within five seconds, a request is refused', async () => {
    const clock = virtualClock();
    const own = await openPlanes({ clock });
    const silent = createTcpServer();
    const silentPort = await listen(silent);
    // A TLS handshake that nobody answers is a connection that is not there.
    own.believed = { id: PRIMARY, url: `https://127.0.0.1:${silentPort}` };
    const connected = once(silent, 'connection') as Promise<[Socket]>;
    const reply = ask(own.port, { path: '/v1/who' });
    const [socket] = await connected;
    await clock.advance(5_000);
    expect(await reply).toMatchObject(refused);
    socket.destroy();
    await Promise.all([own.close(), new Promise((resolve) => silent.close(resolve))]);
  });
});

async function listen(server: TcpServer): Promise<number> {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return (server.address() as AddressInfo).port;
}
