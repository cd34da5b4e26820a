// Upgrades through the app proxy: the connection belongs to both ends from then on, and only to them.
import { once } from 'node:events';
import { get, type IncomingMessage, type Server, ServerResponse } from 'node:http';
import { connect, type Socket, type TcpNetConnectOpts } from 'node:net';
import { type Duplex, duplexPair } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { StreamError } from '../../../control-plane/fleet/link/streams.ts';
import { AUTHORIZATION, HOST, openProxiedApp, type ProxiedApp } from './proxied-app.ts';

let proxied: ProxiedApp;
let app: Server;
let port: number;
beforeEach(async () => {
  proxied = await openProxiedApp();
  ({ app, port } = proxied);
});
afterEach(() => proxied.close());

/** One whole request of another client. When it is answered, the proxy has seen everything that came before it. */
async function another(): Promise<void> {
  const headers = { Host: HOST, Authorization: AUTHORIZATION };
  const [answer] = (await once(get({ port, host: '127.0.0.1', headers }), 'response')) as [IncomingMessage];
  await text(answer);
}

describe('an upgrade', () => {
  const raw = async (authorization: string, options: Partial<TcpNetConnectOpts> = {}): Promise<Socket> =>
    begin(HOST, [`Authorization: ${authorization}`], options);
  const begin = async (host: string, more: string[], options: Partial<TcpNetConnectOpts> = {}): Promise<Socket> => {
    const socket = connect({ port, host: '127.0.0.1', ...options });
    await once(socket, 'connect');
    // The proxy may reset it at the end of a test.
    socket.on('error', () => undefined);
    const lines = ['GET /ws HTTP/1.1', `Host: ${host}`, ...more, 'Connection: Upgrade', 'Upgrade: echo'];
    socket.write(`${lines.join('\r\n')}\r\n\r\n`);
    return socket;
  };

  test('gives the connection to both ends', async () => {
    let seen: IncomingMessage['headers'] = {};
    app.on('upgrade', (request: IncomingMessage, socket: Duplex) => {
      seen = request.headers;
      socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n');
      socket.pipe(socket);
    });
    const socket = await raw(AUTHORIZATION);
    const [head] = (await once(socket, 'data')) as [Buffer];
    expect(head.toString()).toMatch(/^HTTP\/1.1 101 /);
    socket.write('ping');
    expect(((await once(socket, 'data')) as [Buffer])[0].toString()).toBe('ping');
    expect(seen).toMatchObject({ connection: 'Upgrade', upgrade: 'echo', 'x-forwarded-for': '127.0.0.1' });
    expect(seen).not.toHaveProperty('authorization');
    socket.end();
    await once(socket, 'close');
  });

  describe('when the daemon stops', () => {
    let socket: Socket;
    beforeEach(async () => {
      app.on('upgrade', (_request, echo: Duplex) => {
        echo.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n');
        echo.pipe(echo);
      });
      socket = await raw(AUTHORIZATION);
      await once(socket, 'data');
    });

    test('lasts until it ends, while new connections are refused', async () => {
      const order: string[] = [];
      const stopped = proxied.stop(10_000).then(() => order.push('stopped'));
      const [error] = (await once(connect({ port, host: '127.0.0.1' }), 'error')) as [NodeJS.ErrnoException];
      expect(error.code).toBe('ECONNREFUSED');
      socket.write('ping');
      expect(((await once(socket, 'data')) as [Buffer])[0].toString()).toBe('ping');
      order.push('ends');
      socket.end();
      await stopped;
      expect(order).toEqual(['ends', 'stopped']);
    });

    test.each([0, 1])('is cut when its time of %d ms is over', async (graceMs) => {
      await Promise.all([once(socket, 'close'), proxied.stop(graceMs)]);
    });
  });

  test('adds fewer listeners on both ends than Node warns about', async () => {
    const ends: Duplex[] = [];
    const { dial } = proxied;
    proxied.dial = async () => {
      const stream = await dial();
      ends.push(stream);
      return stream;
    };
    const warned: Error[] = [];
    const onWarning = (warning: Error): void => void warned.push(warning);
    process.on('warning', onWarning);
    app.on('upgrade', (_request, socket: Duplex) => {
      socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n');
      socket.pipe(socket);
    });
    const socket = await raw(AUTHORIZATION);
    await once(socket, 'data');
    for (let i = 0; i < 20; i += 1) socket.write(Buffer.alloc(100_000));
    await once(socket, 'data');
    // The end of TLS and the limits of the listener add their own.
    for (const name of ['close', 'error', 'end', 'finish']) expect(ends[0]?.listenerCount(name)).toBeLessThan(6);
    socket.destroy();
    await once(socket, 'close');
    process.off('warning', onWarning);
    expect(warned).toEqual([]);
  });

  test('needs the login like any request', async () => {
    const socket = await raw('Basic eDp5');
    expect(await text(socket)).toMatch(/^HTTP\/1.1 401 [\s\S]*WWW-Authenticate: Basic/);
    expect(proxied.dials).toBe(0);
  });

  test.each([
    ['the page of the console', `https://term-${HOST}`, '101'],
    ['a program, which names no page', undefined, '101'],
    ['the page of a neighbour', `https://${HOST}`, '403'],
    ['a page without an origin', 'null', '403'],
  ])('to the console by %s: %s is %s', async (_, origin, status) => {
    app.on('upgrade', (_request: IncomingMessage, socket: Duplex) => {
      socket.end('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n');
    });
    const more = [`Authorization: ${AUTHORIZATION}`, ...(origin === undefined ? [] : [`Origin: ${origin}`])];
    expect(await text(await begin(`term-${HOST}`, more))).toContain(`HTTP/1.1 ${status} `);
    expect(proxied.dials).toBe(status === '101' ? 1 : 0);
  });

  test('that the application declines is answered, and the connection ends before anybody sends another request', async () => {
    const size = 8 * 1024 ** 2;
    let requests = 0;
    proxied.onRequest = (_request, response) => {
      requests += 1;
      response.end('x'.repeat(size));
    };
    app.on('upgrade', (request: IncomingMessage, socket: Duplex) => {
      const response = new ServerResponse(request);
      response.assignSocket(socket as Socket);
      proxied.onRequest(request, response);
    });
    const socket = await raw(AUTHORIZATION, { allowHalfOpen: true });
    socket.write(`GET /next HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`);
    const answer = await text(socket);
    expect(answer).toMatch(/^HTTP\/1.1 200 OK\r\n[\s\S]*\r\nConnection: close\r\n/);
    expect(answer.length).toBeGreaterThan(size);
    expect(requests).toBe(1);
    socket.destroy();
  });

  test('that is refused closes the connection, even if the client keeps its side open', async () => {
    const socket = await raw('Basic eDp5', { allowHalfOpen: true });
    socket.resume();
    await once(socket, 'end');
    socket.on('error', () => undefined);
    await expect.poll(() => (socket.write('x'), socket.destroyed)).toBe(true);
  });

  test.each([
    ['an upgrade', 'Connection: Upgrade\r\nUpgrade: echo'],
    ['a request', 'Connection: close'],
  ])('or a request of a client that is gone after the lookup reaches no application: %s', async (_, headers) => {
    const [entered, release] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    proxied.onLookup = () => {
      entered.resolve();
      return release.promise;
    };
    const socket = connect({ port, host: '127.0.0.1' });
    socket.write(`GET / HTTP/1.1\r\nHost: ${HOST}\r\nAuthorization: ${AUTHORIZATION}\r\n${headers}\r\n\r\n`);
    await entered.promise;
    socket.resetAndDestroy();
    proxied.onLookup = async () => undefined;
    proxied.onRequest = (_request, response) => response.end();
    await another();
    release.resolve();
    await another();
    // Both requests of the other client share one connection.
    expect(proxied.dials).toBe(1);
  });

  test.each([
    ['a status that is none', 'HTTP/1.1 000 x\r\nContent-Length: 0\r\n\r\n'],
    ['a status line with control characters', 'HTTP/1.1 200 O\x01K\r\nContent-Length: 0\r\n\r\n'],
    ['an upgrade with control characters', 'HTTP/1.1 101 S\x01P\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n'],
  ])('that is answered with %s is 502', async (_, bytes) => {
    const [near, far] = duplexPair();
    proxied.dial = async () => near;
    far.once('data', () => far.write(Buffer.from(bytes, 'latin1')));
    expect(await text(await raw(AUTHORIZATION))).toMatch(/^HTTP\/1.1 502 Bad Gateway\r\n[^]*not in HTTP/);
    await expect.poll(() => near.destroyed).toBe(true);
  });

  test('to an application that is not there is 502', async () => {
    proxied.dial = () => Promise.reject(new StreamError('refused', 'connect ECONNREFUSED'));
    expect(await text(await raw(AUTHORIZATION))).toMatch(/^HTTP\/1.1 502 /);
  });
});

test('a connection that has sent nothing does not hold up a stop', async () => {
  proxied.onRequest = (_request, response) => response.end();
  const socket = connect({ port, host: '127.0.0.1' });
  socket.on('error', () => undefined).resume();
  await once(socket, 'connect');
  await another();
  await Promise.all([once(socket, 'close'), proxied.stop(3_600_000)]);
});
