// A host that sends but never reads: its link is closed before unread messages fill our memory.
import { EventEmitter } from 'node:events';
import type { WebSocket } from 'ws';
import { expect, test } from 'vitest';
import { runSession, type SessionDeps } from '../../../control-plane/fleet/link/session.ts';
import { createIds } from '../../../shared/ids.ts';
import { LINK_UNSENT_BYTES_MAX } from '../../../shared/limits.ts';
import { createLog } from '../../../shared/log.ts';
import { seededRng } from '../../../shared/rng.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

test.each([
  [LINK_UNSENT_BYTES_MAX, 1, 0],
  [LINK_UNSENT_BYTES_MAX + 1, 0, 1],
])('if %d bytes are unread, %d more messages are sent and the link is cut %d times', (bufferedAmount, sent, cut) => {
  const clock = virtualClock(1_000_000);
  const rng = seededRng(1);
  const seen = { sent: 0, cut: 0 };
  const socket = Object.assign(new EventEmitter(), {
    OPEN: 1,
    readyState: 1,
    bufferedAmount,
    send: () => (seen.sent += 1),
    terminate: () => (seen.cut += 1),
    ping: () => undefined,
    close: () => undefined,
  });
  // No other part of the room is used before the hello.
  const deps: Partial<SessionDeps> = { clock, rng, ids: createIds(clock, rng), log: createLog('test', 'silent') };
  // The challenge is the first message.
  runSession(socket as unknown as WebSocket, '192.0.2.1', deps as SessionDeps);
  expect(seen).toEqual({ sent, cut });
});
