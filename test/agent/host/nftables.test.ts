// Installing the table with a script in place of nft: the calls, and how the answers are judged.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { assertNftables, openNftables } from '../../../agent/host/nftables.ts';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'nft-'));
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(dir, { recursive: true });
});

const table = (): string => readFileSync(join(dir, 'table'), 'utf8');

function play(script: string): void {
  writeFileSync(join(dir, 'nft'), `#!/bin/sh\ncd ${dir}\n${script}\n`, { mode: 0o755 });
  vi.stubEnv('PATH', `${dir}:${process.env['PATH']}`);
}

const KERNEL =
  'case $1 in -f) cat > table ;; --stateless) cat table ;; *) echo "counter refused { packets 17 bytes 900 }" ;; esac';

test('rules are installed once, again if they differ, and again if another program has changed the table', async () => {
  play(KERNEL);
  const nftables = openNftables();
  expect(await nftables.hold('one')).toBe(true);
  expect(await nftables.hold('one')).toBe(false);
  expect(await nftables.hold('two')).toBe(true);
  expect(table()).toBe('two');
  writeFileSync(join(dir, 'table'), 'weaker');
  expect(await nftables.hold('two')).toBe(true);
  rmSync(join(dir, 'table'));
  expect(await nftables.hold('two')).toBe(true);
  expect(table()).toBe('two');
  expect(await nftables.hold('two')).toBe(false);
});

test('the table of an earlier agent is installed again, because its rules are unknown', async () => {
  play(KERNEL);
  writeFileSync(join(dir, 'table'), 'one');
  expect(await openNftables().hold('one')).toBe(true);
});

test('a change between the installation and its listing does not count as ours; a change after each installation is an error', async () => {
  play(KERNEL.replace('cat table', 'if rm meddle 2>/dev/null; then echo weaker > table; fi; cat table'));
  writeFileSync(join(dir, 'meddle'), '');
  const nftables = openNftables();
  expect(await nftables.hold('one')).toBe(true);
  expect(table()).toBe('one');
  writeFileSync(join(dir, 'table'), 'weaker\n');
  expect(await nftables.hold('one')).toBe(true);
  expect(table()).toBe('one');
  play(KERNEL.replace('cat table', 'echo x >> count; cat table count'));
  await expect(openNftables().hold('one')).rejects.toThrow('another program changes the table inet svc_fence');
});

test('a table that nft does not list does not count as installed', async () => {
  play('case $1 in -f) ;; *) echo "Error: No such file or directory" >&2; exit 1 ;; esac');
  await expect(openNftables().hold('one')).rejects.toThrow('No such file or directory');
});

test('packets are counted', async () => {
  play(KERNEL);
  expect(await openNftables().refused()).toBe(17);
});

test('the error of a failing nft is quoted; a missing nft is reported with the name of its package', async () => {
  play('echo "Error: Could not process rule: Operation not permitted" >&2; exit 1');
  const quoted = /^nft .* failed: Error: Could not process rule: Operation not permitted$/;
  await expect(openNftables().hold('one')).rejects.toThrow(quoted);
  await expect(openNftables().refused()).rejects.toThrow(quoted);
  await expect(assertNftables()).rejects.toThrow(quoted);
  vi.stubEnv('PATH', '/nowhere');
  const missing = 'the program nft is missing: install the package nftables';
  await expect(openNftables().hold('one')).rejects.toThrow(missing);
  await expect(assertNftables()).rejects.toThrow(missing);
});
