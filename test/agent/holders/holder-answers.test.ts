// Whether a holder answers its supervisor, which decides about its replacement.
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sendJson } from '../../../agent/wire/frames.ts';
import { type Holder, serveHolder } from '../../../agent/holders/holder-client.ts';
import { createLog } from '../../../shared/log.ts';
import { type VirtualClock, virtualClock } from '../../kit/virtual-clock.ts';

let dir: string;
let server: Server;
let clock: VirtualClock;
let holder: Holder;
/** The holder's end. */
let far: Socket;

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'holder-'));
  server = createServer().listen(join(dir, 'socket'));
  await once(server, 'listening');
  const near = connect(join(dir, 'socket'));
  [far] = (await once(server, 'connection')) as [Socket];
  clock = virtualClock(1_000_000);
  holder = serveHolder(near, { clock, log: createLog('test', 'silent'), workloadId: 'wl' }, () => undefined);
});
afterEach(() => {
  far.destroy();
  holder.socket.destroy();
  server.close();
  rmSync(dir, { recursive: true });
});

test('a holder that sends a pong answers', async () => {
  const asked = holder.answers();
  await once(far, 'readable');
  sendJson(far, { kind: 'pong' });
  expect(await asked).toBe(true);
});

test('a holder that sends nothing for five seconds does not answer', async () => {
  const asked = holder.answers();
  clock.jump(4_999);
  let isOver = false;
  void asked.then(() => (isOver = true));
  await new Promise((resolve) => setImmediate(resolve));
  expect(isOver).toBe(false);
  clock.jump(1);
  expect(await asked).toBe(false);
});

test('after the host has stood still, an answer that has arrived is read before the holder counts as silent', async () => {
  const asked = holder.answers();
  await once(far, 'readable');
  // The clock jumps first, as it does in a process that wakes; the answer comes in the next turn.
  clock.jump(4_500);
  sendJson(far, { kind: 'pong' });
  expect(await asked).toBe(true);
});

test('a message of a newer holder that this agent does not know has no effect', async () => {
  const asked = holder.answers();
  sendJson(far, { kind: 'of_a_later_version', words: 1 });
  sendJson(far, { kind: 'pong' });
  expect(await asked).toBe(true);
});

test('a holder that goes away does not answer', async () => {
  const asked = holder.answers();
  far.destroy();
  expect(await asked).toBe(false);
});
