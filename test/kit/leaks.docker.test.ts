// The leak check sees what a run leaves behind, with and without its mark, and ends it.
import { existsSync, mkdtempSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { cleanUp, leftoverProcesses, listeningPorts, RUN_MARKER, type Run } from './leaks.ts';
import { startProgram } from './processes.ts';

const IDLE = 'console.log("up"); setInterval(() => {}, 1000)';

function newRun(): Run {
  const dir = mkdtempSync(join(tmpdir(), 'leaks-'));
  return { id: dir, dir };
}

test('a marked process, its unmarked child, and one that only names the folder are found and ended', async () => {
  const run = newRun();
  const parent = `require("node:child_process").spawn(process.execPath, ["-e", ${JSON.stringify(IDLE)}], { env: {} }); ${IDLE}`;
  const marked = startProgram({ command: process.execPath, args: ['-e', parent], env: { [RUN_MARKER]: run.id } });
  const named = startProgram({ command: process.execPath, args: ['-e', IDLE, join(run.dir, 'config')] });
  await Promise.all([marked.waitForOutput(/up/), named.waitForOutput(/up/)]);
  writeFileSync(join(run.dir, 'state'), 'x');

  const pids = leftoverProcesses(run).map(({ pid }) => pid);
  expect(pids).toHaveLength(3);
  expect(pids).toEqual(expect.arrayContaining([marked.pid, named.pid]));
  const lines = await cleanUp(run);
  expect(lines).toHaveLength(3);
  expect(lines[0]).toMatch(/^process \d+: /);
  expect(existsSync(run.dir)).toBe(false);
  await Promise.all([marked.exited, named.exited]);
});

test('a run that left nothing has nothing to report', async () => {
  expect(await cleanUp(newRun())).toEqual([]);
});

test('an open port is seen', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const address = server.address();
  expect(listeningPorts()).toContain(typeof address === 'object' ? address?.port : 0);
  server.close();
});
