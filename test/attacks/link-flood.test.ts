// Strangers at the endpoint of the control link: what they send before a proof is bounded, and so is what a host sends after it.
import { generateKeyPairSync, sign } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { expect, test } from 'vitest';
import { openLink } from '../../control-plane/fleet/link/link.ts';
import {
  openReadBudget,
  type ReadBudget,
  runSession,
  type SessionDeps,
} from '../../control-plane/fleet/link/session.ts';
import { systemClock } from '../../shared/clock.ts';
import { createIds } from '../../shared/ids.ts';
import {
  LINK_HELLO_BYTES_MAX,
  LINK_HELLOS_BURST,
  LINK_MESSAGE_BYTES_MAX,
  LINK_READ_BYTES_BURST,
  LINK_READ_BYTES_PER_SECOND,
  LINK_READ_MESSAGES_BURST,
  LINK_READ_MESSAGES_PER_SECOND,
  LINK_UNPROVEN_BYTES_BURST,
  WORKLOADS_PER_MACHINE_MAX,
} from '../../shared/limits.ts';
import { createLog } from '../../shared/log.ts';
import { LINK_CLOSE, linkProof, ServerMessage } from '../../shared/protocol/link.ts';
import { seededRng } from '../../shared/rng.ts';
import { type VirtualClock, virtualClock } from '../kit/virtual-clock.ts';
import { inventoryOf } from '../kit/machines.ts';

const MACHINE = 'm-1';

interface Dialled {
  send(frame: string): Promise<void>;
  /** These messages arrive in one chunk. */
  chunk(frames: string[]): void;
  /** Codes of the closes, in order. */
  closed: number[];
  /** Sends the proof of the machine, or of another one with the same key. */
  prove(machineId?: string): Promise<void>;
}

interface Stage {
  clock: VirtualClock;
  budget: ReadBudget;
  handled: string[];
  dial(clientIp?: string): Dialled;
}

function openStage(): Stage {
  const clock = virtualClock(1_000_000);
  const rng = seededRng(1);
  const pair = generateKeyPairSync('ed25519');
  const handled: string[] = [];
  const budget = openReadBudget(clock);
  const deps: SessionDeps = {
    clock,
    rng,
    ids: createIds(clock, rng),
    log: createLog('test', 'silent'),
    budget,
    machineKey: async () => pair.publicKey.export({ format: 'jwk' }).x ?? '',
    onOpen: async () => void handled.push('open'),
    onMessage: async (_session, message) => void handled.push(message.type),
    onLife: () => undefined,
    onClose: () => undefined,
  };
  const dial = (clientIp = '192.0.2.1'): Dialled => {
    const closed: number[] = [];
    let nonce = '';
    const hear = (text: string): void => {
      const message = ServerMessage.parse(JSON.parse(text));
      if (message.type === 'challenge') nonce = message.nonce;
    };
    const socket = Object.assign(new EventEmitter(), {
      OPEN: 1,
      readyState: 1,
      bufferedAmount: 0,
      send: hear,
      ping: () => undefined,
      terminate: () => undefined,
      pause: () => undefined,
      resume: () => undefined,
      close: (code: number) => closed.push(code),
    });
    runSession(socket, clientIp, deps);
    const send = async (frame: string): Promise<void> => {
      socket.emit('message', Buffer.from(frame), false);
      await settled();
    };
    return {
      send,
      chunk: (frames) => frames.forEach((frame) => socket.emit('message', Buffer.from(frame), false)),
      closed,
      prove: (machineId = MACHINE) =>
        send(
          JSON.stringify({
            type: 'hello',
            machine_id: machineId,
            proof: sign(null, linkProof(machineId, nonce), pair.privateKey).toString('base64url'),
            protocol: { min: 1, max: 1 },
            held: null,
            boot_id: 'b',
            inventory: inventoryOf(8, () => 'GPU-1'),
            clone_token: null,
          }),
        ),
    };
  };
  return { clock, budget, handled, dial };
}

/** All that needs no clock. A link handles one message in a turn of the event loop. */
async function settled(): Promise<void> {
  for (let i = 0; i < 3; i += 1) await new Promise((resolve) => setImmediate(resolve));
}

/** JSON of this length that is no message. */
const nonsense = (bytes: number): string => `"${'a'.repeat(bytes - 2)}"`;

test('a first message of 64 KiB is read, and a message that is one byte longer is not', async () => {
  const { dial, budget } = openStage();
  const [longest, longer] = [dial(), dial()];
  await longest.send(nonsense(LINK_HELLO_BYTES_MAX));
  expect(longest.closed).toEqual([LINK_CLOSE.malformed]);
  await longer.send(nonsense(LINK_HELLO_BYTES_MAX + 1));
  expect(longer.closed).toEqual([LINK_CLOSE.malformed]);
  // Only the first one has cost its address something.
  expect(budget.takeUnproven('192.0.2.1', LINK_UNPROVEN_BYTES_BURST - LINK_HELLO_BYTES_MAX + 1)).toBe(false);
  expect(budget.takeUnproven('192.0.2.1', LINK_UNPROVEN_BYTES_BURST - LINK_HELLO_BYTES_MAX)).toBe(true);
});

test('a message costs its bytes, also if its characters have several', async () => {
  const { dial, budget } = openStage();
  const long = dial();
  await long.send(JSON.stringify('\u20ac'.repeat(10_000)));
  expect(long.closed).toEqual([LINK_CLOSE.malformed]);
  expect(budget.takeUnproven('192.0.2.1', LINK_UNPROVEN_BYTES_BURST - 30_002 + 1)).toBe(false);
  expect(budget.takeUnproven('192.0.2.1', LINK_UNPROVEN_BYTES_BURST - 30_002)).toBe(true);
});

test('the link stops reading an address that sends first messages without a proof, and reads the others', async () => {
  const { dial, clock } = openStage();
  const count = LINK_UNPROVEN_BYTES_BURST / LINK_HELLO_BYTES_MAX;
  for (let i = 0; i < count; i += 1) {
    const caller = dial();
    await caller.send(nonsense(LINK_HELLO_BYTES_MAX));
    expect(caller.closed).toEqual([LINK_CLOSE.malformed]);
  }
  const refused = dial();
  await refused.send(nonsense(LINK_HELLO_BYTES_MAX));
  expect(refused.closed).toEqual([LINK_CLOSE.busy]);
  const neighbour = dial('192.0.2.2');
  await neighbour.send(nonsense(LINK_HELLO_BYTES_MAX));
  expect(neighbour.closed).toEqual([LINK_CLOSE.malformed]);
  clock.jump(1_000);
  const later = dial();
  await later.send(nonsense(LINK_HELLO_BYTES_MAX));
  expect(later.closed).toEqual([LINK_CLOSE.malformed]);
});

test('a thousand machines behind one address come up one after another: a proof costs the address nothing', async () => {
  const { dial, handled } = openStage();
  for (let i = 0; i < 1_000; i += 1) await dial().prove(`m-${i}`);
  expect(handled).toHaveLength(1_000);
});

test('a host that sends too much is read more slowly, message by message, and nothing is lost', async () => {
  const { dial, handled, clock } = openStage();
  const host = dial();
  await host.prove();
  const detail = 'a'.repeat(512);
  const message = JSON.stringify({ type: 'stream_refused', stream_id: 's', detail });
  // Spaces are free in JSON, and cost as much to read as anything else.
  const long = message + ' '.repeat(LINK_MESSAGE_BYTES_MAX - message.length);
  const atOnce = LINK_READ_BYTES_BURST / LINK_MESSAGE_BYTES_MAX;
  for (let i = 0; i < atOnce + 2; i += 1) await host.send(long);
  expect(handled).toHaveLength(1 + atOnce);
  const waitMs = (LINK_MESSAGE_BYTES_MAX / LINK_READ_BYTES_PER_SECOND) * 1000;
  clock.jump(waitMs / 2);
  await settled();
  expect(handled).toHaveLength(1 + atOnce);
  clock.jump(waitMs);
  await settled();
  expect(handled).toHaveLength(2 + atOnce);
  clock.jump(2 * waitMs);
  await settled();
  expect(handled).toHaveLength(3 + atOnce);
  expect(host.closed).toEqual([]);
});

/** A short message, as many of which fit into a chunk. */
const SHORT = JSON.stringify({ type: 'clone_token_kept', value: 'a' });

test('a host that sends too many short messages is read more slowly, and nothing is lost; another host is not', async () => {
  const { dial, budget, handled, clock } = openStage();
  const host = dial();
  await host.prove();
  for (let i = 0; i < LINK_READ_MESSAGES_BURST + 2; i += 1) await host.send(SHORT);
  expect(handled).toHaveLength(1 + LINK_READ_MESSAGES_BURST);
  expect(budget.waitMs('m-2', SHORT.length)).toBe(0);
  const waitMs = 1000 / LINK_READ_MESSAGES_PER_SECOND;
  clock.jump(waitMs - 1);
  await settled();
  expect(handled).toHaveLength(1 + LINK_READ_MESSAGES_BURST);
  clock.jump(1);
  await settled();
  expect(handled).toHaveLength(2 + LINK_READ_MESSAGES_BURST);
  clock.jump(2 * waitMs);
  await settled();
  expect(handled).toHaveLength(3 + LINK_READ_MESSAGES_BURST);
  expect(host.closed).toEqual([]);
});

test('a host with all workloads that connects four times at once is read without a wait', () => {
  const { budget } = openStage();
  // A hello is counted apart. Each workload may have a message, and each connection sends some more.
  const count = 4 * WORKLOADS_PER_MACHINE_MAX;
  const waits = Array.from({ length: count }, () => budget.waitMs(MACHINE, 1024));
  expect(new Set(waits)).toEqual(new Set([0]));
});

test('a host that links again and again is refused, and may link again later', async () => {
  const { clock, handled, dial } = openStage();
  const link = async (): Promise<number[]> => {
    const host = dial();
    await host.prove();
    return host.closed;
  };
  for (let i = 0; i < LINK_HELLOS_BURST; i += 1) expect(await link()).toEqual([]);
  expect(await link()).toEqual([LINK_CLOSE.busy]);
  expect(handled).toHaveLength(LINK_HELLOS_BURST);
  clock.jump(1_000);
  expect(await link()).toEqual([]);
});

test('the messages of one chunk are handled in as many turns of the event loop', async () => {
  const { dial, handled } = openStage();
  const host = dial();
  await host.prove();
  const COUNT = 50;
  host.chunk(Array.from({ length: COUNT }, () => SHORT));
  const perTurn: number[] = [];
  while (handled.length < 1 + COUNT) {
    const before = handled.length;
    await new Promise((resolve) => setImmediate(resolve));
    perTurn.push(handled.length - before);
  }
  expect(Math.max(...perTurn)).toBe(1);
});

test('a caller without a proof is cut in the middle of a long message', async () => {
  const clock = systemClock();
  const rng = seededRng(1);
  const unexpected = async (): Promise<never> => {
    throw new Error('nobody is known yet');
  };
  const link = openLink({
    clock,
    rng,
    ids: createIds(clock, rng),
    log: createLog('test', 'silent'),
    machineKey: unexpected,
    cloneTokens: { next: unexpected, kept: () => undefined, leave: unexpected },
    handlers: {
      onMetrics: () => undefined,
      onUp: unexpected,
      onDown: unexpected,
      onLife: () => undefined,
      onHolder: unexpected,
      onObserved: unexpected,
      onInventory: unexpected,
      jobUrl: async () => undefined,
      onJobEvents: async () => undefined,
      pullLogin: unexpected,
      desired: unexpected,
    },
  });
  const server = createServer();
  server.on('upgrade', (request, socket, head) => {
    socket.on('error', () => undefined);
    link.onLinkUpgrade({ request, socket, head, clientIp: '127.0.0.1', proven: () => undefined });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const caller = connect((server.address() as AddressInfo).port, '127.0.0.1');
  const headers = ['Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Version: 13'];
  const key = Buffer.alloc(16).toString('base64');
  caller.write(
    `GET /agent/v1/link HTTP/1.1\r\nHost: x\r\n${headers.join('\r\n')}\r\nSec-WebSocket-Key: ${key}\r\n\r\n`,
  );
  await once(caller, 'data');
  const closed = new Promise((resolve) => caller.once('close', resolve));
  caller.on('error', () => undefined);
  // The head of a masked text frame of 1 MiB, and a quarter of it: `ws` would wait for the rest.
  caller.write(Buffer.from([0x81, 0xff, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0]));
  caller.write(Buffer.alloc(256 * 1024, 0x20));
  await closed;
  await link.drain(0);
  server.close();
});
