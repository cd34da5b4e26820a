// Connections per address at the limits: which addresses count as one, which do not count, and when a place is free again.
import { EventEmitter, once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type AddressLimit, openAddressLimit } from '../../../../control-plane/base/http/address-limit.ts';
import { HTTP_CONNECTIONS_PER_ADDRESS_MAX, PORT_CONNECTIONS_PER_ADDRESS_MAX } from '../../../../shared/limits.ts';
import { createLog } from '../../../../shared/log.ts';
import { virtualClock } from '../../../kit/virtual-clock.ts';
import { openBench } from './fixture.ts';

const log = createLog('test', 'silent');
const clock = virtualClock();
const deps = { log, clock };
/** See `throttledLog`. */
const LINES_PER_MINUTE = 30;
let port = 1024;

/** The parts of a socket that the limit uses. */
function from(address: string, remotePort?: number): Socket {
  port += 1;
  const destroy = (): void => void socket.emit('close');
  const socket = Object.assign(new EventEmitter(), {
    remoteAddress: address,
    remotePort: remotePort ?? port,
    destroy,
  });
  return socket as unknown as Socket;
}

/** How many of `count` connections are admitted. */
function admitted(limit: AddressLimit, address: string, count: number): number {
  return Array.from({ length: count }, () => limit.admit(from(address))).filter(Boolean).length;
}

describe('the limit', () => {
  test.each([HTTP_CONNECTIONS_PER_ADDRESS_MAX, PORT_CONNECTIONS_PER_ADDRESS_MAX])(
    '%i connections are admitted, one more is not, and another address is',
    (max) => {
      const limit = openAddressLimit({ max, trusted: [] }, deps);
      expect(admitted(limit, '192.0.2.1', max)).toBe(max);
      expect(admitted(limit, '192.0.2.1', 1)).toBe(0);
      expect(admitted(limit, '192.0.2.2', 1)).toBe(1);
    },
  );

  test('an address mapped into IPv6 is the same address, and an IPv6 /64 counts as one client', () => {
    const limit = openAddressLimit({ max: 1, trusted: [] }, deps);
    expect(admitted(limit, '192.0.2.1', 1)).toBe(1);
    expect(admitted(limit, '::ffff:192.0.2.1', 1)).toBe(0);
    expect(admitted(limit, '2001:db8::1', 1)).toBe(1);
    expect(admitted(limit, '2001:db8::ffff:2', 1)).toBe(0);
    expect(admitted(limit, '2001:db8:0:1::1', 1)).toBe(1);
  });

  test('addresses of an IPv6 /64 that use the same port are several connections', () => {
    const limit = openAddressLimit({ max: 2, trusted: [] }, deps);
    const sockets = ['2001:db8::1', '2001:db8::2', '2001:db8::3'].map((address) => from(address, 1024));
    expect(sockets.map((socket) => limit.admit(socket))).toEqual([true, true, false]);
    sockets[0]?.destroy();
    expect(admitted(limit, '2001:db8::4', 2)).toBe(1);
  });

  test('proxies do not count, by address or network, mapped or not', () => {
    const limit = openAddressLimit({ max: 1, trusted: ['192.0.2.1', '10.0.0.0/8', '2001:db8::/32'] }, deps);
    for (const proxy of ['192.0.2.1', '::ffff:192.0.2.1', '10.9.8.7', '2001:db8::1'])
      expect(admitted(limit, proxy, 3)).toBe(3);
    expect(admitted(limit, '11.0.0.1', 3)).toBe(1);
  });

  test('a place is free again after a connection has closed or has authenticated', () => {
    const limit = openAddressLimit({ max: 2, trusted: [] }, deps);
    const [first, second] = [from('192.0.2.1'), from('192.0.2.1')];
    limit.admit(first);
    limit.admit(second);
    first.destroy();
    expect(admitted(limit, '192.0.2.1', 2)).toBe(1);
    limit.letGo(second);
    expect(admitted(limit, '192.0.2.1', 2)).toBe(1);
    // The same connection must not count twice.
    second.destroy();
    expect(admitted(limit, '192.0.2.1', 1)).toBe(0);
  });

  test('a refusal is logged once until a place is free again', () => {
    const lines: unknown[] = [];
    const telling = { ...log, warn: (...line: unknown[]) => void lines.push(line) };
    const limit = openAddressLimit({ max: 1, trusted: [] }, { log: telling, clock });
    const first = from('192.0.2.1');
    limit.admit(first);
    admitted(limit, '192.0.2.1', 5);
    expect(lines).toHaveLength(1);
    first.destroy();
    admitted(limit, '192.0.2.1', 5);
    expect(lines).toHaveLength(2);
  });

  test('an address that gives its place up again and again causes few lines', () => {
    const lines: unknown[] = [];
    const telling = { ...log, warn: (...line: unknown[]) => void lines.push(line) };
    const limit = openAddressLimit({ max: 1, trusted: [] }, { log: telling, clock });
    for (let i = 0; i < 100; i += 1) {
      const first = from('192.0.2.1');
      limit.admit(first);
      admitted(limit, '192.0.2.1', 1);
      first.destroy();
    }
    expect(lines).toHaveLength(LINES_PER_MINUTE);
  });
});

describe('the API', () => {
  const sockets: Socket[] = [];
  let own: Awaited<ReturnType<typeof openBench>>;
  let listening: number;
  beforeEach(async () => {
    own = await openBench({ http: { connectionsPerAddressMax: 2 } });
    ({ port: listening } = await own.http.listen({ host: '127.0.0.1', port: 0 }));
  });
  afterEach(async () => {
    for (const socket of sockets.splice(0)) socket.destroy();
    await own.close();
  });

  async function dial(text = ''): Promise<Socket> {
    const socket = connect({ port: listening, host: '127.0.0.1', allowHalfOpen: true });
    sockets.push(socket);
    socket.on('error', () => undefined);
    await once(socket, 'connect');
    socket.write(text);
    return socket;
  }
  const upgrade = 'GET /agent/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n';

  test('closes surplus connections before any request', async () => {
    await dial();
    const second = await dial();
    const third = await dial();
    await once(third.resume(), 'end');
    // fetch reuses its connection for the next request.
    second.destroy();
    await expect.poll(async () => (await fetch(`http://127.0.0.1:${listening}/healthz`)).status).toBe(200);
  });

  test('stops counting an upgrade that has authenticated, and closes one that it refuses', async () => {
    const refusing: (() => void)[] = [];
    own.http.onUpgrade('/agent/', ({ socket, proven }) => {
      if (refusing.length > 0) return void socket.end('HTTP/1.1 404 Not Found\r\n\r\n');
      proven();
      socket.resume().once('end', () => socket.end());
      socket.write('HTTP/1.1 101 Switching Protocols\r\n\r\n');
    });
    for (let i = 0; i < 5; i += 1) {
      const [answer]: Buffer[] = await once(await dial(upgrade), 'data');
      expect(String(answer)).toContain('101');
    }
    refusing.push(() => undefined);
    // Each client keeps its side open.
    for (let i = 0; i < 3; i += 1) {
      const refused = await dial(upgrade);
      expect(String((await once(refused, 'data'))[0])).toContain('404');
      await expect.poll(() => writeFails(refused)).toBe(true);
    }
  });
});

async function writeFails(socket: Socket): Promise<boolean> {
  return new Promise((resolve) => socket.write('x', (error) => resolve(Boolean(error))));
}
