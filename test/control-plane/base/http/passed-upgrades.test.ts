// Upgrades through a secondary: the connection belongs to the client and the primary from then on, and to nobody else.
import { once } from 'node:events';
import { createServer, IncomingMessage, type Server } from 'node:http';
import { type AddressInfo, connect, createServer as createTcpServer, Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openPassedUpgrades } from '../../../../control-plane/base/http/passed-upgrades.ts';
import { openPrimaryRequests } from '../../../../control-plane/base/http/primary-requests.ts';
import type { Upgrade } from '../../../../control-plane/base/http/upgrades.ts';
import { fail, messageOf } from '../../../../shared/errors.ts';
import { LINK_HELLO_MS_MAX } from '../../../../shared/limits.ts';
import { isForgotten } from '../../../kit/garbage.ts';
import { virtualClock, type VirtualClock } from '../../../kit/virtual-clock.ts';
import { ask, at, begin, exchange, openPlanes, peersOf, type Planes } from './two-control-planes.ts';

const AGREED = 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\nX-One: \u00e9\r\n\r\n';
const HEAD = 'GET /agent/v1?a=b HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: echo\r\n';
const CONNECTIONS_MAX = 2;

let clock: VirtualClock;
let planes: Planes;
let port: number;
let served: Upgrade[];
let onUpgrade: (upgrade: Upgrade) => void;
beforeEach(async () => {
  clock = virtualClock();
  planes = await openPlanes({ clock, http: { connectionsPerAddressMax: CONNECTIONS_MAX } });
  ({ port } = planes);
  served = [];
  onUpgrade = ({ socket, head }) => {
    socket.write(Buffer.from(AGREED, 'latin1'));
    socket.write(head);
    socket.pipe(socket);
  };
  planes.primary.http.onUpgrade('/agent/', (upgrade) => {
    served.push(upgrade);
    onUpgrade(upgrade);
  });
  planes.secondary.http.onUpgrade('/agent/', ({ socket }) => void socket.end('HTTP/1.1 418 Here\r\n\r\n'));
});
afterEach(async () => {
  for (const { socket } of served) socket.destroy();
  await planes.close();
});

/** A client whose upgrade the primary has agreed to. */
async function upgraded(more = ''): Promise<Socket> {
  const { socket } = begin(port, `${HEAD}${more}\r\n`);
  await once(socket, 'data');
  return socket;
}
async function nextOf(socket: Socket): Promise<string> {
  const [piece] = (await once(socket, 'data')) as [Buffer];
  return piece.toString('latin1');
}

describe('an upgrade', () => {
  test('gives the connection to both ends', async () => {
    const { socket } = begin(port, `${HEAD}X-Forwarded-For: 192.0.2.1\r\nX-One: \u00e9\r\n\r\nfirst`);
    let text = '';
    while (!text.endsWith('first')) text += await nextOf(socket);
    expect(text).toBe(`${AGREED}first`);
    socket.write('ping');
    expect(await nextOf(socket)).toBe('ping');
    const { url, headers } = served[0]?.request ?? {};
    expect([url, headers]).toMatchObject([
      '/agent/v1?a=b',
      { host: 'api.example.com', 'x-forwarded-for': '127.0.0.1', 'x-one': '\u00c3\u00a9', upgrade: 'echo' },
    ]);
    socket.destroy();
  });

  test('is held back by a side that does not read', async () => {
    onUpgrade = ({ socket }) => void socket.write(AGREED);
    const socket = await upgraded();
    const piece = Buffer.alloc(1_048_576);
    let isFlushed = false;
    for (let i = 0; i < 48; i += 1) socket.write(piece);
    socket.write('end', () => (isFlushed = true));
    for (let [still, last] = [0, 0]; still < 30;) {
      await ask(port, { path: '/v1/here' });
      still = served[0]?.request.socket.bytesRead === last ? still + 1 : 0;
      last = served[0]?.request.socket.bytesRead ?? 0;
    }
    expect(isFlushed).toBe(false);
    socket.destroy();
  });

  describe.each(['client', 'primary'])('whose %s leaves', (leaver) => {
    let [left, other]: Duplex[] = [];
    let received: string;
    /** Both sides have seen the end of what the other sent. */
    let ended: Promise<unknown>;
    beforeEach(async () => {
      onUpgrade = ({ socket }) => void socket.write(AGREED);
      const client = await upgraded();
      const inside = served[0]?.socket ?? client;
      [left, other] = leaver === 'client' ? [client, inside] : [inside, client];
      received = '';
      other.on('data', (piece) => (received += String(piece)));
      left.resume();
      ended = Promise.all(
        [client, inside].map((side) => new Promise((resolve) => side.once('close', resolve).once('end', resolve))),
      );
    });

    test('ends on the other side after the last bytes, although that side keeps its own end open', async () => {
      left?.end('last');
      await ended;
      expect(received).toBe('last');
    });

    test('without a word ends on the other side too', async () => {
      left?.destroy();
      await ended;
    });
  });

  test('that the primary does not agree to is answered, and the connection ends', async () => {
    onUpgrade = ({ socket }) =>
      void socket.end('HTTP/1.1 401 No\r\nContent-Length: 2\r\nX-Hop: 1\r\nConnection: X-Hop\r\n\r\nno');
    const more = 'GET /v1/here HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(100_000);
    expect(await exchange(port, `${HEAD}\r\n${more}`)).toBe(
      'HTTP/1.1 401 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno',
    );
  });

  test('of a client that leaves before the answer ends on the primary', async () => {
    const left = Promise.withResolvers<void>();
    const entered = Promise.withResolvers<void>();
    onUpgrade = ({ socket }) => {
      socket.once('close', left.resolve).once('end', left.resolve).resume();
      entered.resolve();
    };
    const { socket } = begin(port, `${HEAD}\r\n`);
    await entered.promise;
    socket.resetAndDestroy();
    await left.promise;
    expect(planes.lines).toEqual([]);
  });

  test.each([
    ['GET', 'Content-Length: 8', undefined],
    ['POST', 'Transfer-Encoding: chunked', '0'],
  ])('of a %s with a body carries nothing but what the client sends', async (method, framing, length) => {
    // Node leaves a body to those who take the upgrade.
    const { socket } = begin(port, `${HEAD.replace('GET', method)}${framing}\r\n\r\n5\r\n`);
    let text = '';
    while (!text.endsWith('5\r\n')) text += await nextOf(socket);
    socket.write('0\r\n\r\n');
    expect(text + (await nextOf(socket))).toBe(`${AGREED}5\r\n0\r\n\r\n`);
    expect(served[0]?.request.headers['content-length']).toBe(length);
    socket.destroy();
  });

  test('is served here once this is the primary', async () => {
    planes.believed = 'self';
    expect(await exchange(port, `${HEAD}\r\n`)).toContain('418 Here');
  });
});

describe('without a primary, an upgrade is refused', () => {
  test('if none is known', async () => {
    planes.believed = 'unknown';
    const answer = await refused();
    expect(answer).toMatch(/^HTTP\/1\.1 503 Service Unavailable\r\n[^]*retry-after: 1\r\n[^]*"code":"unavailable"/);
  });

  test('if it takes no connections, and the log says why', async () => {
    await planes.primary.http.close();
    expect(await refused()).toMatch(/^HTTP\/1\.1 503 [^]*"code":"unavailable"/);
    expect(planes.lines.map((line) => JSON.parse(line) as unknown)).toMatchObject([{ client_ip: '127.0.0.1' }]);
  });

  test.each([
    ['agrees', 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n'],
    ['answers', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno'],
    ['shows another word', 'HTTP/1.1 401 No\r\nSvc-Opened: x\r\nContent-Length: 0\r\n\r\n'],
  ])('if another server is at its address that %s, and the log names the setting', async (_what, theirs) => {
    const other: Server = createServer();
    const closed = Promise.withResolvers<void>();
    other.on('upgrade', (_request, socket) => {
      socket.once('close', closed.resolve).once('end', closed.resolve).resume().write(theirs);
    });
    await once(other.listen(0, '127.0.0.1'), 'listening');
    planes.believed = at((other.address() as AddressInfo).port);
    const answer = await refused();
    expect(answer).toMatch(/^HTTP\/1\.1 503 [^]*"code":"unavailable"/);
    expect(answer).not.toMatch(/echo|svc-opened/i);
    expect(planes.lines).toEqual([expect.stringContaining('let peer_url of that control plane lead to its API')]);
    await closed.promise;
    other.close();
  });

  test('if it is one that takes this one for the primary', async () => {
    planes.believed = at(port);
    expect(await refused()).toContain('HTTP/1.1 503');
  });

  test('if it speaks no HTTP', async () => {
    const odd: Server = createServer();
    odd.on('upgrade', (_request, socket) => void socket.end('SSH-2.0-x\r\n'));
    await once(odd.listen(0, '127.0.0.1'), 'listening');
    planes.believed = at((odd.address() as AddressInfo).port);
    expect(await refused()).toContain('HTTP/1.1 503');
    odd.close();
  });

  test('if it takes the connection and does not answer, also for a client that has left meanwhile', async () => {
    const taken: Socket[] = [];
    const silent = createTcpServer((socket) => void taken.push(socket));
    await once(silent.listen(0, '127.0.0.1'), 'listening');
    planes.believed = at((silent.address() as AddressInfo).port);
    const [left, waits] = [begin(port, `${HEAD}\r\n`), begin(port, `${HEAD}\r\n`)];
    await expect.poll(() => taken.length).toBe(2);
    left.socket.end();
    await clock.advance(2 * LINK_HELLO_MS_MAX);
    waits.socket.end();
    expect([await left.answer, await waits.answer]).toEqual(Array(2).fill(expect.stringContaining('HTTP/1.1 503')));
    await Promise.all(taken.map((socket) => once(socket.resume(), 'close')));
    silent.close();
  });

  async function refused(): Promise<string> {
    const { socket, answer } = begin(port, `${HEAD}\r\n`);
    await once(socket, 'data');
    socket.end();
    return answer;
  }
});

describe('connections of an address', () => {
  test('count until the primary must have ended those that prove nothing', async () => {
    const open = [await upgraded(), await upgraded()];
    expect(await isTaken()).toBe(false);
    await clock.advance(LINK_HELLO_MS_MAX);
    expect(await isTaken()).toBe(false);
    await clock.advance(LINK_HELLO_MS_MAX);
    expect(await isTaken()).toBe(true);
    for (const socket of open) socket.destroy();
  });

  async function isTaken(): Promise<boolean> {
    const socket = connect(port, '127.0.0.1');
    socket.on('error', () => undefined);
    socket.write('GET /v1/here HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n');
    let bytes = 0;
    socket.on('data', (piece) => (bytes += piece.length));
    await new Promise((resolve) => socket.once('close', resolve));
    return bytes > 0;
  }
});

test('the close of a secondary ends the upgrades that it passed on, and waits for none', async () => {
  const socket = await upgraded();
  const ends = [socket, served[0]?.socket ?? socket].map(
    (side) => new Promise((resolve) => side.once('close', resolve)),
  );
  // Time does not pass, so no time limit ends the connections.
  await planes.secondary.http.close();
  await Promise.all(ends);
});

describe('without the server around it', () => {
  const requests = openPrimaryRequests(virtualClock(), peersOf('b'));
  const passing = () =>
    openPassedUpgrades({ clock, requests, refusalAfter: (failure) => fail('unavailable', messageOf(failure)) });
  const passTo = (pass: ReturnType<typeof passing>['pass'], of: Pick<Upgrade, 'request' | 'socket'>): void => {
    const rest = { head: Buffer.alloc(0), clientIp: '127.0.0.1', proven: () => undefined, refuse: () => undefined };
    pass(at(planes.primaryPort), { ...of, ...rest });
  };

  test('the request of an upgrade is not kept in memory for as long as its connection lasts', async () => {
    const { pass } = passing();
    const weak = Promise.withResolvers<WeakRef<object>>();
    const server = createServer();
    server.on('upgrade', (request, socket) => {
      weak.resolve(new WeakRef(request));
      passTo(pass, { request, socket });
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { socket } = begin((server.address() as AddressInfo).port, `${HEAD}\r\n`);
    await once(socket, 'data');
    expect(await isForgotten(await weak.promise)).toBe(true);
    socket.destroy();
    server.close();
  });

  test('a client that takes nothing loses its connection five seconds after the end of the primary', async () => {
    onUpgrade = ({ socket }) => void socket.end(AGREED);
    const socket = new Duplex({ read: () => undefined, write: () => undefined });
    const facts = { method: 'GET', url: '/agent/', headers: { host: 'x', upgrade: 'echo' }, rawHeaders: ['Host', 'x'] };
    passTo(passing().pass, { request: Object.assign(new IncomingMessage(new Socket()), facts), socket });
    await expect.poll(() => socket.writableEnded).toBe(true);
    expect(socket.destroyed).toBe(false);
    await clock.advance(5_000);
    expect(socket.destroyed).toBe(true);
  });
});
