// The launcher of `svc` keeps compiled code for the user who runs it, and works without it.
import { chmodSync, chownSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { VERSION } from '../../../shared/version.ts';

const LAUNCHER = resolve(import.meta.dirname, '../../../control-plane/svc.js');
const NOBODY = 65_534;
const isRoot = process.getuid?.() === 0;
/** An ordinary user may read this checkout. */
const isReadable = !isRoot || spawnSync('test', ['-r', LAUNCHER], { uid: NOBODY, gid: NOBODY }).status === 0;

let home: string;
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'svc-home-'));
  if (isRoot) chownSync(home, NOBODY, NOBODY);
});
afterEach(() => rmSync(home, { recursive: true }));

/** Runs `svc --version` as an ordinary user, or as the user of this test. */
function start(who: 'ordinary' | 'self', env: Record<string, string> = {}): void {
  const user = who === 'ordinary' && isRoot ? { uid: NOBODY, gid: NOBODY } : {};
  const ran = spawnSync(process.execPath, [LAUNCHER, '--version'], { env: { HOME: home, ...env }, ...user });
  expect([ran.status, String(ran.stdout), String(ran.stderr)]).toEqual([0, `${VERSION}\n`, '']);
}

test.runIf(isReadable)(
  'the second start of an ordinary user finds compiled code, in the cache folder that the user has named',
  () => {
    const cache = join(home, 'cache');
    start('ordinary', { XDG_CACHE_HOME: cache });
    expect(readdirSync(join(cache, 'svc', 'compiled'))).toHaveLength(1);
    start('ordinary');
    expect(readdirSync(join(home, '.cache', 'svc', 'compiled'))).toHaveLength(1);
    start('ordinary');
  },
);

test.runIf(isReadable)('a home that cannot be written costs nothing but time', () => {
  mkdirSync(join(home, '.cache'));
  chmodSync(join(home, '.cache'), 0o555);
  start('ordinary');
  expect(readdirSync(join(home, '.cache'))).toEqual([]);
});

test.runIf(isRoot)('root trusts no compiled code in a home', () => {
  start('self');
  expect(existsSync(join(home, '.cache'))).toBe(false);
});
