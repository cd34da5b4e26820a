// A link that sends nothing is closed once the time for its hello is over, and does not count as proven before.
import { EventEmitter } from 'node:events';
import type { WebSocket } from 'ws';
import { expect, test } from 'vitest';
import { openReadBudget, runSession, type SessionDeps } from '../../../control-plane/fleet/link/session.ts';
import { createIds } from '../../../shared/ids.ts';
import { LINK_HELLO_MS_MAX } from '../../../shared/limits.ts';
import { createLog } from '../../../shared/log.ts';
import { LINK_CLOSE } from '../../../shared/protocol/link.ts';
import { seededRng } from '../../../shared/rng.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

test('a host that sends no hello is disconnected after ten seconds', () => {
  const clock = virtualClock(1_000_000);
  const rng = seededRng(1);
  const closed: number[] = [];
  const socket = Object.assign(new EventEmitter(), {
    OPEN: 1,
    readyState: 1,
    bufferedAmount: 0,
    send: () => undefined,
    ping: () => undefined,
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
  };
  runSession(socket as unknown as WebSocket, '192.0.2.1', deps);
  clock.jump(LINK_HELLO_MS_MAX - 1);
  expect(closed).toEqual([]);
  clock.jump(1);
  expect(closed).toEqual([LINK_CLOSE.silent]);
});
