// A host that sends and never reads: its link ends before what it was sent fills our memory.
import { EventEmitter } from 'node:events';
import type { WebSocket } from 'ws';
import { expect, test } from 'vitest';
import { runSession, type SessionDeps } from '../../../control-plane/fleet/link/session.ts';
import { createIds } from '../../../shared/ids.ts';
import { LINK_UNSENT_BYTES_MAX } from '../../../shared/limits.ts';
import { createLog } from '../../../shared/log.ts';
import { seededRng } from '../../../shared/rng.ts';
import { manualClock } from '../../agent/manual-clock.ts';

test.each([
  [LINK_UNSENT_BYTES_MAX, 1, 0],
  [LINK_UNSENT_BYTES_MAX + 1, 0, 1],
])('with %d bytes that it has not read, %d more are sent and it is cut off %d times', (bufferedAmount, sent, cut) => {
  const clock = manualClock();
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
  // Nothing else of the room takes part before the host has said hello.
  const deps: Partial<SessionDeps> = { clock, rng, ids: createIds(clock, rng), log: createLog('test', 'silent') };
  // The challenge is the first that it is sent.
  runSession(socket as unknown as WebSocket, '192.0.2.1', deps as SessionDeps);
  expect(seen).toEqual({ sent, cut });
});
