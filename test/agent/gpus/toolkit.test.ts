// The version of the container toolkit, as its programs print it.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { parseToolkitVersion, readToolkitVersion } from '../../../agent/gpus/nvidia-smi.ts';

const dir = mkdtempSync(join(tmpdir(), 'toolkit-'));
afterAll(() => rmSync(dir, { recursive: true }));

test.each([
  ['NVIDIA Container Toolkit CLI version 1.17.8\ncommit: f202b80a9b9d0db00d9b1d73c0128c8962c55f4d\n', '1.17.8'],
  ['cli-version: 1.16.1\nlib-version: 1.16.1\nbuild date: 2024-07-23T14:57+00:00\n', '1.16.1'],
  ['NVIDIA Container Toolkit CLI version 1.18.0-rc.2\n', '1.18.0-rc.2'],
  ['no version here', ''],
])('of %j', (text, version) => {
  expect(parseToolkitVersion(text)).toBe(version);
});

test('the toolkit version is that of the first program that reports one', async () => {
  const program = (name: string, script: string): string => {
    writeFileSync(join(dir, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
    return join(dir, name);
  };
  const fails = program('fails', 'echo version 1.0.0; exit 1');
  const says = program('says', 'echo "cli-version: 1.17.9"');
  expect(await readToolkitVersion([join(dir, 'none'), fails, says])).toBe('1.17.9');
  expect(await readToolkitVersion([join(dir, 'none')])).toBe('');
});
