// A link without a network: what the host does while the control plane reads slowly, and while strangers cause many refusals.
import { EventEmitter } from 'node:events';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Link, openLink, type LinkPeer, UNREAD_BYTES_MAX } from '../../../agent/link/link.ts';
import { createLog } from '../../../shared/log.ts';
import { AgentMessage, type LinkSocket, type ServerMessage } from '../../../shared/protocol/link.ts';
import { seededRng } from '../../../shared/rng.ts';
import { metricsSample } from '../../kit/samples.ts';
import { type VirtualClock, virtualClock } from '../../kit/virtual-clock.ts';

class FakeSocket extends EventEmitter {
  readonly OPEN = 1;
  readonly readyState = 1;
  bufferedAmount = 0;
  readonly sent: string[] = [];
  send(text: string): void {
    const message = AgentMessage.safeParse(JSON.parse(text)).data;
    this.sent.push(message?.type === 'observed' ? `observed ${message.held?.revision}` : (message?.type ?? 'hello'));
  }
  close(): void {
    this.emit('close', 1000, Buffer.alloc(0));
  }
  hear(message: ServerMessage): void {
    this.emit('message', Buffer.from(JSON.stringify(message)), false);
  }
}

let clock: VirtualClock;
let socket: FakeSocket;
let link: Link;
let revision: number;
let lines: string[];

beforeEach(async () => {
  clock = virtualClock(1_000_000);
  socket = new FakeSocket();
  revision = 1;
  lines = [];
  const peer: Partial<LinkPeer> = {
    hello: () => ({ held: null, boot_id: 'boot', inventory: {} as ReturnType<LinkPeer['hello']>['inventory'] }),
    prove: () => 'proof',
    observed: () => ({ type: 'observed', held: { epoch: 1, revision }, workloads: [], unknown_workload_ids: [] }),
    onOpen: () => Promise.reject(new Error('nothing listens on the port')),
    cloneToken: { shown: async () => null, keep: async () => true },
  };
  link = openLink({ url: 'ws://plane', machineId: 'm' }, peer as LinkPeer, {
    clock,
    rng: seededRng(1),
    log: createLog('test', 'warn', { write: (line) => void lines.push(line) }),
    dial: () => socket as unknown as LinkSocket,
  });
  socket.hear({ type: 'challenge', nonce: 'n'.repeat(16), protocol: { min: 1, max: 4 } });
  await clock.nextTurn();
  socket.hear({ type: 'welcome', protocol: 4, now_ms: 0 });
  await clock.nextTurn();
});
afterEach(() => link.stop());

test('a control plane that has not read a mebibyte gets neither reports nor samples, and then the newest report', async () => {
  expect(socket.sent).toEqual(['hello', 'observed 1']);
  socket.bufferedAmount = UNREAD_BYTES_MAX + 1;
  for (revision = 2; revision < 5; revision += 1) {
    link.observedChanged();
    link.sendMetrics(metricsSample(revision));
    await clock.advance(100);
  }
  expect(socket.sent).toEqual(['hello', 'observed 1']);
  socket.bufferedAmount = UNREAD_BYTES_MAX;
  await clock.advance(1_000);
  link.sendMetrics(metricsSample(revision));
  expect(socket.sent).toEqual(['hello', 'observed 1', 'observed 5', 'metrics']);
});

test('strangers who cause refusals do not fill the log of the host', async () => {
  const open = (stream: number): ServerMessage => ({
    type: 'open',
    workload_id: 'w',
    stream_id: `s-${stream}`,
    token: 't'.repeat(16),
    target: { kind: 'tcp', port: 80 },
  });
  for (let stream = 0; stream < 1_000; stream += 1) socket.hear(open(stream));
  await clock.nextTurn();
  expect(socket.sent.filter((type) => type === 'stream_refused')).toHaveLength(1_000);
  expect(lines).toHaveLength(30);
  for (let part = 0; part < 3; part += 1) {
    socket.emit('ping');
    await clock.advance(20_000);
  }
  socket.hear(open(1_000));
  await clock.nextTurn();
  expect(JSON.parse(lines[30] ?? '')).toMatchObject({ suppressed_lines: 970, detail: 'nothing listens on the port' });
});
