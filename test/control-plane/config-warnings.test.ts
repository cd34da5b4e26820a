// What a start warns of: files with secrets that others may read, and links that point everybody to their own machine.
import { chmodSync, chownSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { unsharedFiles, warningsOf } from '../../control-plane/config-warnings.ts';
import { readConfig } from '../../control-plane/config.ts';

let directory: string;
let file: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'warnings-'));
  file = join(directory, 'config.yaml');
});
afterEach(() => rmSync(directory, { recursive: true }));

const at = (name: string): string => join(directory, name);

function warnings(settings: object): { setting: string; what: string }[] {
  writeFileSync(file, JSON.stringify({ secret_file: at('secret'), ...settings }));
  return warningsOf(readConfig(file), file);
}

function write(name: string, mode: number): string {
  writeFileSync(at(name), 'a secret');
  chmodSync(at(name), mode);
  return at(name);
}

describe('a file that holds a secret', () => {
  test.each([0o600, 0o400, 0o700])('and that only its owner may use is right (mode %o)', (mode) => {
    write('secret', mode);
    expect(warnings({})).toEqual([]);
  });
  test.each([
    [0o644, '0644'],
    [0o640, '0640'],
    [0o602, '0602'],
  ])('and that others may use is named with what to do (mode %o)', (mode, shown) => {
    const path = write('secret', mode);
    expect(warnings({})).toEqual([
      {
        setting: 'secret_file',
        what: `secret_file: other users of this machine may read ${path}, which holds a secret (mode ${shown}): chmod 600 ${path}`,
      },
    ]);
  });
  test('is found behind a link, as container platforms mount it', () => {
    symlinkSync(write('mounted', 0o444), at('secret'));
    expect(warnings({})).toMatchObject([{ setting: 'secret_file', what: expect.stringContaining('(mode 0444)') }]);
  });
  test('that is not there yet is no fault', () => {
    expect(warnings({})).toEqual([]);
  });
  test.runIf(process.getuid?.() === 0)('of another user is as that user wants it', () => {
    chownSync(write('secret', 0o644), 65_534, 65_534);
    expect(warnings({})).toEqual([]);
  });
  test('may be any of those that the configuration names', () => {
    const key = write('key', 0o644);
    const pair = { certificate_file: key, key_file: key };
    const found = warnings({
      base_url: 'https://api.example.com/v1',
      tls: pair,
      apps: { domain: 'apps.example.net', listen: { host: '127.0.0.1', port: 8443 }, tls: pair },
      smtp: { host: 'mail.example.com', from: 'svc@example.com', username: 'svc', password_file: key },
      oidc: { issuer: 'https://login.example.com', client_id: 'svc', client_secret_file: key },
      blobs_s3: { endpoint: 'https://s3.example.com', bucket: 'files', access_key_file: key, secret_key_file: key },
    });
    expect(found.map(({ setting }) => setting)).toEqual([
      'smtp.password_file',
      'oidc.client_secret_file',
      'blobs_s3.secret_key_file',
      'tls.key_file',
      'apps.tls.key_file',
    ]);
  });
  test.each([
    ['postgres://svc:word@db.internal/svc', ['database.postgres']],
    ['postgres://svc@db.internal/svc?password=word', ['database.postgres']],
    ['postgres://svc@db.internal/svc', []],
  ])('is the configuration itself, if it has the password of the database (%s)', (postgres, settings) => {
    const found = warnings({ database: { postgres } });
    expect(found.map(({ setting }) => setting)).toEqual(settings);
    expect(JSON.stringify(found)).not.toContain('word@');
    chmodSync(file, 0o600);
    expect(warnings({ database: { postgres } })).toEqual([]);
  });
});

test.each([
  ['0.0.0.0', 'http://127.0.0.1:8080/v1', 1],
  ['10.0.0.7', 'http://[::1]:8080/v1', 1],
  ['127.0.0.1', 'http://127.0.0.1:8080/v1', 0],
  ['::1', 'http://127.0.0.1:8080/v1', 0],
  ['localhost', 'http://127.0.0.1:8080/v1', 0],
  ['0.0.0.0', 'https://api.example.com/v1', 0],
  // The container of the package is published on one machine alone.
  ['0.0.0.0', 'http://localhost:8080/v1', 0],
])('an API that listens on %s with links to %s is warned of %d times', (host, url, count) => {
  const found = warnings({ listen: { host, port: 8080 }, base_url: url });
  expect(found).toHaveLength(count);
  expect(found.filter(({ what }) => !what.includes('links in mails'))).toEqual([]);
});

test('a second control plane is warned of files that stay on one disk, and not with a store of both', () => {
  const key = write('key', 0o600);
  const config = (more: object) => {
    writeFileSync(file, JSON.stringify({ database: { postgres: 'postgres://svc@db.internal/svc' }, ...more }));
    return readConfig(file);
  };
  const store = { endpoint: 'https://s3.example.com', bucket: 'files', access_key_file: key, secret_key_file: key };
  expect(unsharedFiles(config({}))).toMatchObject({ setting: 'blobs_s3', what: expect.stringContaining('S3 store') });
  expect(unsharedFiles(config({ blobs_s3: store }))).toBeUndefined();
});
