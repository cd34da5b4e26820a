// A link before its hello is answered: it does not count, and nothing stays of one that closes.
import { generateKeyPairSync, sign } from 'node:crypto';
import { EventEmitter } from 'node:events';
import type { WebSocket } from 'ws';
import { expect, test } from 'vitest';
import { openReadBudget, runSession, type SessionDeps } from '../../../control-plane/fleet/link/session.ts';
import { createIds } from '../../../shared/ids.ts';
import { LINK_HELLO_MS_MAX } from '../../../shared/limits.ts';
import { createLog } from '../../../shared/log.ts';
import { LINK_CLOSE, linkProof } from '../../../shared/protocol/link.ts';
import { seededRng } from '../../../shared/rng.ts';
import { inventoryOf } from '../../kit/machines.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

/** A link over a socket that the test plays. */
function startLink(patch: Partial<SessionDeps>) {
  const clock = virtualClock(1_000_000);
  const rng = seededRng(1);
  const closed: number[] = [];
  const sent: { type: string; nonce: string }[] = [];
  const socket = Object.assign(new EventEmitter(), {
    OPEN: 1,
    readyState: 1,
    bufferedAmount: 0,
    send: (text: string) => sent.push(JSON.parse(text)),
    ping: () => undefined,
    pause: () => undefined,
    resume: () => undefined,
    close: (code: number) => closed.push(code),
  });
  const unexpected = async (): Promise<never> => {
    throw new Error('nobody is known yet');
  };
  const deps: SessionDeps = {
    clock,
    rng,
    ids: createIds(clock, rng),
    log: createLog('test', 'silent'),
    budget: openReadBudget(clock),
    machineKey: unexpected,
    onOpen: unexpected,
    onMessage: unexpected,
    onLife: () => undefined,
    onClose: () => undefined,
    ...patch,
  };
  runSession(socket as unknown as WebSocket, '192.0.2.1', deps);
  return { clock, socket, closed, sent };
}

test('a host that sends no hello is disconnected after ten seconds', () => {
  const { clock, closed } = startLink({});
  clock.jump(LINK_HELLO_MS_MAX - 1);
  expect(closed).toEqual([]);
  clock.jump(1);
  expect(closed).toEqual([LINK_CLOSE.silent]);
});

test.each([
  ['stays open counts', false, ['m-1']],
  ['closes while its key is read counts for nothing', true, []],
])('a link that %s', async (_, closes, counted) => {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const key = Promise.withResolvers<string | undefined>();
  const opened: string[] = [];
  const { socket, sent } = startLink({
    machineKey: () => key.promise,
    onOpen: async ({ machineId }) => void opened.push(machineId),
  });
  const hello = {
    type: 'hello',
    machine_id: 'm-1',
    proof: sign(null, linkProof('m-1', sent[0]?.nonce ?? ''), privateKey).toString('base64url'),
    protocol: { min: 1, max: 1 },
    held: null,
    boot_id: 'b',
    inventory: inventoryOf(1, () => 'u'),
    clone_token: 'mine',
  };
  socket.emit('message', Buffer.from(JSON.stringify(hello)), false);
  await new Promise((resolve) => setImmediate(resolve));
  if (closes) {
    socket.readyState = 3;
    socket.emit('close');
  }
  key.resolve(publicKey.export({ format: 'jwk' }).x);
  await new Promise((resolve) => setImmediate(resolve));
  expect(opened).toEqual(counted);
  socket.emit('close');
});
