// The directories of the files that the configuration names: what is missing or read-only is reported with its setting before anything is made.
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { assertDataDirectories, assertDirectories } from '../../control-plane/config-files.ts';
import { type Config, readConfig } from '../../control-plane/config.ts';

let directory: string;
const at = (name: string): string => join(directory, name);
beforeEach(() => void (directory = mkdtempSync(join(tmpdir(), 'svc-'))));
afterEach(() => rmSync(directory, { recursive: true }));

const ON_POSTGRES = { postgres: 'postgres://x/y' };

function configOf(changed: object = {}): Config {
  const own = { admin_socket: at('s'), secret_file: at('secret'), database: { sqlite: at('db') } };
  writeFileSync(at('config.yaml'), JSON.stringify({ ...own, ...changed }));
  return readConfig(at('config.yaml'));
}

test('missing directories are reported with the command that creates them', () => {
  expect(() => assertDirectories(configOf({ database: ON_POSTGRES }))).not.toThrow();
  expect(() => assertDirectories(configOf({ database: { sqlite: '/no/db' } }))).toThrow(
    'there is no directory for database.sqlite: make it with install -d -m 0700 /no',
  );
});

test('a command without a daemon needs no directory of the socket, which the unit makes', () => {
  const config = configOf({ admin_socket: '/no/run/admin.sock' });
  expect(() => assertDirectories(config)).toThrow('admin_socket');
  expect(() => assertDataDirectories(config)).not.toThrow();
});

// The unit makes everything read-only that is not named.
describe.runIf(process.getuid?.() === 0)('a directory that is read-only', () => {
  let fixed: string;
  beforeEach(() => {
    fixed = at('fixed');
    mkdirSync(fixed);
    writeFileSync(join(fixed, 'secret'), 'x');
    execFileSync('mount', ['--bind', '-o', 'ro', fixed, fixed]);
  });
  afterEach(() => void execFileSync('umount', [fixed]));

  test.each<[string, () => object]>([
    ['admin_socket', () => ({ admin_socket: join(fixed, 's') })],
    ['secret_file', () => ({ secret_file: join(fixed, 'new'), blobs_dir: at('blobs') })],
    ['database.sqlite', () => ({ database: { sqlite: join(fixed, 'db') } })],
    ['blobs_dir', () => ({ blobs_dir: join(fixed, 'not/yet/there') })],
  ])('is reported with %s and what the unit needs', (setting, changed) => {
    const message = `this process may not write to ${fixed} (${setting}): give the directory to its user, and name it in ReadWritePaths of its unit`;
    expect(() => assertDirectories(configOf(changed()))).toThrow(message);
  });
  test('may hold a secret that is there, and the folder of blobs that are in S3', () => {
    const store = { endpoint: 'http://x', bucket: 'abc', access_key_file: '/a', secret_key_file: '/b' };
    expect(() => assertDirectories(configOf({ secret_file: join(fixed, 'secret'), blobs_s3: store }))).not.toThrow();
    expect(() => assertDirectories(configOf({ secret_file: join(fixed, 'secret') }))).toThrow('blobs_dir');
  });
});
