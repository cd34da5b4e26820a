// The public ports of an instance: one address does not get all connections, and a proxy does.
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { type Duplex, PassThrough } from 'node:stream';
import { afterEach, describe, expect, test } from 'vitest';
import { openPortStreams } from '../../../control-plane/rental/edge/port-streams.ts';
import { openPublicPorts, type PublicPorts } from '../../../control-plane/rental/edge/public-ports.ts';
import type { Link } from '../../../control-plane/fleet/link/link.ts';
import {
  PORT_CONNECTIONS_PER_ADDRESS_MAX,
  SSH_CONNECTIONS_MAX,
  SSH_LOGIN_MS_MAX,
  STREAM_DIAL_MS_MAX,
} from '../../../shared/limits.ts';
import type { OpenMessage } from '../../../shared/protocol/link.ts';
import { createLog, type Log } from '../../../shared/log.ts';
import { freePort } from '../../kit/ports.ts';

/** The address of the listener is not one that callers come from. */
const HOST = '127.0.0.4';

type TcpPorts = { port: number; public_port: number }[];
interface Given {
  tcpPorts?: TcpPorts;
  keysOf?: (read: number) => string[];
  log?: Log;
}

let ports: PublicPorts;
/** The instances that have the SSH port in the list of endpoints: one, or two if it passes from one to the other during the read. */
let owners: string[];
const sockets: Socket[] = [];
/** How far the clock of the ports is ahead. */
let aheadMs = 0;
/** Whether the host has not read much of what it was sent. */
let isBehind = false;
/** How often the keys were read. */
let reads = 0;
/** What waits for its time. */
let later: (() => void)[] = [];
const clock = {
  monotonicMs: () => performance.now() + aheadMs,
  sleep: () => new Promise<void>((resolve) => setImmediate(resolve)),
  after: (_ms: number, fn: () => void) => {
    later.push(fn);
    return () => void (later = later.filter((each) => each !== fn));
  },
};
afterEach(async () => {
  isBehind = false;
  for (const socket of sockets.splice(0)) socket.destroy();
  await ports.close(0);
});

/** Listens; hosts never answer, unless what they answer with is named. */
async function open(
  trustProxy: string[],
  openStream: Link['openStream'] = () => new Promise(() => undefined),
  { tcpPorts = [], keysOf = () => [], log = createLog('test', 'silent') }: Given = {},
): Promise<number> {
  const port = await freePort();
  owners = ['i'];
  reads = 0;
  ports = openPublicPorts({
    clock,
    log,
    host: HOST,
    trustProxy,
    db: { read: { all: async () => [], one: async () => undefined } },
    endpoints: {
      openEndpoints: async () => owners.map((id) => ({ instance_id: id, ssh_port: port, tcp_ports: tcpPorts })),
    },
    streams: openPortStreams({
      clock,
      access: async (id) => ({ machineId: 'm', workloadId: `workload of ${id}`, authorizedKeys: keysOf((reads += 1)) }),
      link: { openStream, isBehind: () => isBehind },
    }),
  });
  await ports.sync();
  return port;
}

test('a port that another program has is not taken for ours, and is opened once it is free', async () => {
  const port = await open([]);
  expect([ports.listens('i'), ports.listens('other')]).toEqual([true, false]);
  await ports.close(0);
  expect(ports.listens('i')).toBe(false);
  const other = createServer().listen(port, HOST);
  await once(other, 'listening');
  await ports.sync();
  expect([ports.listens('i'), ports.unopened()]).toEqual([false, 1]);
  await new Promise((resolve) => other.close(resolve));
  await ports.sync();
  expect([ports.listens('i'), ports.unopened()]).toEqual([true, 0]);
});

test('a port that stays taken writes one line each time that it is lost', async () => {
  const lines: string[] = [];
  const log = createLog('test', 'info', { write: (line: string) => void lines.push(line) });
  const port = await open([], undefined, { log });
  for (const count of [1, 2]) {
    await ports.close(0);
    const other = createServer().listen(port, HOST);
    await once(other, 'listening');
    for (let i = 0; i < 3; i += 1) await ports.sync();
    expect([lines.length, ports.unopened()]).toEqual([count, 1]);
    await new Promise((resolve) => other.close(resolve));
    await ports.sync();
  }
});

/** Connects and counts what is closed at once. */
async function dial(port: number, count: number, localAddress = '127.0.0.1'): Promise<{ closed: number }> {
  const counted = { closed: 0 };
  for (let i = 0; i < count; i += 1) {
    const socket = connect({ port, host: HOST, localAddress });
    sockets.push(socket);
    socket.resume().on('close', () => (counted.closed += 1));
    await once(socket, 'connect');
  }
  return counted;
}

test('one address gets half of the connections, another one still gets in', async () => {
  const port = await open([]);
  const first = await dial(port, PORT_CONNECTIONS_PER_ADDRESS_MAX);
  const more = await dial(port, 3);
  await expect.poll(() => more.closed).toBe(3);
  const other = await dial(port, PORT_CONNECTIONS_PER_ADDRESS_MAX, '127.0.0.2');
  // What is refused is closed in order: all others are there to stay.
  expect([first.closed, other.closed]).toEqual([0, 0]);
});

test('a full port lets go of the oldest caller that may not have logged in, and a third address gets in', async () => {
  const port = await open([]);
  const first = await dial(port, PORT_CONNECTIONS_PER_ADDRESS_MAX);
  const second = await dial(port, PORT_CONNECTIONS_PER_ADDRESS_MAX, '127.0.0.2');
  const customer = await dial(port, 1, '127.0.0.3');
  await expect.poll(() => first.closed).toBe(1);
  expect([second.closed, customer.closed]).toEqual([0, 0]);
});

test('a port that is full of callers who have logged in refuses one more', async () => {
  const port = await open([]);
  const first = await dial(port, PORT_CONNECTIONS_PER_ADDRESS_MAX);
  await dial(port, PORT_CONNECTIONS_PER_ADDRESS_MAX, '127.0.0.2');
  aheadMs += SSH_LOGIN_MS_MAX;
  const customer = await dial(port, 1, '127.0.0.3');
  await expect.poll(() => customer.closed).toBe(1);
  expect(first.closed).toBe(0);
});

test('a proxy in trust_proxy may have all connections of a port', async () => {
  const port = await open(['127.0.0.1/32']);
  const proxy = await dial(port, SSH_CONNECTIONS_MAX);
  expect(proxy.closed).toBe(0);
  await dial(port, 1);
  await expect.poll(() => proxy.closed).toBe(1);
});

test('the host of an SSH server is sent the address of each caller', async () => {
  const targets: unknown[] = [];
  const port = await open([], async (_machineId, _workloadId, target) => {
    targets.push(target);
    return new PassThrough();
  });
  for (const address of ['127.0.0.2', '127.0.0.3']) {
    const before = targets.length;
    await dial(port, 1, address);
    await expect.poll(() => targets.length).toBe(before + 1);
    expect(targets.at(-1)).toEqual({ kind: 'ssh', authorized_keys: [], client_ip: address });
  }
});

test('a connection adds fewer listeners than Node warns about', async () => {
  const warned: string[] = [];
  const onWarning = ({ message }: Error): void => void warned.push(message);
  process.on('warning', onWarning);
  const port = await open([], async () => new PassThrough());
  const socket = connect({ port, host: HOST });
  sockets.push(socket);
  for (let i = 0; i < 20; i += 1) socket.write(Buffer.alloc(100_000));
  await once(socket, 'data');
  socket.resume().end();
  await once(socket, 'close');
  process.off('warning', onWarning);
  expect(warned).toEqual([]);
});

test('an address whose connections cannot be relayed writes thirty lines a minute, and others write theirs', async () => {
  const lines: { client_ip?: string }[] = [];
  const log = createLog('test', 'info', {
    write: (line) => void lines.push(JSON.parse(line) as { client_ip?: string }),
  });
  let asked = 0;
  const openStream = (): Promise<Duplex> => {
    asked += 1;
    return Promise.reject(new Error('the host is not connected'));
  };
  const port = await open([], openStream, { log });
  const first = await dial(port, 40, '127.0.0.2');
  await expect.poll(() => first.closed).toBe(40);
  const other = await dial(port, 1, '127.0.0.3');
  await expect.poll(() => other.closed).toBe(1);
  expect(asked).toBe(41);
  const own = Array.from({ length: 30 }, () => '127.0.0.2');
  expect(lines.map((line) => line.client_ip)).toEqual([...own, '127.0.0.3']);
});

test('a port that passes to another instance leads there, and drops the callers of the one before', async () => {
  const asked: string[] = [];
  const port = await open([], async (_machineId, workloadId) => {
    asked.push(workloadId);
    return new PassThrough();
  });
  const before = await dial(port, 1);
  await expect.poll(() => asked).toEqual(['workload of i']);
  // The list was read while the port passed on, so it has both.
  owners = ['i', 'j'];
  await ports.sync();
  expect([ports.listens('i'), ports.listens('j'), ports.unopened()]).toEqual([false, true, 0]);
  await expect.poll(() => before.closed).toBe(1);
  await dial(port, 1);
  await expect.poll(() => asked).toEqual(['workload of i', 'workload of j']);
  owners = ['j'];
  await ports.sync();
  await dial(port, 1);
  await expect.poll(() => asked).toHaveLength(3);
});

describe('while the host has not read much of what it was sent', () => {
  /** Opens ports whose hosts answer, and lists what the hosts are asked for. */
  async function openBehind(tcpPorts: TcpPorts = []): Promise<{ port: number; asked: OpenMessage['target'][] }> {
    const asked: OpenMessage['target'][] = [];
    isBehind = true;
    const openStream: Link['openStream'] = async (_machineId, _workloadId, target) => {
      asked.push(target);
      // The keys of one connection are much, so the host is behind again.
      isBehind = true;
      return new PassThrough();
    };
    const port = await open([], openStream, { tcpPorts, keysOf: (read) => [`key ${read}`] });
    return { port, asked };
  }
  const turns = async (): Promise<void> => {
    for (let i = 0; i < 20; i += 1) await new Promise((resolve) => setImmediate(resolve));
  };
  const sshOf = (read: number): object => ({ kind: 'ssh', authorized_keys: [`key ${read}`], client_ip: '127.0.0.1' });

  test('connections to SSH wait, one of them with its keys, and go on with the keys of that moment', async () => {
    const { port, asked } = await openBehind();
    const callers = await dial(port, 3);
    await expect.poll(() => reads).toBe(1);
    await turns();
    expect([asked, reads]).toEqual([[], 1]);
    isBehind = false;
    await expect.poll(() => reads).toBe(3);
    await turns();
    expect([asked, reads]).toEqual([[sshOf(2)], 3]);
    isBehind = false;
    await expect.poll(() => asked).toEqual([sshOf(2), sshOf(4)]);
    expect(callers.closed).toBe(0);
  });

  test('a client that leaves is not asked for, and the next one is', async () => {
    const { port, asked } = await openBehind();
    await dial(port, 2);
    await expect.poll(() => reads).toBe(1);
    const [first] = sockets;
    first?.resetAndDestroy();
    await expect.poll(() => reads).toBe(2);
    isBehind = false;
    await expect.poll(() => asked).toEqual([sshOf(3)]);
    await turns();
    expect(asked).toHaveLength(1);
  });

  test('a connection that has waited as long as for a dial is closed', async () => {
    const { port, asked } = await openBehind();
    const caller = await dial(port, 1);
    await expect.poll(() => reads).toBe(1);
    await turns();
    expect(caller.closed).toBe(0);
    aheadMs += STREAM_DIAL_MS_MAX;
    await expect.poll(() => caller.closed).toBe(1);
    expect(asked).toEqual([]);
  });

  test('connections to ports of the application do not wait, because theirs sends no keys', async () => {
    const publicPort = await freePort();
    const { asked } = await openBehind([{ port: 8080, public_port: publicPort }]);
    await dial(publicPort, 2);
    const tcp = { kind: 'tcp', port: 8080 };
    await expect.poll(() => asked).toEqual([tcp, tcp]);
  });
});

describe('a stop', () => {
  const GRACE_MS = 10_000;
  const isRefused = async (port: number): Promise<boolean> => {
    const socket = connect({ port, host: HOST });
    sockets.push(socket);
    return once(socket, 'connect').then(
      () => false,
      (error: NodeJS.ErrnoException) => error.code === 'ECONNREFUSED',
    );
  };
  /** A session: what is said comes back from the host. */
  async function session(port: number): Promise<{ socket: Socket; echo(word: string): Promise<string> }> {
    const socket = connect({ port, host: HOST });
    sockets.push(socket);
    const echo = async (word: string): Promise<string> => {
      socket.write(word);
      return String((await once(socket, 'data'))[0]);
    };
    expect(await echo('hello')).toBe('hello');
    return { socket, echo };
  }

  test('lets a session go on until it ends, and refuses new ones', async () => {
    const port = await open([], async () => new PassThrough());
    const { socket, echo } = await session(port);
    const order: string[] = [];
    const closed = ports.close(GRACE_MS).then(() => order.push('closed'));
    expect(await isRefused(port)).toBe(true);
    expect(await echo('still there')).toBe('still there');
    order.push('session ends');
    socket.end();
    await closed;
    expect(order).toEqual(['session ends', 'closed']);
    expect(later).toEqual([]);
  });

  test('cuts a session that lasts when its time is over', async () => {
    const port = await open([], async () => new PassThrough());
    const { socket, echo } = await session(port);
    const cut = once(socket, 'close');
    const closed = ports.close(GRACE_MS);
    expect(await echo('still there')).toBe('still there');
    for (const fn of later) fn();
    await Promise.all([cut, closed]);
  });

  test('cuts at once if no time is given', async () => {
    const port = await open([], async () => new PassThrough());
    const { socket } = await session(port);
    const cut = once(socket, 'close');
    await Promise.all([ports.close(0), cut]);
    expect(later).toEqual([]);
  });
});
