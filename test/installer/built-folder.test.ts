// A folder that a build fills: what a killed build has left goes, and what a running one has made so far stays.
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { fillFolder, UNFINISHED } from '../../installer/built-folder.ts';

/** Linux gives no process a higher number. */
const PID_MAX = 4_194_304;

test('a build removes what a killed build has left, and leaves a running build alone', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'built-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const running = `${UNFINISHED}${process.ppid}`;
  for (const name of [`${UNFINISHED}${PID_MAX + 1}`, running]) {
    mkdirSync(join(folder, name));
    writeFileSync(join(folder, name, 'half.js'), '');
  }
  await fillFolder(folder, async (fresh) => {
    mkdirSync(fresh);
    writeFileSync(join(fresh, 'whole.js'), '');
  });
  expect(readdirSync(folder).toSorted()).toEqual([running, 'whole.js']);
});

test('a build that fails leaves the folder as it was', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'built-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, 'before.js'), '');
  const build = fillFolder(folder, async (fresh) => {
    mkdirSync(fresh);
    writeFileSync(join(fresh, 'half.js'), '');
    throw new Error('no compiler');
  });
  await expect(build).rejects.toThrow('no compiler');
  expect(readdirSync(folder)).toEqual(['before.js']);
});
