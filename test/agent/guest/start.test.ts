// The real guest program, started as in a container: it connects to its holder before any code of the tenant runs.
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { eachFrame } from '../../../agent/wire/frames.ts';
import { eventually, startProgram, type Program } from '../../kit/processes.ts';

const GUEST = join(import.meta.dirname, '../../../agent/guest/main.ts');
let run: string;
let guest: Program;
beforeEach(() => {
  run = mkdtempSync(join(tmpdir(), 'run-'));
  const argv = ['/bin/touch', join(run, 'tenant-runs')];
  writeFileSync(join(run, 'launch.json'), JSON.stringify({ argv, env: {}, stop_signal: '', gpu_uuids: [] }));
  guest = startProgram({ command: process.execPath, args: [GUEST, run], env: { NODE_DEBUG: 'net' } });
});
afterEach(async () => {
  await guest.stop('SIGKILL');
  rmSync(run, { recursive: true });
});

test('no code of the tenant runs before the guest has connected to its holder', async () => {
  const ran = (): boolean => existsSync(join(run, 'tenant-runs'));
  const server = createServer();
  // It has found nobody to speak to, again and again.
  await guest.waitForOutput(/(pipe true.*){3}/s);
  expect(ran()).toBe(false);
  server.listen(join(run, 'guest.sock'));
  const [socket] = (await once(server, 'connection')) as [Socket];
  const words: unknown[] = [];
  void eachFrame(socket, 1024, ({ payload }) => void words.push(JSON.parse(payload.toString())));
  await eventually('the main process', 10_000, async () => ran() || undefined);
  await eventually('its first word', 10_000, async () => words.length > 0 || undefined);
  expect(words[0]).toEqual({ kind: 'control' });
  socket.destroy();
  server.close();
});
