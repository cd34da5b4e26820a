// The build of the console into a folder that a control plane reads at the same time.
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { openConsole } from '../../control-plane/console/console.ts';
import { buildConsole } from '../../installer/console.ts';

const namesIn = (folder: string): Set<string> => new Set(readdirSync(folder, { recursive: true, encoding: 'utf8' }));

test('a control plane that starts during a build finds every file, and files of older builds are gone afterwards', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'console-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  await buildConsole(folder);
  const files = namesIn(folder);
  writeFileSync(join(folder, 'assets', 'machine-of-before.js'), '');
  let isBuilt = false;
  const build = buildConsole(folder).finally(() => (isBuilt = true));
  let starts = 0;
  while (!isBuilt) {
    expect(openConsole(folder).page).toBeDefined();
    starts += 1;
    await sleep(1);
  }
  await build;
  expect(starts).toBeGreaterThan(2);
  expect(namesIn(folder)).toEqual(files);
});
