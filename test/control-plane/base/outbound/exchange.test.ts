// Exchanges with a real server: the time limits, the end by a signal, and the reuse of connections.
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import { type AddressInfo, connect, createServer as createTcpServer, type Server, type Socket } from 'node:net';
import { type Duplex, duplexPair } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  type Exchange,
  type ExchangeRequest,
  type Exchanges,
  openExchanges,
} from '../../../../control-plane/base/outbound/exchange.ts';
import { OutboundError } from '../../../../control-plane/base/outbound/policy.ts';
import { grownOldBytes } from '../../../kit/garbage.ts';
import { type VirtualClock, virtualClock } from '../../../kit/virtual-clock.ts';

let clock: VirtualClock;
let exchanges: Exchanges;
let sockets: Socket[];
let servers: Server[];
beforeEach(() => {
  clock = virtualClock();
  sockets = [];
  servers = [];
  exchanges = openExchanges(
    { ports: 'any', privateNetworks: [], namedHosts: [{ host: '127.0.0.1', plainHttp: true }] },
    { clock },
  );
});
afterEach(async () => {
  await exchanges.close();
  for (const socket of sockets) socket.destroy();
  for (const server of servers) await new Promise((resolve) => server.close(resolve));
});

async function listen(server: Server): Promise<string> {
  servers.push(server);
  server.on('connection', (socket: Socket) => sockets.push(socket));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/x`;
}
const serve = (listener: RequestListener): Promise<string> => listen(createServer(listener));
const open = (url: string, more: Partial<ExchangeRequest> = {}): Promise<Exchange> =>
  exchanges.open({
    method: 'POST',
    url,
    headers: {},
    body: '{}',
    connectMs: 1_000,
    statusMs: 5_000,
    idleMs: 3_000,
    totalMs: undefined,
    signal: new AbortController().signal,
    ...more,
  });
async function read(exchange: Exchange): Promise<string> {
  let text = '';
  for await (const piece of exchange.body) text += piece.toString();
  return text;
}
const codeOf = (promise: Promise<unknown>): Promise<string> =>
  promise.then(
    () => 'none',
    (error: unknown) => (error instanceof OutboundError ? error.code : String(error)),
  );

test('an answer comes with its status, its headers and its body', async () => {
  const url = await serve((_request, response) => response.writeHead(201, { 'X-A': ['1', '2'] }).end('hello'));
  const exchange = await open(url);
  expect(exchange).toMatchObject({ status: 201, headers: { 'x-a': '1, 2' } });
  expect(await read(exchange)).toBe('hello');
});

describe('the time', () => {
  test('until the status line is bounded', async () => {
    const came = Promise.withResolvers<void>();
    const url = await serve(() => came.resolve());
    const failing = codeOf(open(url));
    await came.promise;
    await clock.advance(4_999);
    expect(await Promise.race([failing, Promise.resolve('waiting')])).toBe('waiting');
    await clock.advance(1);
    expect(await failing).toBe('timeout');
  });

  test('between two chunks of the body is bounded, and starts again with each chunk', async () => {
    const answered = Promise.withResolvers<Parameters<RequestListener>[1]>();
    const url = await serve((_request, response) => {
      response.write('a');
      answered.resolve(response);
    });
    const pieces = (await open(url)).body[Symbol.asyncIterator]();
    expect(String((await pieces.next()).value)).toBe('a');
    const second = pieces.next();
    await clock.advance(2_999);
    (await answered.promise).write('b');
    expect(String((await second).value)).toBe('b');
    const third = codeOf(pieces.next());
    await clock.advance(2_999);
    expect(await Promise.race([third, Promise.resolve('waiting')])).toBe('waiting');
    await clock.advance(1);
    expect(await third).toBe('timeout');
  });

  test('of the whole answer is bounded, however often the server sends a byte, unless its reader lifts the limit', async () => {
    const answered: Parameters<RequestListener>[1][] = [];
    const url = await serve((_request, response) => {
      response.write('a');
      answered.push(response);
    });
    const dripping = await open(url, { totalMs: 4_000 });
    const stream = await open(url, { totalMs: 4_000 });
    stream.unlimited();
    const pieces = dripping.body[Symbol.asyncIterator]();
    const others = stream.body[Symbol.asyncIterator]();
    for (let second = 1; second <= 4; second += 1) {
      expect([await pieces.next(), await others.next()]).toMatchObject([{ done: false }, { done: false }]);
      await clock.advance(second < 4 ? 1_000 : 999);
      if (second < 4) for (const response of answered) response.write('b');
    }
    const late = codeOf(pieces.next());
    expect(await Promise.race([late, Promise.resolve('waiting')])).toBe('waiting');
    await clock.advance(1);
    expect(await late).toBe('timeout');
    answered[1]?.end('c');
    expect(String((await others.next()).value)).toBe('c');
    expect(await others.next()).toMatchObject({ done: true });
    expect(clock.waiting()).toBe(0);
  });
});

describe('a connection', () => {
  test('that fails is reported as such, also if the server does not complete the handshake', async () => {
    expect(await codeOf(open('http://127.0.0.1:1/x'))).toBe('connect');
  });

  test('that closes inside the body is not taken for the end of the body', async () => {
    const url = await serve((_request, response) => {
      response.writeHead(200, { 'content-length': '10' });
      response.write('half', () => response.destroy());
    });
    expect(await codeOf(open(url).then(read))).toBe('protocol');
  });

  test('is reused after a complete response, and `end` is then harmless', async () => {
    const gate = Promise.withResolvers<void>();
    let asked = 0;
    const url = await serve((_request, response) => {
      asked += 1;
      if (asked === 1) response.end('first');
      else void gate.promise.then(() => response.end('second'));
    });
    const first = await open(url);
    await read(first);
    const second = open(url);
    first.end();
    gate.resolve();
    expect(await read(await second)).toBe('second');
    expect(sockets).toHaveLength(1);
  });

  test.each(['before its status', 'within its body'])('is ended by the signal %s', async (when) => {
    const came = Promise.withResolvers<void>();
    const left = Promise.withResolvers<void>();
    const url = await serve((_request, response) => {
      response.once('close', () => left.resolve());
      if (when === 'within its body') response.write('a');
      came.resolve();
    });
    const giving = new AbortController();
    const failing = codeOf(open(url, { signal: giving.signal }).then(read));
    await came.promise;
    giving.abort();
    expect(await failing).toBe('protocol');
    await left.promise;
  });

  test('is not opened if the signal came first', async () => {
    const url = await listen(createTcpServer());
    expect(await codeOf(open(url, { signal: AbortSignal.abort() }))).toBe('protocol');
    expect(sockets).toEqual([]);
  });

  test('is closed if its response is left early', async () => {
    const left = Promise.withResolvers<void>();
    const url = await serve((_request, response) => {
      response.once('close', () => left.resolve());
      response.write('a');
    });
    for await (const _piece of (await open(url)).body) break;
    await left.promise;
    (await open(url)).end();
  });
});

test('requests of a kept connection are freed with the young objects', async () => {
  // A body that the server leaves unread would wait in the socket.
  const url = await serve((request, response) => request.resume().on('end', () => response.end('hello')));
  let count = 0;
  const ask = async (): Promise<void> => {
    const body = String((count += 1)).padEnd(50_000, '.');
    expect(await read(await open(url, { body }))).toBe('hello');
  };
  await grownOldBytes(10, ask);
  expect(await grownOldBytes(50, ask)).toBeLessThan(1_000_000);
});

describe('a connection that the caller opens', () => {
  /** A stream that is no socket, to the server at this URL. */
  const dialled = (url: string): Duplex => {
    const [near, far] = duplexPair();
    const socket = connect(Number(new URL(url).port), '127.0.0.1');
    far.pipe(socket).pipe(far);
    socket.on('error', () => far.destroy());
    far.on('close', () => socket.destroy());
    return near;
  };

  test('is used in place of the address, and kept for the next request', async () => {
    const url = await serve((request, response) => response.end(`${request.headers.host} ${request.url}`));
    let dials = 0;
    const dial = async (): Promise<Duplex> => {
      dials += 1;
      return dialled(url);
    };
    for (const path of ['/v1/a', '/v1/b'])
      expect(await read(await open(`http://rep-1.replica${path}`, { dial }))).toBe(`rep-1.replica ${path}`);
    expect(dials).toBe(1);
    await expect(open('http://rep-1.replica/v1/a')).rejects.toMatchObject({ code: 'blocked_address' });
  });

  test('that cannot be opened is a failure to connect, after which the next request tries again', async () => {
    const url = await serve((_request, response) => response.end('here'));
    const dial = async (): Promise<Duplex> => Promise.reject(new Error('the host did not open the stream in time'));
    await expect(open('http://rep-1.replica/', { dial })).rejects.toMatchObject({
      code: 'connect',
      message: 'the host did not open the stream in time',
    });
    expect(await read(await open('http://rep-1.replica/', { dial: async () => dialled(url) }))).toBe('here');
  });

  test('that comes after the limit is ended', async () => {
    const made = Promise.withResolvers<Duplex>();
    const refused = codeOf(open('http://rep-1.replica/', { dial: () => made.promise }));
    await clock.advance(1_000);
    expect(await refused).toBe('connect');
    const [near] = duplexPair();
    made.resolve(near);
    await once(near, 'close');
    expect(near.destroyed).toBe(true);
  });
});
