// A holder outlives the supervisor that has started it: the next one may be newer, and may send what this holder does not know.
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { serveSupervisor } from '../../../agent/holder/supervisor.ts';
import { eachFrame, FRAME, sendFrame, sendJson } from '../../../agent/wire/frames.ts';
import { createLog } from '../../../shared/log.ts';

const OPEN = { kind: 'open', stream_id: 's', url: 'wss://host/s', ca: null, target: { kind: 'terminal' } };
let dir: string;
let server: Server;
/** The supervisor's end. */
let near: Socket;
let heard: unknown[];
let opened: string[];
let served: Promise<void>;

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'supervisor-'));
  server = createServer().listen(join(dir, 'socket'));
  await once(server, 'listening');
  near = connect(join(dir, 'socket'));
  const [far] = (await once(server, 'connection')) as [Socket];
  [heard, opened] = [[], []];
  served = serveSupervisor(far, {
    log: createLog('test', 'silent'),
    exit: () => undefined,
    open: (word) => void opened.push(word.stream_id),
  });
  void eachFrame(near, 65_536, ({ payload }) => void heard.push(JSON.parse(payload.toString())));
});
afterEach(() => {
  near.destroy();
  server.close();
  rmSync(dir, { recursive: true });
});

test('a message of a newer supervisor has no effect, and the connection stays', async () => {
  sendJson(near, { kind: 'of_a_later_version', words: 1 });
  sendJson(near, { kind: 'ping' });
  sendJson(near, OPEN);
  await expect.poll(() => ({ opened, heard })).toEqual({ opened: ['s'], heard: [{ kind: 'pong' }] });
});

test('a stream to a target of a later version is refused with the reason', async () => {
  sendJson(near, { ...OPEN, target: { kind: 'of_a_later_version' } });
  sendJson(near, { kind: 'ping' });
  await expect.poll(() => heard).toMatchObject([{ kind: 'refused', stream_id: 's' }, { kind: 'pong' }]);
  expect(JSON.stringify(heard)).toContain('the holder of this rental is older than the request');
});

test('a message that no version sends ends the connection', async () => {
  sendFrame(near, FRAME.json, Buffer.from('{"words":1}'));
  await served;
  await expect.poll(() => near.destroyed).toBe(true);
});
