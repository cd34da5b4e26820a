// Real requests to local servers: what is refused, the code of each failure, and the limits.
import { once } from 'node:events';
import { createServer as createHttpServer, type RequestListener } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { type AddressInfo, createServer as createTcpServer, type Server, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Outbound, type OutboundRequest, openOutbound } from '../../../../control-plane/base/outbound/outbound.ts';
import { OutboundError, type OutboundPolicy } from '../../../../control-plane/base/outbound/policy.ts';
import { makeCertificate } from '../../../kit/certificate.ts';
import { type VirtualClock, virtualClock } from '../../../kit/virtual-clock.ts';

const OURS = makeCertificate(['DNS:hook.test', 'DNS:mixed.test', 'IP:127.0.0.1']);
const LOOPBACK: OutboundPolicy = { ports: 'any', privateNetworks: ['127.0.0.1/32'], namedHosts: [] };

let clock: VirtualClock;
let undo: (() => Promise<unknown>)[];
let lookups: string[];
beforeEach(() => {
  clock = virtualClock();
  undo = [];
  lookups = [];
});
afterEach(async () => {
  for (const step of undo.toReversed()) await step();
});

function open(policy: Partial<OutboundPolicy> = {}, names: Record<string, string[]> = {}): Outbound {
  const outbound = openOutbound(
    { ...LOOPBACK, ...policy },
    {
      clock,
      ca: OURS.cert,
      resolve: async (hostname) => {
        lookups.push(hostname);
        const found = names[hostname];
        if (found === undefined) throw new Error('queryA ENOTFOUND');
        return found;
      },
    },
  );
  undo.push(() => outbound.close());
  return outbound;
}

async function listen<S extends Server>(server: S): Promise<number> {
  const sockets: Socket[] = [];
  server.on('connection', (socket: Socket) => sockets.push(socket));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  undo.push(async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
  return (server.address() as AddressInfo).port;
}
const https = (listener: RequestListener): Promise<number> => listen(createHttpsServer(OURS, listener));

const get = (url: string, more: Partial<OutboundRequest> = {}): OutboundRequest => ({
  method: 'GET',
  url,
  statusMs: 10_000,
  totalMs: 30_000,
  bodyBytesMax: 1024,
  ...more,
});

async function failureOf(promise: Promise<unknown>): Promise<OutboundError> {
  const error = await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(OutboundError);
  return error as OutboundError;
}

describe('a response', () => {
  test('has status, headers, body and the address that sent it', async () => {
    const port = await https((request, reply) => {
      let body = '';
      request.on('data', (chunk: Buffer) => (body += chunk.toString()));
      request.on('end', () =>
        reply.writeHead(201, { 'X-A': ['1', '2'] }).end(`${request.method} ${request.url} ${body}`),
      );
    });
    const request = get(`https://127.0.0.1:${port}/a?b=c`, { method: 'POST', body: 'hello', headers: { 'x-b': '3' } });
    const response = await open().request(request);
    expect(response).toMatchObject({ status: 201, truncated: false, remoteAddress: '127.0.0.1' });
    expect(response.headers['x-a']).toBe('1, 2');
    expect(response.body.toString()).toBe('POST /a?b=c hello');
  });
  test('with a redirect is returned unchanged', async () => {
    let calls = 0;
    const port = await https((_request, reply) => {
      calls += 1;
      reply.writeHead(307, { location: `https://127.0.0.1:${port}/inside` }).end();
    });
    const response = await open().request(get(`https://127.0.0.1:${port}/`));
    expect([response.status, calls]).toEqual([307, 1]);
  });
  test('is read up to the limit and no further, checked at both edges', async () => {
    const port = await https((request, reply) => reply.end('x'.repeat(Number(request.url?.slice(1)))));
    const outbound = open();
    const read = async (bytes: number) => {
      const { body, truncated } = await outbound.request(get(`https://127.0.0.1:${port}/${bytes}`));
      return [body.length, truncated];
    };
    expect(await read(1023)).toEqual([1023, false]);
    expect(await read(1024)).toEqual([1024, false]);
    expect(await read(1025)).toEqual([1024, true]);
  });
  test('that never ends is destroyed at the limit', async () => {
    const port = await https((_request, reply) => {
      const write = (): void => {
        while (!reply.destroyed && reply.write('x'.repeat(4096)));
      };
      reply.on('drain', write);
      reply.on('close', () => ended());
      write();
    });
    let ended = (): void => undefined;
    const closed = new Promise<void>((resolve) => (ended = resolve));
    const { truncated } = await open().request(get(`https://127.0.0.1:${port}/`));
    expect(truncated).toBe(true);
    await closed;
  });
  test('leaves its connection for the next request, and a closed one is replaced', async () => {
    const ports: (number | undefined)[] = [];
    const port = await https((request, reply) => {
      ports.push(request.socket.remotePort);
      if (request.url === '/last') reply.setHeader('connection', 'close');
      reply.end();
    });
    const outbound = open({}, { 'hook.test': ['127.0.0.1'] });
    for (const path of ['', 'last', '']) await outbound.request(get(`https://hook.test:${port}/${path}`));
    expect(ports[0]).toBe(ports[1]);
    expect(ports[2]).not.toBe(ports[0]);
    expect(lookups).toEqual(['hook.test', 'hook.test']);
  });
  test('has a connection of its own: two requests at once use two connections', async () => {
    const seen = new Set<number | undefined>();
    const waiting: (() => void)[] = [];
    const port = await https((request, reply) => {
      seen.add(request.socket.remotePort);
      waiting.push(() => reply.end());
      if (waiting.length === 2) for (const answer of waiting) answer();
    });
    const outbound = open();
    await Promise.all([1, 2].map(() => outbound.request(get(`https://127.0.0.1:${port}/`))));
    expect(seen.size).toBe(2);
  });
  test('over plain http is only accepted from a host that is configured so', async () => {
    const port = await listen(createHttpServer((_request, reply) => reply.end('plain')));
    const url = `http://127.0.0.1:${port}/`;
    const named = open({ privateNetworks: [], namedHosts: [{ host: `127.0.0.1:${port}`, plainHttp: true }] });
    expect((await named.request(get(url))).body.toString()).toBe('plain');
    expect((await failureOf(open().request(get(url)))).code).toBe('blocked_address');
  });
});

test('a configured host is resolved as the system does, including local names', async () => {
  const port = await listen(createHttpServer((_request, reply) => reply.end('named')));
  const namedHosts = [{ host: `localhost:${port}`, plainHttp: true }];
  const outbound = openOutbound({ ports: [443], privateNetworks: [], namedHosts }, { clock });
  undo.push(() => outbound.close());
  expect((await outbound.request(get(`http://localhost:${port}/`))).body.toString()).toBe('named');
});

describe('an internal address', () => {
  test.each(['127.0.0.1', '[::1]', '[::ffff:127.0.0.1]', '[64:ff9b::7f00:1]', '2130706433', '0x7f.1', 'localhost'])(
    'is refused before any lookup or connection: %s',
    async (host) => {
      let calls = 0;
      const port = await listen(createTcpServer(() => (calls += 1)));
      const outbound = open({ privateNetworks: [] });
      expect(() => outbound.assertAllowed(`https://${host}:${port}/`)).toThrow(OutboundError);
      const failure = await failureOf(outbound.request(get(`https://${host}:${port}/`)));
      expect([failure.code, failure.remoteAddress, calls, lookups]).toEqual(['blocked_address', null, 0, []]);
    },
  );
  test('is refused behind a name, and the error does not contain the address', async () => {
    let calls = 0;
    const port = await listen(createTcpServer(() => (calls += 1)));
    const outbound = open({ privateNetworks: [] }, { 'hook.test': ['127.0.0.1', '10.1.2.3', '::1'] });
    outbound.assertAllowed(`https://hook.test:${port}/`);
    const failure = await failureOf(outbound.request(get(`https://hook.test:${port}/`)));
    expect([failure.code, calls]).toEqual(['blocked_address', 0]);
    expect(failure.message).not.toContain('10.1.2.3');
  });
  test('is refused if the socket reached another address than the requested one', async () => {
    let bytes = 0;
    const port = await listen(
      createTcpServer((socket) => socket.on('data', (chunk: Buffer) => (bytes += chunk.length))),
    );
    // The kernel treats 0.0.0.0 as this host.
    const outbound = open({ privateNetworks: ['0.0.0.0/32'] });
    const failure = await failureOf(outbound.request(get(`https://0.0.0.0:${port}/`)));
    expect([failure.code, failure.remoteAddress, bytes]).toEqual(['blocked_address', '127.0.0.1', 0]);
  });
  test('is removed from mixed answers', async () => {
    const port = await https((_request, reply) => reply.end());
    const outbound = open({}, { 'mixed.test': ['10.255.255.1', '169.254.169.254', '127.0.0.1', '::1'] });
    expect(await outbound.request(get(`https://mixed.test:${port}/`))).toMatchObject({ remoteAddress: '127.0.0.1' });
  });
  test('cannot come from a second DNS answer: a name is resolved once per connection', async () => {
    const port = await https((_request, reply) => reply.end());
    const answers = [['127.0.0.1'], ['10.0.0.1']];
    const outbound = openOutbound(LOOPBACK, { clock, ca: OURS.cert, resolve: async () => answers.shift() ?? [] });
    undo.push(() => outbound.close());
    expect(await outbound.request(get(`https://hook.test:${port}/`))).toMatchObject({ remoteAddress: '127.0.0.1' });
    expect(answers).toHaveLength(1);
  });
});

describe('a failure', () => {
  test('dns: no such name, and a name without an address', async () => {
    const outbound = open({}, { 'empty.test': [] });
    expect(await failureOf(outbound.request(get('https://none.test/')))).toMatchObject({ code: 'dns' });
    expect(await failureOf(outbound.request(get('https://empty.test/')))).toMatchObject({ code: 'dns' });
  });
  test('connect: nobody listens, and the next request tries again', async () => {
    const outbound = open();
    for (let round = 0; round < 2; round += 1) {
      const failure = await failureOf(outbound.request(get('https://127.0.0.1:1/')));
      expect([failure.code, failure.remoteAddress]).toEqual(['connect', null]);
      expect(failure.message).toContain('ECONNREFUSED');
    }
  });
  test('tls: a wrong name, an unknown authority, a server without TLS', async () => {
    const named = await https((_request, reply) => reply.end());
    const foreign = makeCertificate(['IP:127.0.0.1']);
    const unknown = await listen(createHttpsServer(foreign, (_request, reply) => reply.end()));
    const plain = await listen(createHttpServer((_request, reply) => reply.end()));
    const outbound = open({}, { 'other.test': ['127.0.0.1'] });
    for (const place of [`other.test:${named}`, `127.0.0.1:${unknown}`, `127.0.0.1:${plain}`]) {
      const failure = await failureOf(outbound.request(get(`https://${place}/`)));
      expect([failure.code, failure.remoteAddress]).toEqual(['tls', '127.0.0.1']);
    }
    const failure = await failureOf(outbound.request(get(`https://127.0.0.1:${unknown}/`)));
    expect(failure.message).toBe(`no TLS connection to 127.0.0.1 port ${unknown}: self-signed certificate`);
  });
  test('protocol: the response is not HTTP, or ends too early', async () => {
    const outbound = (port: number): Outbound => open({ namedHosts: [{ host: `127.0.0.1:${port}`, plainHttp: true }] });
    for (const [text, status] of [
      ['SSH-2.0-x\r\n', null],
      ['', null],
      ['HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab', 200],
      [`HTTP/1.1 200 OK\r\na: ${'x'.repeat(20_000)}`, null],
    ] as const) {
      const port = await listen(createTcpServer((socket) => socket.on('error', () => undefined).end(text)));
      const failure = await failureOf(outbound(port).request(get(`http://127.0.0.1:${port}/`)));
      expect([failure.code, failure.remoteAddress, failure.status]).toEqual(['protocol', '127.0.0.1', status]);
    }
  });
  // Specification 6.2: The receiver answers within 10 seconds.
  // Specification 8: Webhook reply deadline: 10 seconds.
  test('timeout: the status line does not come in time, counted from the sending of the request', async () => {
    let arrived = (): void => undefined;
    let left = (): void => undefined;
    const arrival = new Promise<void>((resolve) => (arrived = resolve));
    const leaving = new Promise<void>((resolve) => (left = resolve));
    const port = await https((request) => {
      request.socket.on('close', () => left());
      arrived();
    });
    const asked = failureOf(open().request(get(`https://127.0.0.1:${port}/`)));
    await arrival;
    await clock.advance(9_999);
    expect(await Promise.race([asked, Promise.resolve('still waiting')])).toBe('still waiting');
    await clock.advance(1);
    const failure = await asked;
    expect(failure).toMatchObject({ code: 'timeout', remoteAddress: '127.0.0.1' });
    expect(failure.message).toContain('no status line within 10000 ms');
    await leaving;
  });
  // Specification 6.2: A further limit of 30 seconds holds for the whole attempt.
  test('timeout: the body does not end, although the status line came in time', async () => {
    const port = await https((_request, reply) => {
      reply.write('a');
    });
    const statusCame = Promise.withResolvers<void>();
    const virtual = clock;
    const after = (ms: number, fn: () => void): (() => void) => {
      const cancel = virtual.after(ms, fn);
      return () => {
        if (ms === 10_000) statusCame.resolve();
        cancel();
      };
    };
    clock = { ...virtual, after };
    const asked = failureOf(open().request(get(`https://127.0.0.1:${port}/`)));
    await statusCame.promise;
    await clock.advance(29_999);
    expect(await Promise.race([asked, Promise.resolve('still reading')])).toBe('still reading');
    await clock.advance(1);
    expect(await asked).toMatchObject({ code: 'timeout', message: 'no whole answer within 30000 ms' });
  });
  test('timeout: a name does not resolve, or a handshake does not complete', async () => {
    const silent = await listen(createTcpServer());
    const outbound = openOutbound(LOOPBACK, { clock, resolve: () => new Promise(() => undefined) });
    undo.push(() => outbound.close());
    for (const url of ['https://slow.test/', `https://127.0.0.1:${silent}/`]) {
      const asked = failureOf(outbound.request(get(url)));
      await clock.advance(30_000);
      expect(await asked).toMatchObject({ code: 'timeout' });
    }
  });
  test('connect: the house closes while a request waits', async () => {
    const outbound = open();
    const arrival = Promise.withResolvers<void>();
    const port = await https(() => arrival.resolve());
    const asked = failureOf(outbound.request(get(`https://127.0.0.1:${port}/`)));
    await arrival.promise;
    await outbound.close();
    expect(await asked).toMatchObject({ code: 'connect' });
  });
});
