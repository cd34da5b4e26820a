// One link between the control plane and an agent that the test plays, without a network: the sockets are objects.
import { generateKeyPairSync, sign } from 'node:crypto';
import { EventEmitter } from 'node:events';
import { type Link, type LinkHandlers, openLink } from '../../control-plane/fleet/link/link.ts';
import { createIds } from '../../shared/ids.ts';
import { createLog } from '../../shared/log.ts';
import type { Inventory } from '../../shared/protocol/inventory.ts';
import { type AgentMessage, linkProof, type LinkSocket, ServerMessage } from '../../shared/protocol/link.ts';
import { seededRng } from '../../shared/rng.ts';
import { virtualClock } from './virtual-clock.ts';

export const MACHINE = 'm-1';

export interface LinkInMemory {
  link: Link;
  /** What the control plane has sent. */
  sent: ServerMessage[];
  receive(message: AgentMessage): void;
  /** The agent has not read this much of what it was sent. */
  leaveUnread(bytes: number): void;
}

/** The agent has said hello with versions up to `version`. Handlers that are not given do nothing. */
export function linkInMemory(
  hello: { inventory: Inventory; version: number },
  handlers: Partial<LinkHandlers>,
): LinkInMemory {
  const clock = virtualClock(1_000_000);
  const rng = seededRng(1);
  const pair = generateKeyPairSync('ed25519');
  const link = openLink({
    clock,
    rng,
    ids: createIds(clock, rng),
    log: createLog('test', 'silent'),
    machineKey: async () => pair.publicKey.export({ format: 'jwk' }).x ?? '',
    cloneTokens: { next: async () => 'next', kept: () => undefined, leave: async () => undefined },
    handlers: { ...SILENT, ...handlers },
  });
  const socket = new FakeSocket();
  link.accept(socket as unknown as LinkSocket, '192.0.2.1', () => undefined);
  const [challenge] = socket.sent;
  const nonce = challenge?.type === 'challenge' ? challenge.nonce : '';
  socket.receive({
    type: 'hello',
    machine_id: MACHINE,
    proof: sign(null, linkProof(MACHINE, nonce), pair.privateKey).toString('base64url'),
    protocol: { min: 1, max: hello.version },
    held: null,
    boot_id: 'b',
    inventory: hello.inventory,
    clone_token: null,
  });
  return {
    link,
    sent: socket.sent,
    receive: (message) => socket.receive(message),
    leaveUnread: (bytes) => void (socket.bufferedAmount = bytes),
  };
}

class FakeSocket extends EventEmitter {
  readonly OPEN = 1;
  readyState = 1;
  bufferedAmount = 0;
  readonly sent: ServerMessage[] = [];
  send(text: string): void {
    this.sent.push(ServerMessage.parse(JSON.parse(text)));
  }
  ping(): void {}
  pause(): void {}
  resume(): void {}
  close(): void {
    this.readyState = 3;
  }
  terminate(): void {}
  receive(message: AgentMessage): void {
    this.emit('message', Buffer.from(JSON.stringify(message)), false);
  }
}

const SILENT: LinkHandlers = {
  onUp: async () => undefined,
  onDown: async () => undefined,
  onLife: () => undefined,
  onHolder: async () => undefined,
  onObserved: async () => true,
  onInventory: async () => true,
  onMetrics: () => undefined,
  jobUrl: async () => undefined,
  onJobEvents: async () => undefined,
  pullLogin: async () => undefined,
  desired: async () => ({ type: 'desired', epoch: 1, revision: 7, complete: true, now_ms: 0, workloads: [] }),
};
