// The proxy to applications, with a real HTTP server as the application and plain TCP in the place of the tunnel.
import { once } from 'node:events';
import { type IncomingMessage, request as sendRequest } from 'node:http';
import { type AddressInfo, connect, createServer as createTcpServer, type Socket } from 'node:net';
import { duplexPair } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { StreamError } from '../../../control-plane/fleet/link/streams.ts';
import { hasKeepAlive } from '../../kit/ports.ts';
import { AUTHORIZATION, CONNECTIONS_MAX, HOST, NOT_HTTP, openProxiedApp, type ProxiedApp } from './proxied-app.ts';

let proxied: ProxiedApp;
let port: number;
let sockets: Socket[];
beforeEach(async () => {
  proxied = await openProxiedApp();
  ({ port, sockets } = proxied);
});
afterEach(() => proxied.close());

interface Sent {
  method?: string;
  path?: string;
  headers?: Record<string, string>;
  body?: string;
}
const open = ({ method = 'GET', path = '/', headers = {}, body }: Sent = {}): Promise<IncomingMessage> =>
  new Promise((resolve, reject) => {
    const all = { host: HOST, authorization: AUTHORIZATION, ...headers };
    const outgoing = sendRequest({ port, host: '127.0.0.1', method, path, headers: all, agent: false });
    outgoing.once('response', resolve);
    outgoing.once('error', reject);
    // The body is sent as bytes: Node would write the headers in the encoding of a text.
    outgoing.end(body === undefined ? undefined : Buffer.from(body));
  });
const ask = async (
  sent?: Sent,
): Promise<{ status: number | undefined; body: string; headers: IncomingMessage['headers'] }> => {
  const answer = await open(sent);
  return { status: answer.statusCode, body: await text(answer), headers: answer.headers };
};

describe('a request', () => {
  test('in progress at a stop is answered to its end, and its connection takes no other', async () => {
    let finish = (): void => undefined;
    proxied.onRequest = (_request, response) => {
      response.write('begun, ');
      finish = () => response.end('ended');
    };
    const socket = connect({ port, host: '127.0.0.1' });
    socket.write(`GET / HTTP/1.1\r\nHost: ${HOST}\r\nAuthorization: ${AUTHORIZATION}\r\n\r\n`);
    const [head] = (await once(socket, 'data')) as [Buffer];
    const rest = text(socket);
    const stopped = proxied.stop(3_600_000);
    finish();
    expect(String(head) + (await rest)).toMatch(/^HTTP\/1\.1 200 OK\r\n[^]*begun, [^]*ended/);
    await stopped;
  });

  test('whose body breaks off at a stop ends alone, and others go on', async () => {
    let finish = (): void => undefined;
    proxied.onRequest = (request, response) => {
      if (request.method === 'POST') return void request.once('data', () => request.socket.destroy());
      response.write('begun, ');
      finish = () => response.end('ended');
    };
    const rest = text(await open());
    const socket = connect({ port, host: '127.0.0.1' });
    const head = `POST / HTTP/1.1\r\nHost: ${HOST}\r\nAuthorization: ${AUTHORIZATION}\r\nContent-Length: 9\r\n\r\n`;
    socket.write(head);
    await expect.poll(() => proxied.sockets.length).toBe(2);
    const stopped = proxied.stop(3_600_000);
    socket.write('half');
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 502 /);
    finish();
    expect(await rest).toBe('begun, ended');
    await stopped;
  });

  test('arrives as it was sent, and so does its answer', async () => {
    proxied.onRequest = async (request, response) => {
      const body = await text(request);
      response.writeHead(418, 'Teapot', ['X-A', '1', 'X-A', '2']);
      response.end(JSON.stringify({ method: request.method, url: request.url, headers: request.headers, body }));
    };
    const { status, body, headers } = await ask({
      method: 'PUT',
      path: '/a%20b?c=d',
      body: 'hello',
      headers: { 'x-own': 'é' },
    });
    expect(status).toBe(418);
    expect(headers['x-a']).toBe('1, 2');
    expect(JSON.parse(body)).toMatchObject({
      method: 'PUT',
      url: '/a%20b?c=d',
      body: 'hello',
      headers: { host: HOST, 'x-own': 'é', 'x-forwarded-for': '127.0.0.1', 'x-forwarded-proto': 'https' },
    });
    expect(JSON.parse(body).headers).not.toHaveProperty('authorization');
  });

  test.each(['GET', 'HEAD', 'POST'])(
    'of method %s gets the bytes of the head as the application wrote them',
    async (method) => {
      const names = ['X-Utf8', 'Grün'].map((each) => Buffer.from(each).toString('latin1'));
      proxied.onRequest = (_request, response) => {
        response.writeHead(200, 'Schön', ['Location', '/übersicht', ...names]);
        // The body is bytes: Node would write the head in the encoding of a text.
        response.end(Buffer.from('done'));
      };
      const answer = await open({ method });
      expect(answer.statusMessage).toBe('Schön');
      expect(answer.headers).toMatchObject({ location: '/übersicht', 'x-utf8': names[1] });
      expect(await text(answer)).toBe(method === 'HEAD' ? '' : 'done');
    },
  );

  test('of method HEAD gets the head, also if the application sends a body after it', async () => {
    proxied.dial = async () => {
      const [near, far] = duplexPair();
      far.once('data', () => far.end('HTTP/1.1 404 Not Found\r\nX-A: 1\r\nConnection: close\r\n\r\ngone'));
      return near;
    };
    expect(await ask({ method: 'HEAD' })).toMatchObject({ status: 404, body: '', headers: { 'x-a': '1' } });
  });

  test.each([
    ['the login twice', AUTHORIZATION, undefined],
    ['a login of the application too', 'Bearer own', 'Bearer own'],
  ])('with %s shows the application only its own', async (_what, authorization, seen) => {
    proxied.onRequest = (request, response) => void response.end(JSON.stringify(request.headers));
    const { status, body } = await ask({ headers: { authorization, 'x-svc-auth': AUTHORIZATION } });
    expect(status).toBe(200);
    expect((JSON.parse(body) as IncomingMessage['headers']).authorization).toBe(seen);
    expect(body).not.toContain('x-svc-auth');
  });

  test('that uploads 32 MiB in chunks is not held in memory, and arrives whole', async () => {
    const size = 32 * 1024 ** 2;
    proxied.onRequest = async (request, response) => {
      let got = 0;
      for await (const chunk of request) got += (chunk as Buffer).length;
      response.end(String(got));
    };
    expect(
      (await ask({ method: 'POST', body: 'x'.repeat(size), headers: { 'transfer-encoding': 'chunked' } })).body,
    ).toBe(String(size));
  });

  test('is answered bit by bit, as the application writes', async () => {
    const [begin, more] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    proxied.onRequest = async (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
      await begin.promise;
      response.write('data: one\n\n');
      await more.promise;
      response.end('data: two\n\n');
    };
    const answer = await open();
    begin.resolve();
    const [first] = (await once(answer, 'data')) as [Buffer];
    expect(first.toString()).toBe('data: one\n\n');
    more.resolve();
    expect(await text(answer)).toBe('data: two\n\n');
  });

  test('uses a kept connection if it can be repeated, and a new one if it cannot', async () => {
    proxied.onRequest = (request, response) => void request.resume().once('end', () => response.end('ok'));
    for (let i = 0; i < 3; i += 1) await ask();
    expect(proxied.dials).toBe(1);
    for (let i = 0; i < 3; i += 1) await ask({ method: 'POST', body: 'x' });
    expect(proxied.dials).toBe(4);
  });

  test('does not fail because the application has closed an idle connection', async () => {
    proxied.onRequest = (_request, response) => void response.end('ok');
    await ask();
    // Closed so that the proxy does not notice it before its next request.
    proxied.onRequest = (request, response) => {
      if (sockets.length === 1) return void request.socket.destroy();
      response.end('again');
    };
    expect((await ask()).body).toBe('again');
  });

  test('does not wait on an idle connection whose other end has closed meanwhile', async () => {
    proxied.dial = async () => {
      proxied.dials += 1;
      const [near, far] = duplexPair();
      // Answers once and closes its side, as a server does after its keep-alive time.
      far.once('data', () => far.end('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'));
      return near;
    };
    for (let i = 1; i <= 3; i += 1) {
      expect((await ask()).body).toBe('ok');
      expect(proxied.dials).toBe(i);
    }
  });

  test('that the client gives up is given up inside too', async () => {
    const gone = Promise.withResolvers<void>();
    proxied.onRequest = (request) => request.socket.once('close', () => gone.resolve());
    const outgoing = sendRequest({ port, host: '127.0.0.1', headers: { host: HOST, authorization: AUTHORIZATION } });
    outgoing.on('error', () => undefined);
    outgoing.end();
    await expect.poll(() => sockets.length).toBe(1);
    outgoing.destroy();
    await gone.promise;
  });

  test('whose answer breaks off half way does not look complete', async () => {
    proxied.onRequest = (_request, response) => {
      response.writeHead(200, { 'content-length': '100' });
      response.write('half', () => response.destroy());
    };
    await expect(text(await open())).rejects.toThrow(/aborted|closed/);
  });

  test('with a body that asks for an upgrade stays an ordinary request', async () => {
    proxied.onRequest = async (request, response) => {
      response.end(`${request.headers.upgrade} ${await text(request)}`);
    };
    proxied.app.on('upgrade', () => expect.unreachable('the application must see no upgrade'));
    const headers = { connection: 'Upgrade', upgrade: 'echo' };
    expect((await ask({ method: 'POST', body: 'hello', headers })).body).toBe('undefined hello');
  });
});

// A client could send the application headers over HTTP/2 that only the proxy may set.
test.each(['h2c', 'websocket, H2C'])(
  'a request that asks for an upgrade to %s stays an ordinary request',
  async (upgrade) => {
    proxied.onRequest = (request, response) => void response.end(JSON.stringify(request.headers));
    proxied.app.on('upgrade', () => expect.unreachable('the application must see no upgrade'));
    const headers = { connection: 'Upgrade, HTTP2-Settings', upgrade, 'http2-settings': 'AAMAAABk' };
    const { status, body } = await ask({ headers });
    expect(status).toBe(200);
    expect(JSON.parse(body)).not.toHaveProperty('upgrade');
    expect(JSON.parse(body)).not.toHaveProperty('http2-settings');
  },
);

describe('a refusal', () => {
  beforeEach(() => {
    proxied.onRequest = () => expect.unreachable('the application must not see this');
  });

  test('asks for the login', async () => {
    const { status, headers } = await ask({ headers: { authorization: 'Basic eDp5' } });
    expect(status).toBe(401);
    expect(headers['www-authenticate']).toBe('Basic realm="instance", charset="UTF-8"');
    expect(proxied.dials).toBe(0);
  });

  test('sets a cookie for the page that was opened with the login, and the application does not see that cookie', async () => {
    const seen: (string | undefined)[] = [];
    proxied.onRequest = (request, response) => {
      seen.push(request.headers.cookie);
      response.end('page');
    };
    const page = await ask({ headers: { 'sec-fetch-mode': 'navigate' } });
    const cookie = page.headers['set-cookie']?.[0]?.split(';')[0] ?? '';
    expect(cookie).toMatch(/^__Host-svc-login=/);
    const headers = { authorization: '', cookie: `own=1; ${cookie}`, 'sec-fetch-site': 'same-origin' };
    expect(await ask({ headers })).toMatchObject({ status: 200, body: 'page' });
    expect((await ask({ headers: { ...headers, 'sec-fetch-site': 'same-site' } })).status).toBe(401);
    expect(seen).toEqual([undefined, 'own=1']);
  });

  test('that is refused with a large body leaves its connection usable', async () => {
    const socket = connect(port, '127.0.0.1');
    const post = `POST / HTTP/1.1\r\nHost: ${HOST}\r\nContent-Length: 1000000\r\n\r\n${' '.repeat(1_000_000)}`;
    socket.write(`${post}GET / HTTP/1.1\r\nHost: ${HOST}\r\nConnection: close\r\n\r\n`);
    expect((await text(socket)).match(/HTTP\/1\.1 401 /g)).toHaveLength(2);
  });

  test('that is our own fault writes thirty lines a minute for a client', async () => {
    proxied.onLookup = () => Promise.reject(new Error('the database is away'));
    for (let i = 0; i < 35; i += 1) expect(await ask()).toMatchObject({ status: 500 });
    const lines = proxied.lines.map((line) => JSON.parse(line) as object);
    expect(lines).toHaveLength(30);
    expect(lines[0]).toMatchObject({ client_ip: '127.0.0.1', err: { message: 'the database is away' } });
  });

  test('of two hosts is 400', async () => {
    const socket = connect(port, '127.0.0.1');
    socket.write(`GET / HTTP/1.1\r\nHost: ${HOST}\r\nHost: other\r\nAuthorization: ${AUTHORIZATION}\r\n\r\n`);
    expect(await text(socket)).toMatch(/^HTTP\/1.1 400 /);
  });

  test.each([
    ['another host', 'example.com'],
    ['a port that is not served', `p9-${HOST}`],
  ])('of %s is 404, with or without the login', async (_, host) => {
    expect((await ask({ headers: { host } })).status).toBe(404);
    expect((await ask({ headers: { host, authorization: 'x' } })).status).toBe(404);
  });

  test('tells an application that is not there from a host that is not there', async () => {
    proxied.dial = () => Promise.reject(new StreamError('refused', 'connect ECONNREFUSED'));
    const absent = await ask();
    expect(absent).toMatchObject({ status: 502, headers: { 'retry-after': '5' } });
    expect(absent.body).toContain('port 8080');
    proxied.dial = () => Promise.reject(new StreamError('link', 'the host is not connected'));
    expect((await ask({ method: 'POST', body: 'x' })).status).toBe(503);
  });

  test('is 502 if the application does not answer in HTTP', async () => {
    const broken = createTcpServer((socket) => socket.end('SSH-2.0-x\r\n'));
    broken.listen(0, '127.0.0.1');
    await once(broken, 'listening');
    proxied.dial = async () => connect((broken.address() as AddressInfo).port, '127.0.0.1');
    expect(await ask()).toMatchObject(NOT_HTTP);
    broken.close();
  });
});

describe('an answer of an application that Node can read but not write', () => {
  test.each([
    ['a status that is none', 'HTTP/1.1 099 x\r\nContent-Length: 0\r\n\r\n'],
    ['a status line with control characters', 'HTTP/1.1 200 O\x01K\r\nContent-Length: 0\r\n\r\n'],
    ['another protocol that nobody asked for', 'HTTP/1.1 101 SP\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n'],
  ])('%s is 502', async (_, bytes) => {
    proxied.dial = async () => {
      const [near, far] = duplexPair();
      far.once('data', () => far.write(Buffer.from(bytes, 'latin1')));
      return near;
    };
    expect(await ask()).toMatchObject(NOT_HTTP);
  });
});

describe('the end of a request is framed for the application as it was for us', () => {
  /** What the application receives for these header lines and this body. */
  const sent = async (lines: string[], body: string): Promise<string> => {
    let seen = '';
    proxied.dial = async () => {
      const [near, far] = duplexPair();
      far.on('data', (chunk: Buffer) => {
        seen += chunk.toString();
        if (seen.endsWith(body)) far.end('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n');
      });
      return near;
    };
    const socket = connect(port, '127.0.0.1');
    const head = ['GET / HTTP/1.1', `Host: ${HOST}`, `Authorization: ${AUTHORIZATION}`, ...lines];
    socket.write(`${head.join('\r\n')}\r\n\r\n${body}`);
    await once(socket, 'data');
    socket.destroy();
    return seen;
  };

  test('also if Connection names the length or the host', async () => {
    const body = 'GET /hidden HTTP/1.1\r\n\r\n';
    const seen = await sent(['Connection: content-length, host', `Content-Length: ${body.length}`], body);
    expect(seen).toContain(`\r\nContent-Length: ${body.length}\r\n`);
    expect(seen).toContain(`\r\nHost: ${HOST}\r\n`);
  });

  test('also if there are two transfer codings', async () => {
    const body = '5\r\nhello\r\n0\r\n\r\n';
    const seen = await sent(['Transfer-Encoding: x', 'Transfer-Encoding: chunked'], body);
    expect(seen).toMatch(/\r\nTransfer-Encoding: chunked\r\n/);
    expect(seen.endsWith(`\r\n\r\n${body}`)).toBe(true);
  });
});

test.each([
  ['a proxy that is trusted', ['127.0.0.0/8'], '203.0.113.7'],
  ['anybody else', ['192.0.2.1'], '127.0.0.1'],
])('the address of a client that %s reports', async (_, trusted, seen) => {
  const behind = await openProxiedApp(trusted);
  behind.onRequest = (request, response) => response.end(request.headers['x-forwarded-for']);
  const headers = { host: HOST, authorization: AUTHORIZATION, 'x-forwarded-for': '198.51.100.1, 203.0.113.7' };
  const outgoing = sendRequest({ port: behind.port, host: '127.0.0.1', headers, agent: false }).end();
  const [answer] = (await once(outgoing, 'response')) as [IncomingMessage];
  expect(await text(answer)).toBe(seen);
  await behind.close();
});

test('a client that vanishes silently is detected by TCP keep-alive', async () => {
  proxied.onRequest = () => undefined;
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
  await expect.poll(() => hasKeepAlive(port, socket.localPort)).toBe(true);
  socket.destroy();
});

test('one address gets as many connections as the limit allows, and no more', async () => {
  const dialled = Array.from({ length: CONNECTIONS_MAX + 1 }, () => connect(port, '127.0.0.1'));
  let closed = 0;
  for (const socket of dialled) socket.resume().on('close', () => (closed += 1));
  await expect.poll(() => closed).toBe(1);
  // It is refused after all others, so those are there to stay.
  const another = connect(port, '127.0.0.1').resume();
  await once(another, 'close');
  expect(closed).toBe(1);
  for (const socket of dialled) socket.destroy();
});
