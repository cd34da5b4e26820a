// A holder that is started while the disk of its host is full: its rental must stay reachable, whoever has filled the disk.
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { hasListener } from '../../../agent/host/status-socket.ts';
import { workloadPaths } from '../../../agent/wire/workload-folder.ts';
import { type Program, startProgram } from '../../kit/processes.ts';

const MAIN = join(import.meta.dirname, '../../../agent/holder/main.ts');
let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holder-full-'));
  mkdirSync(join(folder, 'run'));
});
afterEach(() => rmSync(folder, { recursive: true }));

async function startHolder(): Promise<Program> {
  const code = `import { runHolder } from ${JSON.stringify(MAIN)}; await runHolder(${JSON.stringify(folder)}, '/no-page');`;
  const holder = startProgram({ command: process.execPath, args: ['--input-type=module', '--eval', code] });
  await holder.waitForOutput(/the holder serves/);
  return holder;
}

test('a holder that cannot store its process id serves its rental all the same', async () => {
  const first = await startHolder();
  await first.stop('SIGKILL');
  const { holderPid, holderSocket } = workloadPaths(folder);
  rmSync(holderPid);
  symlinkSync('/dev/full', holderPid);
  const second = await startHolder();
  expect(await hasListener(holderSocket)).toBe(true);
  await second.stop('SIGKILL');
});
