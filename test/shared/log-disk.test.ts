// Logs of the daemons on a full disk: lines are lost, and the daemon goes on.
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, expect, test } from 'vitest';
import { createLog, lossyDestination } from '../../shared/log.ts';

const dir = mkdtempSync(join(tmpdir(), 'log-'));
afterAll(() => rmSync(dir, { recursive: true }));

test('a daemon whose standard output is a full disk goes on, and ends on its signal', async () => {
  const log = pathToFileURL(join(import.meta.dirname, '../../shared/log.ts')).href;
  const program = `
    import { createLog } from '${log}';
    const log = createLog('daemon', 'info');
    for (let line = 0; line < 1000; line += 1) log.info({ line }, 'x'.repeat(200));
    process.stderr.write('works on');
    process.exit(7);
  `;
  const full = openSync('/dev/full', 'w');
  const daemon = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: ['ignore', full, 'pipe'] });
  closeSync(full);
  let said = '';
  daemon.stderr?.on('data', (chunk: Buffer) => (said += chunk.toString()));
  const hangs = setTimeout(() => daemon.kill('SIGKILL'), 15_000);
  const [code] = (await once(daemon, 'close')) as [number | null];
  clearTimeout(hangs);
  expect({ code, said }).toEqual({ code: 7, said: 'works on' });
});

test('lines are on the disk at once, in their order', () => {
  const file = join(dir, 'log');
  const fd = openSync(file, 'a');
  const log = createLog('daemon', 'info', lossyDestination(fd));
  log.info('one');
  log.debug('none');
  log.info({ token: 'secret' }, 'two');
  const lines = readFileSync(file, 'utf8').trimEnd().split('\n');
  closeSync(fd);
  expect(lines.map((line) => (JSON.parse(line) as { msg: string }).msg)).toEqual(['one', 'two']);
  expect(lines.join('')).not.toContain('secret');
});
