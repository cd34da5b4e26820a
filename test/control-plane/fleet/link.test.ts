// The control plane's end of a link over a real socket: proof, order, malformed messages, the newest link, streams.
import { generateKeyPairSync, sign, type KeyObject } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { Writable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { dialStream } from '../../../agent/wire/dial.ts';
import { type Link, type LinkHandlers, openLink } from '../../../control-plane/fleet/link/link.ts';
import { systemClock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { createIds } from '../../../shared/ids.ts';
import { createLog } from '../../../shared/log.ts';
import {
  AgentMessage,
  decodeMessage,
  LINK_CLOSE,
  LINK_PATH,
  linkProof,
  type OpenMessage,
  STREAMS_PATH,
  ServerMessage,
} from '../../../shared/protocol/link.ts';
import { hasKeepAlive } from '../../kit/ports.ts';
import { LINK_MESSAGE_VALUES_MAX } from '../../../shared/limits.ts';
import { systemRng } from '../../../shared/rng.ts';
import { eventually } from '../../kit/processes.ts';
import { inventoryOf } from '../../kit/machines.ts';

const MACHINE = 'm-1';
const TARGET: OpenMessage['target'] = { kind: 'ssh', authorized_keys: [], client_ip: '127.0.0.1' };
const clock = systemClock();
const rng = systemRng();

let server: Server;
let link: Link;
let origin: string;
let key: KeyObject;
let reports: string[];
let lines: string[];
let proven: number;
let pullLogin: LinkHandlers['pullLogin'];
let onObserved: LinkHandlers['onObserved'];

beforeEach(async () => {
  const pair = generateKeyPairSync('ed25519');
  key = pair.privateKey;
  reports = [];
  lines = [];
  proven = 0;
  pullLogin = async () => undefined;
  onObserved = async (_id, message) => reports.push(`observed ${message.workloads.length}`) > 0;
  const destination = new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      lines.push(chunk.toString());
      done();
    },
  });
  link = openLink({
    clock,
    rng,
    ids: createIds(clock, rng),
    log: createLog('test', 'info', destination),
    machineKey: async (id) => (id === MACHINE ? (pair.publicKey.export({ format: 'jwk' }).x ?? '') : undefined),
    cloneTokens: {
      next: async () => 'next',
      kept: (_id, value) => void reports.push(`kept ${value}`),
      leave: async () => undefined,
    },
    handlers: {
      onUp: async (id, { clone_token: token }) => void reports.push(`up ${id} with token ${token}`),
      onDown: async (id) => void reports.push(`down ${id}`),
      onMetrics: () => undefined,
      onLife: () => undefined,
      onHolder: async () => undefined,
      onObserved: (machineId, message) => onObserved(machineId, message),
      onInventory: async () => reports.push('inventory') > 0,
      jobUrl: async () => undefined,
      onJobEvents: async () => undefined,
      pullLogin: (machineId, workloadId) => pullLogin(machineId, workloadId),
      desired: async () => ({ type: 'desired', epoch: 1, revision: 7, complete: true, now_ms: 0, workloads: [] }),
    },
  });
  server = createServer();
  server.on('upgrade', (request, socket, head) => {
    const toStream = request.url?.startsWith(STREAMS_PATH) ?? false;
    const serve = toStream ? link.onStreamUpgrade : link.onLinkUpgrade;
    serve({ request, socket, head, clientIp: '127.0.0.1', proven: () => void (proven += 1) });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  origin = `ws://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(async () => {
  await link.drain(0);
  server.closeAllConnections();
  server.close();
});

interface Agent {
  socket: WebSocket;
  /** The next message of this type; earlier messages of other types are skipped. */
  next<T extends ServerMessage['type']>(type: T): Promise<Extract<ServerMessage, { type: T }>>;
  closed: Promise<{ code: number; reason: string }>;
}

function dial(): Agent {
  const socket = new WebSocket(origin + LINK_PATH);
  const queue: ServerMessage[] = [];
  let wake = (): void => undefined;
  socket.on('message', (data: Buffer) => {
    queue.push(ServerMessage.parse(JSON.parse(data.toString())));
    wake();
  });
  const closed = new Promise<{ code: number; reason: string }>((resolve) => {
    socket.on('close', (code, reason) => resolve({ code, reason: reason.toString() }));
  });
  return {
    socket,
    closed,
    next: async (type) => {
      for (;;) {
        const message = queue.shift();
        if (message?.type === type) return message as never;
        if (message === undefined) await new Promise<void>((resolve) => (wake = resolve));
      }
    },
  };
}

async function hello(
  agent: Agent,
  patch: { machineId?: string; key?: KeyObject; protocol?: number } = {},
): Promise<void> {
  const { nonce } = await agent.next('challenge');
  const machineId = patch.machineId ?? MACHINE;
  const proof = sign(null, linkProof(machineId, nonce), patch.key ?? key).toString('base64url');
  const protocol = patch.protocol ?? 1;
  agent.socket.send(
    JSON.stringify({
      type: 'hello',
      machine_id: machineId,
      proof,
      protocol: { min: protocol, max: protocol },
      held: null,
      boot_id: 'b',
      inventory: inventoryOf(1, () => 'u'),
      clone_token: 'mine',
    }),
  );
}

async function up(): Promise<Agent> {
  const agent = dial();
  await hello(agent);
  await agent.next('desired');
  return agent;
}

test('a text with U+0000, which PostgreSQL cannot store, is accepted without that character', () => {
  const refused = { type: 'stream_refused', stream_id: 's', detail: 'no\u0000pe \\u0000' };
  expect(decodeMessage(AgentMessage, JSON.stringify(refused), LINK_MESSAGE_VALUES_MAX)).toEqual({
    ok: true,
    message: { ...refused, detail: 'no\ufffdpe \\u0000' },
  });
});

describe('a link', () => {
  test('comes up with the right key and gets the complete desired state', async () => {
    const agent = dial();
    await hello(agent);
    expect(await agent.next('welcome')).toMatchObject({ protocol: 1 });
    expect(await agent.next('desired')).toMatchObject({ revision: 7, complete: true });
    expect(link.isUp(MACHINE)).toBe(true);
    expect(reports).toEqual([`up ${MACHINE} with token mine`]);
    expect(proven).toBe(1);
  });

  test.each([
    ['an unknown machine', { machineId: 'm-2' }, LINK_CLOSE.unauthorized],
    ['a wrong key', { key: generateKeyPairSync('ed25519').privateKey }, LINK_CLOSE.unauthorized],
    ['a protocol from the future', { protocol: 99 }, LINK_CLOSE.version],
  ])('of %s is refused with a reason', async (_what, patch, code) => {
    const agent = dial();
    await hello(agent, patch);
    expect((await agent.closed).code).toBe(code);
    expect(reports).toEqual([]);
  });

  test('that was replayed from another nonce is refused', async () => {
    const first = dial();
    const { nonce } = await first.next('challenge');
    const second = dial();
    await second.next('challenge');
    const proof = sign(null, linkProof(MACHINE, nonce), key).toString('base64url');
    const inventory = inventoryOf(1, () => 'u');
    second.socket.send(
      JSON.stringify({
        type: 'hello',
        machine_id: MACHINE,
        proof,
        protocol: { min: 1, max: 1 },
        held: null,
        boot_id: '',
        inventory,
        clone_token: null,
      }),
    );
    expect((await second.closed).code).toBe(LINK_CLOSE.unauthorized);
  });

  test('gets a clone token and confirms it; a hello with an old token is reported as a copy, and the link still comes up', async () => {
    const agent = dial();
    await hello(agent);
    expect(await agent.next('clone_token')).toMatchObject({ value: 'next' });
    agent.socket.send(JSON.stringify({ type: 'clone_token_kept', value: 'next' }));
    await expect.poll(() => reports).toContain('kept next');
    expect(reports).toEqual([`up ${MACHINE} with token mine`, 'kept next']);
  });

  test('gets the login for a pull in parallel with other messages, and no answer if there is none', async () => {
    const held = Promise.withResolvers<null>();
    pullLogin = async (machineId, workloadId) => {
      reports.push(`login of ${workloadId} for ${machineId === MACHINE}`);
      if (workloadId === 'wl_slow') return held.promise;
      if (workloadId === 'wl_away') throw new Error('the registry is away');
      if (workloadId === 'wl_gone') fail('image_unavailable', 'the login is wrong');
      return workloadId === 'wl_a' ? { kind: 'bearer', token: 't' } : undefined;
    };
    const agent = await up();
    for (const id of ['wl_slow', 'wl_away', 'wl_foreign', 'wl_gone', 'wl_a']) {
      agent.socket.send(JSON.stringify({ type: 'pull_login', workload_id: id }));
    }
    const refused = { workload_id: 'wl_gone', login: { kind: 'refused', detail: 'the login is wrong' } };
    expect(await agent.next('pull_login')).toMatchObject(refused);
    expect(await agent.next('pull_login')).toMatchObject({
      workload_id: 'wl_a',
      login: { kind: 'bearer', token: 't' },
    });
    held.resolve(null);
    expect(await agent.next('pull_login')).toMatchObject({ workload_id: 'wl_slow', login: null });
    expect(reports).toContain('login of wl_foreign for true');
    expect(lines.join('')).toContain('the registry is away');
  });

  test('gets no more than sixteen logins at once', async () => {
    const asked: string[] = [];
    const held = Promise.withResolvers<null>();
    pullLogin = async (_machineId, workloadId) => {
      asked.push(workloadId);
      return held.promise;
    };
    const agent = await up();
    for (let i = 0; i < 17; i += 1) agent.socket.send(JSON.stringify({ type: 'pull_login', workload_id: `wl_${i}` }));
    agent.socket.send(JSON.stringify({ type: 'inventory', inventory: inventoryOf(0, () => '') }));
    await eventually('the last message', 5_000, async () => (reports.includes('inventory') ? true : undefined));
    expect(asked).toHaveLength(16);
    held.resolve(null);
    await agent.next('pull_login');
  });

  test.each([
    'nonsense',
    '{"type":"unknown"}',
    `{"type":"inventory","${'ä'.repeat(200)}":1}`,
    '{"type":"observed","held":null,"workloads":[{}],"unknown_workload_ids":[]}',
  ])('that sends %s is closed with a reason, logged once, and nothing else happens', async (frame) => {
    const other = await up();
    const agent = await up();
    agent.socket.send(frame);
    const { code, reason } = await agent.closed;
    expect(code).toBe(LINK_CLOSE.malformed);
    expect(reason).toContain('malformed message');
    expect(reports.filter((what) => what.startsWith('observed'))).toEqual([]);
    expect(lines.filter((line) => line.includes('malformed'))).toHaveLength(1);
    expect((await other.closed).code).toBe(LINK_CLOSE.superseded);
  });

  test('keeps the order of messages: none before hello, and no second hello', async () => {
    const early = dial();
    await early.next('challenge');
    early.socket.send('{"type":"inventory","inventory":null}');
    expect((await early.closed).code).toBe(LINK_CLOSE.malformed);
    const agent = await up();
    const inventory = inventoryOf(1, () => 'u');
    const again = {
      type: 'hello',
      machine_id: MACHINE,
      proof: 'x',
      protocol: { min: 1, max: 1 },
      held: null,
      boot_id: '',
      inventory,
      clone_token: null,
    };
    agent.socket.send(JSON.stringify(again));
    expect((await agent.closed).code).toBe(LINK_CLOSE.malformed);
  });

  test('gives way to a newer one of the same machine, and only the newest counts', async () => {
    const old = await up();
    const fresh = await up();
    expect((await old.closed).code).toBe(LINK_CLOSE.superseded);
    fresh.socket.send(JSON.stringify({ type: 'observed', held: null, workloads: [], unknown_workload_ids: [] }));
    await expect.poll(() => reports).toContain('observed 0');
    expect(reports).not.toContain(`down ${MACHINE}`);
    expect(link.isUp(MACHINE)).toBe(true);
  });
});

describe('a stream', () => {
  test('is dialled once with its token and carries bytes both ways; each direction ends by itself', async () => {
    const agent = await up();
    const opening = link.openStream(MACHINE, 'w', TARGET);
    const { token } = await agent.next('open');
    const url = origin + STREAMS_PATH + token;
    const connected = once(server, 'connection') as Promise<[Socket]>;
    const near = await dialStream({ url, ca: null });
    const far = await opening;
    const [{ localPort, remotePort }] = await connected;
    expect(hasKeepAlive(localPort, remotePort)).toBe(true);
    far.end('question');
    const asked = (await near.toArray()).join('');
    near.end('answer');
    expect([asked, (await far.toArray()).join('')]).toEqual(['question', 'answer']);
    await expect(dialStream({ url, ca: null })).rejects.toThrow('404');
  });

  test('to a machine without a link, or refused by it, fails with the leg', async () => {
    await expect(link.openStream(MACHINE, 'w', TARGET)).rejects.toMatchObject({ leg: 'link' });
    const agent = await up();
    const opening = link.openStream(MACHINE, 'w', TARGET);
    const { stream_id } = await agent.next('open');
    agent.socket.send(JSON.stringify({ type: 'stream_refused', stream_id, detail: 'no such workload' }));
    await expect(opening).rejects.toMatchObject({ leg: 'refused', message: 'no such workload' });
  });
});

describe('a hostile host', () => {
  test('that reports faster than we handle is not read meanwhile, and all its messages are read later', async () => {
    const agent = await up();
    const slow = Promise.withResolvers<void>();
    let handled = 0;
    onObserved = async () => {
      handled += 1;
      await slow.promise;
      return false;
    };
    const REPORTS = 32;
    const unknown = Array.from({ length: 256 }, () => 'x'.repeat(64));
    const padding = ' '.repeat(512 * 1024);
    const report = JSON.stringify({ type: 'observed', held: null, workloads: [], unknown_workload_ids: unknown });
    for (let sent = 0; sent < REPORTS; sent += 1) agent.socket.send(report + padding);
    await expect.poll(() => handled).toBe(1);
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(agent.socket.bufferedAmount).toBeGreaterThan((REPORTS / 2) * padding.length);
    slow.resolve();
    await expect.poll(() => handled).toBe(REPORTS);
    expect(link.isUp(MACHINE)).toBe(true);
  });

  /** Uncaught errors of this process. Each one would end the control plane. */
  let uncaught: unknown[];
  const note = (error: unknown): void => void uncaught.push(error);
  beforeEach(() => {
    uncaught = [];
    process.on('uncaughtExceptionMonitor', note);
  });
  afterEach(() => void process.off('uncaughtExceptionMonitor', note));

  test.each([
    ['no WebSocket frames', Buffer.from([0xff, 0xff, 0xff, 0xff])],
    ['an unknown text', Buffer.from([0x81, 0x81, 0, 0, 0, 0, 0x78])],
  ])('that sends %s with its handshake breaks the stream, and nothing else', async (_what, bytes) => {
    const agent = await up();
    // Users of a stream listen as soon as they get it.
    const broken = link.openStream(MACHINE, 'w', TARGET).then((stream) => stream.toArray());
    const { token } = await agent.next('open');
    const socket = connect(Number(new URL(origin).port), '127.0.0.1');
    socket.on('error', () => undefined);
    const lines = [
      `GET ${STREAMS_PATH}${token} HTTP/1.1`,
      'Host: x',
      'Connection: Upgrade',
      'Upgrade: websocket',
      'Sec-WebSocket-Version: 13',
      'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
    ];
    socket.write(Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`), bytes]));
    await expect(broken).rejects.toThrow('stream');
    socket.destroy();
    expect(uncaught).toEqual([]);
  });
});
