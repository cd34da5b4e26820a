// A control plane that cannot start: its message tells the operator why, and it leaves nothing behind that it did not need.
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
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
    ['secret'],
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
