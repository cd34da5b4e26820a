// A secondary and a scripted server in the place of the primary: headers, and a primary that breaks off.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer, get as getOverTls } from 'node:https';
import type { AddressInfo } from 'node:net';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Peers } from '../../../../control-plane/base/http/peers.ts';
import type { Tls } from '../../../../control-plane/base/http/tls.ts';
import { codeOf } from '../../../../shared/errors.ts';
import { createLog } from '../../../../shared/log.ts';
import { makeCertificate } from '../../../kit/certificate.ts';
import { openBench } from './fixture.ts';
import {
  ask,
  at,
  begin,
  open,
  openPlanes,
  peersOf,
  type Planes,
  PRIMARY,
  sealing,
  type Sent,
} from './two-control-planes.ts';

let planes: Planes;
let port: number;
let scripted: Server;
let seen: IncomingMessage[];
let onRequest: (request: IncomingMessage, response: ServerResponse) => void;
/** Who the scripted server is. */
let peers: Pick<Peers, 'wordIn'>;
beforeEach(async () => {
  planes = await openPlanes();
  ({ port } = planes);
  [seen, peers] = [[], peersOf(PRIMARY)];
  scripted = createServer((request, response) => {
    seen.push(request);
    show(request, response);
    onRequest(request, response);
  });
  await once(scripted.listen(0, '127.0.0.1'), 'listening');
  planes.believed = at((scripted.address() as AddressInfo).port);
});
afterEach(async () => {
  scripted.close();
  scripted.closeAllConnections();
  await planes.close();
});

/** Answers as what it is. */
function show({ headers }: IncomingMessage, response: ServerResponse): void {
  const word = peers.wordIn(headers);
  if (word !== undefined) response.setHeader('Svc-Opened', word);
}

describe('a server at the address of the primary', () => {
  const page = (_request: IncomingMessage, response: ServerResponse): void => void response.end('<h1>Welcome</h1>');
  const refused = async (sent: Sent): Promise<void> => {
    const { status, headers, body } = await ask(port, sent);
    expect([status, headers['retry-after'], JSON.parse(body)]).toMatchObject([503, '1', { code: 'unavailable' }]);
    expect(headers).not.toHaveProperty('svc-opened');
  };

  test.each([
    ['knows nothing of us', { wordIn: () => undefined }],
    ['shows some word', { wordIn: () => 'x' }],
    ['is of another installation', peersOf(PRIMARY, 2)],
    ['is of a copy of this installation', peersOf('copy')],
  ])('that %s is not believed, and the log names the setting', async (_what, who) => {
    [peers, onRequest] = [who, page];
    await refused({ path: '/v1/who' });
    await refused({ method: 'POST', path: '/v1/echo', body: 'x'.repeat(100_000) });
    expect(seen).toHaveLength(2);
    expect(planes.lines.map((line) => JSON.parse(line) as unknown)).toMatchObject(
      Array(2).fill({
        client_ip: '127.0.0.1',
        primary: `http://127.0.0.1:${(scripted.address() as AddressInfo).port}`,
        msg: expect.stringContaining('let peer_url of that control plane lead to its API'),
      }),
    );
  });

  test('that is the primary is believed, and the client does not see how that is known', async () => {
    onRequest = page;
    const { status, headers, body } = await ask(port, { path: '/v1/who', headers: { 'svc-opened': 'x' } });
    expect([status, body]).toEqual([200, '<h1>Welcome</h1>']);
    expect(headers).not.toHaveProperty('svc-opened');
    expect(seen[0]?.headers).not.toHaveProperty('svc-opened');
  });
});

test.each([
  ['to it', peersOf('b').questionTo(PRIMARY), 404],
  ['to a process before it', peersOf('b').questionTo('before'), 503],
  ['by another installation', peersOf('b', 2).questionTo(PRIMARY), 503],
  ['by a stranger who claims so', { sealed: 'x', word: 'x' }, 503],
])('a primary that gets a request passed on %s answers as it must', async (_how, { sealed, word }, status) => {
  const headers = { 'svc-passed-on': sealed };
  const answer = await ask(planes.primaryPort, { method: 'POST', path: '/v1/nowhere', headers });
  expect([answer.status, answer.headers['svc-opened']]).toEqual([status, status === 404 ? word : undefined]);
});

describe('a primary that breaks off', () => {
  test('in the middle of an answer breaks the connection of the client', async () => {
    onRequest = (_request, response) => void response.write('half', () => response.destroy());
    const answer = await open(port, { path: '/v1/who' });
    await expect(answer.toArray()).rejects.toThrow('aborted');
    // The next one is answered: only that connection broke.
    expect((await ask(port, { path: '/v1/here' })).status).toBe(200);
  });

  test('after the head of an answer has sent that: it does not wait for the body', async () => {
    onRequest = (_request, response) => {
      response.writeHead(200, ['X-One', '\u00e9']);
      response.write('', 'latin1');
    };
    const answer = await open(port, { path: '/v1/who' });
    expect(answer.headers['x-one']).toBe('\u00e9');
    seen[0]?.socket.destroy();
    await expect(answer.toArray()).rejects.toThrow('aborted');
  });

  test('while its answer waits for the rest of a body breaks the connection of the client', async () => {
    const broken = Promise.withResolvers<void>();
    onRequest = ({ socket }, response) => {
      socket.once('close', broken.resolve);
      response.write('half', () => response.destroy());
    };
    const head = 'POST /v1/who HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 4';
    const { socket, answer } = begin(port, `${head}\r\n\r\nab`);
    await broken.promise;
    socket.write('cd');
    expect(await answer).not.toContain('0\r\n\r\n');
  });

  test('before an answer gets nothing twice that may have had an effect', async () => {
    onRequest = (request) => request.socket.destroy();
    const reply = await ask(port, { method: 'POST', path: '/v1/things', body: '{}' });
    expect([reply.status, reply.headers['retry-after']]).toEqual([503, '1']);
    expect((await ask(port, { method: 'DELETE', path: '/v1/things/x' })).status).toBe(503);
    expect(seen.map(({ method }) => method)).toEqual(['POST', 'DELETE']);
  });

  test('on a connection that was idle gets no other request on it than those that have no effect', async () => {
    onRequest = (_request, response) => void response.end();
    for (const method of ['GET', 'GET', 'POST', 'POST', 'GET']) await ask(port, { method, path: '/v1/who' });
    const connections = seen.map(({ socket }) => seen.findIndex((other) => other.socket === socket));
    expect(connections).toEqual([0, 0, 2, 3, 0]);
  });

  test('on a connection that was idle gets a request again that has no effect', async () => {
    onRequest = (_request, response) => void response.end('first');
    expect((await ask(port, { path: '/v1/who' })).body).toBe('first');
    onRequest = ({ socket }, response) => {
      if (socket === seen[0]?.socket) socket.destroy();
      else response.end('again');
    };
    expect((await ask(port, { path: '/v1/who' })).body).toBe('again');
    expect(seen).toHaveLength(3);
  });

  test('and speaks no HTTP ends nothing but the request', async () => {
    onRequest = ({ socket }) => void socket.end('HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n');
    expect((await ask(port, { path: '/v1/who' })).status).toBe(503);
    onRequest = ({ socket }) => void socket.end('HTTP/1.1 101 Odd\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n');
    expect((await ask(port, { path: '/v1/who' })).status).toBe(503);
    onRequest = ({ socket }) => void socket.end('SSH-2.0-x\r\n');
    expect((await ask(port, { path: '/v1/who' })).status).toBe(503);
  });
});

test('the secondary says that the clock of the primary differs from its own', async () => {
  onRequest = (_request, response) => {
    response.setHeader('Date', new Date(Date.UTC(2020, 1, 1)).toUTCString());
    response.end();
  };
  for (let i = 0; i < 2; i += 1) await ask(port, { path: '/v1/who' });
  expect(planes.lines).toEqual([expect.stringContaining('start a time service on both hosts')]);
});

test('connections to the primary end with the secondary', async () => {
  onRequest = (_request, response) => void response.end();
  await ask(port, { path: '/v1/who' });
  const closed = Promise.all(seen.map(({ socket }) => once(socket, 'close')));
  await planes.secondary.http.close();
  await closed;
});

test('a connection that carried one request leaves no port behind that is taken for a minute', async () => {
  onRequest = (_request, response) => void response.end('all of it');
  const broken = once(scripted, 'clientError');
  expect((await ask(port, { method: 'POST', path: '/v1/who' })).body).toBe('all of it');
  // A connection that is reset waits for nothing.
  expect(codeOf((await broken)[0])).toBe('ECONNRESET');
});

describe('headers', () => {
  test('go on as they came, without those of one connection and with those of a proxy', async () => {
    onRequest = (_request, response) => {
      response.writeHead(200, [
        'Set-Cookie',
        'a',
        'Set-Cookie',
        'b',
        'X-One',
        '\u00e9',
        'Connection',
        'X-Hop',
        'X-Hop',
        '1',
      ]);
      response.end();
    };
    const lines = [
      'POST /v1/who?a=%20b HTTP/1.1',
      'Host: api.example.com',
      'X-One: \u00e9',
      'x-one: 2',
      'Connection: close, X-Hop, Host, Content-Length',
      'X-Hop: 1',
      'TE: trailers',
      'Expect: 100-continue',
      'Upgrade: h2c',
      'Proxy-Authorization: x',
      'X-Request-Id: trace-1',
      'X-Forwarded-For: 192.0.2.1',
      'Content-Length: 2',
    ];
    const { socket, answer } = begin(port, '');
    socket.write(Buffer.from(`${lines.join('\r\n')}\r\n\r\nab`, 'latin1'));
    const [continued, head = ''] = (await answer).split('\r\n\r\n');
    expect(continued).toBe('HTTP/1.1 100 Continue');
    expect(head.split('\r\n').slice(0, 4)).toEqual([
      'HTTP/1.1 200 OK',
      'Set-Cookie: a',
      'Set-Cookie: b',
      'X-One: \u00e9',
    ]);
    expect(head).not.toContain('X-Hop');
    expect(seen[0]?.url).toBe('/v1/who?a=%20b');
    const kept = ['Host', 'api.example.com', 'X-One', '\u00e9', 'x-one', '2', 'Content-Length', '2'];
    const ours = ['X-Forwarded-For', '127.0.0.1', 'Svc-Passed-On', expect.any(String), 'X-Request-Id', 'trace-1'];
    // Parsers drop headers beyond some number, so a client with many of them must not push ours out.
    expect(seen[0]?.rawHeaders).toEqual([...ours, ...kept, 'Connection', 'keep-alive']);
  });

  test.each([
    ['us', [], 'max-age=31536000'],
    ['the primary', ['Strict-Transport-Security', 'max-age=1'], 'max-age=1'],
  ])('that tell browsers to speak TLS are there once if they are from %s', async (_whom, theirs, expected) => {
    const certificate = makeCertificate(['IP:127.0.0.1']);
    const unused = { setting: 'tls', refresh: () => undefined, expiresMs: () => 0 };
    const tls: Tls = { options: () => certificate, serve: () => undefined, ...unused };
    const own = await openPlanes({ http: { tls, isOnlyTls: true } });
    own.believed = planes.believed;
    onRequest = (_request, response) => void response.writeHead(200, theirs).end();
    const to = { port: own.port, host: '127.0.0.1', ca: certificate.cert, agent: false };
    const [answer] = (await once(getOverTls({ ...to, path: '/v1/who' }), 'response')) as [IncomingMessage];
    expect(answer.resume().headersDistinct['strict-transport-security']).toEqual([expected]);
    await own.close();
  });
});

test('a primary over TLS is asked only if its certificate is valid for its address', async () => {
  const certificate = makeCertificate(['IP:127.0.0.1']);
  const primary = createTlsServer(certificate, (request, response) => {
    show(request, response);
    response.end('over TLS');
  });
  await once(primary.listen(0, '127.0.0.1'), 'listening');
  planes.believed = { id: PRIMARY, url: `https://127.0.0.1:${(primary.address() as AddressInfo).port}` };
  const headers = { host: 'api.example.com' };
  expect((await ask(port, { path: '/v1/who', headers })).status).toBe(503);
  const before = getCACertificates('default');
  setDefaultCACertificates([...before, certificate.cert]);
  const { body } = await ask(port, { path: '/v1/who', headers });
  setDefaultCACertificates(before);
  expect(body).toBe('over TLS');
  primary.close();
  primary.closeAllConnections();
});

test('a primary says which control plane is missing in trust_proxy', async () => {
  const lines: string[] = [];
  const log = createLog('test', 'warn', { write: (line) => void lines.push(line) });
  const primary = await openBench({ log, http: { member: PRIMARY, sealing } });
  const { port: own } = await primary.http.listen({ host: '127.0.0.1', port: 0 });
  planes.believed = at(own);
  for (const headers of [{}, { 'svc-passed-on': '1' }]) await ask(own, { path: '/v1/nowhere', headers });
  expect(lines).toEqual([]);
  await ask(port, { path: '/v1/nowhere' });
  expect(lines).toEqual([expect.stringContaining('is not in trust_proxy')]);
  await primary.close();
});
