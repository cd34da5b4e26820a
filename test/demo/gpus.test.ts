// The demo uses the machine's own GPUs only if driver and container hook are installed.
import { chmodSync, copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { GPU_DIR } from '../kit/engine.ts';
import { findGpus, librariesOf } from './gpus.ts';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'gpus-'));
});
afterEach(() => rmSync(dir, { recursive: true }));

const path = (): string => `${dir}:/usr/bin:/bin`;
const give = (program: string): void => {
  copyFileSync(join(GPU_DIR, program), join(dir, program));
  chmodSync(join(dir, program), 0o755);
};

test('without a driver, without the hook, or without a GPU they are simulated', () => {
  expect(findGpus(path()).description).toBe('8 simulated GPUs');
  give('nvidia-smi');
  expect(findGpus(path()).description).toBe('8 simulated GPUs');
  give('nvidia-container-runtime-hook');
  writeFileSync(join(dir, 'nvidia-smi'), '#!/bin/sh\necho "No devices were found"\nexit 6\n');
  expect(findGpus(path()).description).toBe('8 simulated GPUs');
});

test('with both, they are the machine’s own, and nothing is simulated for them', () => {
  give('nvidia-smi');
  give('nvidia-container-runtime-hook');
  const found = findGpus(path());
  expect(found).toMatchObject({ description: '8 GPUs of this machine', env: {}, nvidiaSmi: join(dir, 'nvidia-smi') });
});

test('a linked program brings its C library and loader along, a script nothing', () => {
  const libraries = Object.keys(librariesOf('/bin/ls'));
  expect(libraries.some((file) => file.endsWith('libc.so.6'))).toBe(true);
  expect(libraries.some((file) => /ld-linux[^/]*$/.test(file))).toBe(true);
  give('nvidia-smi');
  expect(librariesOf(join(dir, 'nvidia-smi'))).toEqual({});
});
