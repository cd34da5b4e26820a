// If the demo runs in a container, it gets the checkout and its arguments, and its exit code is returned.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { runInContainer } from './elsewhere.ts';

const dir = mkdtempSync(join(tmpdir(), 'elsewhere-'));
afterAll(() => rmSync(dir, { recursive: true }));

test('the container gets checkout and arguments, and its exit code is the demo’s', async () => {
  const [docker, seen] = [join(dir, 'docker'), join(dir, 'seen')];
  writeFileSync(docker, `#!/bin/sh\nprintf '%s\\n' "$@" > ${seen}\nexit 7\n`, { mode: 0o755 });
  expect(await runInContainer(['--once'], docker)).toBe(7);
  const args = readFileSync(seen, 'utf8').trimEnd().split('\n');
  expect(args.slice(0, 3)).toEqual(['run', '--rm', '--name']);
  expect(args).toContain(`${resolve(import.meta.dirname, '../..')}:/checkout:ro`);
  expect(args.slice(-2)).toEqual(['demo', '--once']);
});

test('without the docker command there is an error', async () => {
  await expect(runInContainer([], join(dir, 'no-docker'))).rejects.toThrow('ENOENT');
});
