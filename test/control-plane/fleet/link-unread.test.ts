// A host that sends but never reads: large messages wait, and its link is closed before unread messages fill our memory. And a message that no host
// could read.
import { EventEmitter } from 'node:events';
import type { WebSocket } from 'ws';
import { expect, test } from 'vitest';
import { runSession, type SessionDeps } from '../../../control-plane/fleet/link/session.ts';
import { createIds } from '../../../shared/ids.ts';
import { LINK_BEHIND_BYTES, LINK_UNSENT_BYTES_MAX } from '../../../shared/limits.ts';
import { createLog } from '../../../shared/log.ts';
import { seededRng } from '../../../shared/rng.ts';
import { linkInMemory, MACHINE } from '../../kit/link-in-memory.ts';
import { inventoryOf } from '../../kit/machines.ts';
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

test.each([
  [LINK_BEHIND_BYTES, false],
  [LINK_BEHIND_BYTES + 1, true],
])('a host that has not read %d bytes is behind: %s', async (bytes, isBehind) => {
  const { link, leaveUnread } = linkInMemory({ inventory: inventoryOf(1, () => 'u'), version: 1 }, {});
  await expect.poll(() => link.isUp(MACHINE)).toBe(true);
  leaveUnread(bytes);
  // A machine without a link is not behind: its streams fail at once.
  expect([link.isBehind(MACHINE), link.isBehind('m-2')]).toEqual([isBehind, false]);
});

test('a message that the host could not decode is not sent, because the host would close its link', async () => {
  const { link, sent } = linkInMemory({ inventory: inventoryOf(1, () => 'u'), version: 3 }, {});
  await expect.poll(() => link.isUp(MACHINE)).toBe(true);
  link.watch(MACHINE, -1);
  link.watch(MACHINE, 0);
  expect(sent.filter(({ type }) => type === 'watch')).toEqual([{ type: 'watch', for_ms: 0 }]);
});
