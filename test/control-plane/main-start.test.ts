// A control plane that cannot start, and commands that find no daemon: the message tells the operator why, and nothing that is not needed is made.
import { once } from 'node:events';
import {
  chownSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { readConfig } from '../../control-plane/config.ts';
import { openHouse } from '../../control-plane/house.ts';
import { createLog } from '../../shared/log.ts';
import { capture } from '../kit/capture.ts';

const LAUNCHER = resolve(import.meta.dirname, '../../control-plane/svc-control-plane.js');

const other = createServer();
let takenPort: number;
beforeAll(async () => {
  await once(other.listen(0, '127.0.0.1'), 'listening');
  takenPort = (other.address() as AddressInfo).port;
});
afterAll(() => void other.close());

const CASES: [string, () => object, RegExp, string[]][] = [
  [
    'a port that is taken',
    () => ({ listen: { host: '127.0.0.1', port: takenPort } }),
    /another process listens on 127\.0\.0\.1 port \d+: end it/,
    // The address is bound last. A process that fails there has created everything else.
    ['db', 'db.ballast', 'db.lock', 'secret'],
  ],
  [
    'a certificate that is not there',
    () => ({ base_url: 'https://x/v1', tls: { certificate_file: '/no/cert', key_file: '/no/key' } }),
    /tls\.certificate_file names \/no\/cert, which does not exist/,
    [],
  ],
  [
    'a directory that is not there',
    () => ({ admin_socket: '/no/run/admin.sock' }),
    /no directory for admin_socket: make it with install -d -m 0700 \/no\/run/,
    [],
  ],
  [
    'a PostgreSQL that does not answer',
    () => ({ database: { postgres: 'postgres://svc:hidden-word@127.0.0.1:1/svc' } }),
    /the database that database\.postgres names cannot be used: connect ECONNREFUSED 127\.0\.0\.1:1/,
    [],
  ],
];
test.each(CASES)(
  'a process that finds %s says so before it creates what it does not need for that',
  async (_what, changed, message, left) => {
    const dir = mkdtempSync(join(tmpdir(), 'main-start-'));
    onTestFinished(() => rmSync(dir, { recursive: true }));
    const own = join(dir, 'own');
    mkdirSync(own);
    const config = {
      listen: { host: '127.0.0.1', port: 0 },
      database: { sqlite: join(own, 'db') },
      admin_socket: join(own, 'admin.sock'),
      secret_file: join(own, 'secret'),
      ...changed(),
    };
    writeFileSync(join(dir, 'config.yaml'), JSON.stringify(config));
    const { code, stderr } = await capture([process.execPath, LAUNCHER, 'serve', '--config', join(dir, 'config.yaml')]);
    expect(stderr).toMatch(message);
    expect(stderr).not.toContain('hidden-word');
    expect(code).toBe(1);
    expect(readdirSync(own)).toEqual(left);
  },
);

test('a daemon that does not find the secret of its database makes none, and opens it once the file is back', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'main-start-'));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  const disk = join(dir, 'disk');
  mkdirSync(disk);
  const path = join(dir, 'config.yaml');
  const secret = join(disk, 'secret');
  const own = { admin_socket: join(dir, 'admin.sock'), secret_file: secret, blobs_dir: join(dir, 'blobs') };
  writeFileSync(path, JSON.stringify({ database: { sqlite: join(dir, 'db') }, ...own }));
  const startOnce = async (): Promise<string> => {
    const house = await openHouse(readConfig(path), createLog('test', 'silent'));
    await house.close();
    return readFileSync(secret, 'utf8');
  };
  const first = await startOnce();
  renameSync(disk, join(dir, 'unmounted'));
  mkdirSync(disk);
  const { code, stderr } = await capture([process.execPath, LAUNCHER, 'serve', '--config', path]);
  expect([code, stderr]).toEqual([1, expect.stringContaining(`secret_file names ${secret}, which does not exist`)]);
  expect(stderr).toContain('mount the disk that has it');
  expect(readdirSync(disk)).toEqual([]);
  rmSync(disk, { recursive: true });
  renameSync(join(dir, 'unmounted'), disk);
  expect(await startOnce()).toBe(first);
});

describe('a command that finds no daemon', () => {
  let dir: string;
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), 'main-start-'));
    onTestFinished(() => rmSync(dir, { recursive: true }));
  });
  /** On files in `data`, beside which there is no socket. */
  const command = async (data: string, ...argv: string[]): Promise<[number | null, string]> => {
    const file = join(dir, 'config.yaml');
    const database = { sqlite: join(data, 'db') };
    writeFileSync(
      file,
      JSON.stringify({ database, admin_socket: '/no/admin.sock', secret_file: join(data, 'secret') }),
    );
    const { code, stderr } = await capture([process.execPath, LAUNCHER, ...argv, '--config', file]);
    return [code, stderr];
  };

  test.each([
    ['admin', 'org', 'list'],
    ['restore', '/backup.db'],
  ])('names a directory that is missing (%s)', async (...argv) => {
    const missing = join(dir, 'missing');
    expect(await command(missing, ...argv)).toEqual([
      1,
      `there is no directory for secret_file, database.sqlite: make it with install -d -m 0700 ${missing}\n`,
    ]);
  });
  test('names the setting of a database that is missing, if it is to be backed up', async () => {
    expect(await command(dir, 'admin', 'backup', join(dir, 'copy'))).toEqual([
      1,
      `database.sqlite names ${join(dir, 'db')}, where no database is\n`,
    ]);
  });

  describe.runIf(process.getuid?.() === 0)('and is run by root', () => {
    const NOBODY = 65_534;
    let data: string;
    beforeEach(() => {
      data = join(dir, 'data');
      mkdirSync(data);
      chownSync(data, NOBODY, NOBODY);
    });
    test('makes no files for a daemon that has never started, which could not read them', async () => {
      expect(await command(data, 'admin', 'org', 'list')).toEqual([
        1,
        expect.stringContaining('start the daemon first'),
      ]);
      expect(readdirSync(data)).toEqual([]);
    });
    test('makes no database beside a secret that was put back for a restore', async () => {
      writeFileSync(join(data, 'secret'), `${'0'.repeat(64)}\n`);
      expect(await command(data, 'admin', 'org', 'list')).toEqual([1, expect.stringContaining('or restore a backup')]);
      expect(readdirSync(data)).toEqual(['secret']);
    });
  });
});
