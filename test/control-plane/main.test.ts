// The control plane as a process: the first signal lets work in progress finish, the second one does not wait.
import { once } from 'node:events';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import Database from 'better-sqlite3';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { SERVE_ENVIRONMENT, SERVE_FLAGS } from '../../control-plane/base/systemd/v8.ts';
import { capture } from '../kit/capture.ts';
import { openFakeUpstream } from '../kit/fake-upstream.ts';
import { modelsFile } from '../kit/models.ts';
import { hasSystemd, type NotifySocket, openNotifySocket } from '../kit/notify-socket.ts';
import { freePort } from '../kit/ports.ts';
import { eventually, type Program, startProgram } from '../kit/processes.ts';

const LAUNCHER = resolve(import.meta.dirname, '../../control-plane/svc-control-plane.js');

let dir: string;
let port: number;
let appsPort: number;
let daemon: Program;
let socket: Socket;
let systemd: NotifySocket;

async function start(): Promise<void> {
  dir = mkdtempSync(join(tmpdir(), 'main-'));
  [port, appsPort] = [await freePort(), await freePort()];
  const config = {
    listen: { host: '127.0.0.1', port },
    database: { sqlite: join(dir, 'db') },
    admin_socket: join(dir, 'admin.sock'),
    secret_file: join(dir, 'secret'),
    models_file: join(dir, 'models.yaml'),
    ssh: { host: '127.0.0.1', port_range: { first: 20_000, last: 20_000 } },
    apps: { domain: 'apps.test', listen: { host: '127.0.0.1', port: appsPort } },
    drain_seconds: 3_600,
  };
  writeFileSync(join(dir, 'config.yaml'), JSON.stringify(config));
  writeFileSync(join(dir, 'models.yaml'), 'models: []\n');
  const args = [LAUNCHER, 'serve', '--config', join(dir, 'config.yaml')];
  systemd = await openNotifySocket();
  const env = { NOTIFY_SOCKET: systemd.path, WATCHDOG_USEC: '300000' };
  daemon = startProgram({ command: process.execPath, args, env });
  await daemon.waitForOutput(/the control plane serves/, 30_000);
  // A request whose body never arrives counts as work in progress.
  socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
  socket.on('error', () => undefined);
  socket.write(
    'POST /v1/instances HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{',
  );
}

async function end(): Promise<void> {
  socket.destroy();
  await daemon.stop('SIGKILL');
  await systemd.close();
  rmSync(dir, { recursive: true });
}

/** An API key of a new organisation with ten dollars. */
async function newKey(scope: string): Promise<string> {
  const operator = async (...argv: string[]): Promise<Record<string, string>> => {
    const line = [process.execPath, LAUNCHER, 'admin', ...argv, '--json', '--config', join(dir, 'config.yaml')];
    return JSON.parse((await capture(line)).stdout.toString()) as Record<string, string>;
  };
  const { id: org = '' } = await operator('org', 'create', '--name', 'customer');
  await operator('balance', 'add', '--org', org, '--usd', '10', '--reference', 'first');
  const { key = '' } = await operator('key', 'create', '--org', org, '--name', 'first', '--scopes', scope);
  return key;
}

describe('while it runs', () => {
  beforeAll(start);
  afterAll(end);

  test.skipIf(process.platform !== 'linux')(
    'the started process serves with the Node flags and the environment of the daemon',
    () => {
      const [, ...args] = readFileSync(`/proc/${daemon.pid}/cmdline`, 'utf8').split('\0');
      expect(args.slice(0, SERVE_FLAGS.length + 2)).toEqual([...SERVE_FLAGS, LAUNCHER, 'serve']);
      const environment = readFileSync(`/proc/${daemon.pid}/environ`, 'utf8').split('\0');
      expect(environment).toEqual(
        expect.arrayContaining(Object.entries(SERVE_ENVIRONMENT).map((each) => each.join('='))),
      );
    },
  );

  test("SIGHUP and the operator's command read the files again; a mistake changes nothing and names its line", async () => {
    const reload = () =>
      capture([process.execPath, LAUNCHER, 'admin', 'reload', '--json', '--config', join(dir, 'config.yaml')]);
    writeFileSync(join(dir, 'models.yaml'), modelsFile('http://127.0.0.1:9/v1'));
    process.kill(daemon.pid, 'SIGHUP');
    await daemon.waitForOutput(/"models":8[^\n]*were read again/);
    writeFileSync(join(dir, 'models.yaml'), 'models:\n  - id: nobody\n');
    process.kill(daemon.pid, 'SIGHUP');
    await daemon.waitForOutput(/models\.yaml:2: models\[0\]\.id[^\n]*nothing was changed/);
    const refused = await reload();
    expect([refused.code, refused.stderr]).toEqual([
      1,
      expect.stringMatching(/Nothing was changed\. .*models\.yaml:2:/),
    ]);
    writeFileSync(join(dir, 'models.yaml'), 'models: []\n');
    expect(JSON.parse((await reload()).stdout.toString())).toMatchObject({
      models: 0,
      sign_up: 'invite',
      open_launches_per_org: expect.any(Number),
      waits_for_restart: '',
    });
  });

  test('a reload names the changes that wait for a restart, and not those that it applies', async () => {
    const path = join(dir, 'config.yaml');
    const config = readFileSync(path, 'utf8');
    const changed =
      '"launch_hold_minutes": 3, "videos": { "file_mib_max": 5, "open_per_org": 7 }, "open_launches_per_org": 9';
    writeFileSync(path, config.replace(/\}$/, `,\n${changed} }`));
    const { stdout } = await capture([process.execPath, LAUNCHER, 'admin', 'reload', '--json', '--config', path]);
    writeFileSync(path, config);
    expect(JSON.parse(stdout.toString())).toMatchObject({
      open_launches_per_org: 9,
      open_videos_per_org: 7,
      waits_for_restart: 'launch_hold_minutes, videos.file_mib_max',
    });
  });

  test('an output that is left by its reader is no failure, and a full disk is one', () => {
    const loops = `"${process.execPath}" "${LAUNCHER}" admin loops --config "${join(dir, 'config.yaml')}"`;
    const left = spawnSync('bash', ['-c', `${loops} | true; echo "\${PIPESTATUS[0]}"`]);
    expect([String(left.stdout), String(left.stderr)]).toEqual(['0\n', '']);
    const full = spawnSync('bash', ['-c', `${loops} > /dev/full; echo "$?"`]);
    expect([String(full.stdout), String(full.stderr)]).toEqual([
      '1\n',
      expect.stringMatching(/^the output cannot be written: .*ENOSPC/),
    ]);
  });

  test('a reload without a running control plane fails, because it would change nothing', async () => {
    const file = join(dir, 'other.yaml');
    const config = readFileSync(join(dir, 'config.yaml'), 'utf8').replace('admin.sock', 'other.sock');
    writeFileSync(file, config.replace(join(dir, 'db'), join(dir, 'other-db')));
    const refused = await capture([process.execPath, LAUNCHER, 'admin', 'reload', '--config', file]);
    expect([refused.code, String(refused.stdout), refused.stderr]).toEqual([
      1,
      '',
      'no control plane listens at admin_socket, so nothing was reloaded. A secondary is reloaded with "systemctl reload svc-control-plane"\n',
    ]);
    expect(readdirSync(dir).filter((name) => name.startsWith('other-'))).toEqual([]);
  });

  test('a command without a running control plane says so, and answers from the database', async () => {
    const file = join(dir, 'alone.yaml');
    const config = readFileSync(join(dir, 'config.yaml'), 'utf8').replace('admin.sock', 'alone.sock');
    writeFileSync(file, config.replace(join(dir, 'db'), join(dir, 'alone-db')));
    const listed = await capture([process.execPath, LAUNCHER, 'admin', 'org', 'list', '--json', '--config', file]);
    expect([listed.code, listed.stderr]).toEqual([
      0,
      'no control plane listens at admin_socket: this command works on the database itself\n',
    ]);
  });

  test('rates are reloaded too: a caller without tokens waits at the new rate, and a mistake in one rate changes none', async () => {
    const path = join(dir, 'config.yaml');
    const before = readFileSync(path, 'utf8');
    const config = before.replace(/\}$/, '');
    const reload = async () => {
      const { code, stdout, stderr } = await capture([
        process.execPath,
        LAUNCHER,
        'admin',
        'reload',
        '--json',
        '--config',
        path,
      ]);
      return code === 0 ? (JSON.parse(stdout.toString()) as object) : stderr;
    };
    const ask = async (): Promise<[number, string | null]> => {
      const { status, headers } = await fetch(`http://127.0.0.1:${port}/v1/openapi.json`);
      return [status, headers.get('retry-after')];
    };
    writeFileSync(path, `${config},\n"rate_limits": { "per_ip_per_second": 0.01, "burst": 1 } }`);
    expect(await ask()).toEqual([200, null]);
    expect(await reload()).toMatchObject({ per_ip_per_second: 0.01, burst: 1, per_key_per_second: 100 });
    await eventually('the bucket is empty', 10_000, async () => ((await ask())[0] === 429 ? true : undefined));
    writeFileSync(path, `${config},\n"rate_limits": { "per_ip_per_second": 200, "burst": 0 } }`);
    expect(await reload()).toMatch(/config\.yaml:2: rate_limits\.burst: /);
    expect((await ask())[0]).toBe(429);
    writeFileSync(path, before);
  });

  // This one comes last, because it breaks the books.
  test('a command whose output is left by its reader keeps its exit code', () => {
    const database = new Database(join(dir, 'db'));
    database.exec(
      `insert into ledger_accounts (id, kind, owner_id, prepaid, credits_ucents, created_ms) values ('a', 'wallet', 'o', 1, 1, 1)`,
    );
    database.close();
    const verify = `"${process.execPath}" "${LAUNCHER}" ledger verify --config "${join(dir, 'config.yaml')}"`;
    for (const options of ['', '--json']) {
      const left = spawnSync('bash', ['-c', `${verify} ${options} | true; echo "\${PIPESTATUS[0]}"`]);
      expect([String(left.stdout), String(left.stderr)]).toEqual(['1\n', 'the books do not agree: 1 faults\n']);
    }
  });
});

describe('its end', () => {
  beforeEach(start);
  afterEach(end);

  test('one signal ends it in order, with exit code 0', async () => {
    process.kill(daemon.pid, 'SIGTERM');
    await daemon.waitForOutput(/stopping: requests under way are finished first/);
    socket.destroy();
    expect(await daemon.exited).toEqual({ code: 0, signal: null });
  });

  test('a request to a model ends by itself after the first signal, and balancers are sent elsewhere meanwhile', async () => {
    const upstream = await openFakeUpstream();
    const answered = Promise.withResolvers<void>();
    upstream.next({ after: answered.promise });
    writeFileSync(join(dir, 'models.yaml'), modelsFile(upstream.baseUrl));
    process.kill(daemon.pid, 'SIGHUP');
    await daemon.waitForOutput(/"models":8[^\n]*were read again/);
    const key = await newKey('serverless:write');
    const asking = fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'acme/small-chat', messages: [{ role: 'user', content: 'Hello' }] }),
    });
    await upstream.came(1);
    process.kill(daemon.pid, 'SIGTERM');
    await daemon.waitForOutput(/may last for drain_seconds/);
    const ready = (): Promise<number> => fetch(`http://127.0.0.1:${port}/readyz`).then(({ status }) => status);
    await expect.poll(ready).toBe(503);
    answered.resolve();
    expect((await asking).status).toBe(200);
    socket.destroy();
    expect(await daemon.exited).toEqual({ code: 0, signal: null });
    await upstream.close();
  });

  describe('while a connection to an application lasts', () => {
    let caller: Socket;
    beforeEach(async () => {
      caller = connect(appsPort, '127.0.0.1');
      caller.on('error', () => undefined);
      await once(caller, 'connect');
      caller.write('GET / HTTP/1.1\r\nHost: ');
      process.kill(daemon.pid, 'SIGTERM');
      await daemon.waitForOutput(/may last for drain_seconds/);
    });
    afterEach(() => void caller.destroy());
    const isUp = (): Promise<boolean> => fetch(`http://127.0.0.1:${port}/healthz`).then(({ ok }) => ok);

    test('the first signal refuses new connections, and the API goes on until the last one has ended', async () => {
      await expect.poll(() => fetch(`http://127.0.0.1:${appsPort}/`).catch(String)).toMatch(/failed/);
      expect(await isUp()).toBe(true);
      expect(caller.closed).toBe(false);
      caller.destroy();
      socket.destroy();
      expect(await daemon.exited).toEqual({ code: 0, signal: null });
    });

    test('a launch is refused meanwhile, because nobody could log in for so long', async () => {
      const key = await newKey('instances:write');
      const launch = { image: 'images.example.com/app:1', gpu_type: 'H100_SXM', gpu_count: 1, tier: 'on_demand' };
      const answer = await fetch(`http://127.0.0.1:${port}/v1/instances`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'idempotency-key': 'a' },
        body: JSON.stringify(launch),
      });
      expect([answer.status, answer.headers.get('retry-after')]).toEqual([503, '10']);
    });

    test('a second signal closes it', async () => {
      const cut = once(caller.resume(), 'close');
      process.kill(daemon.pid, 'SIGTERM');
      expect(await daemon.exited).toEqual({ code: 1, signal: null });
      await cut;
    });
  });

  test.skipIf(!hasSystemd)('systemd receives that it is ready, alive and stopping', async () => {
    await systemd.waitFor(/READY=1[^]*WATCHDOG=1[^]*WATCHDOG=1/);
    process.kill(daemon.pid, 'SIGTERM');
    await systemd.waitFor(/STOPPING=1/);
    expect(systemd.messages().filter((message) => message === 'READY=1')).toHaveLength(1);
  });

  test('a second signal ends it at once, with exit code 1', async () => {
    process.kill(daemon.pid, 'SIGTERM');
    await daemon.waitForOutput(/stopping: requests under way are finished first/);
    process.kill(daemon.pid, 'SIGTERM');
    expect(await daemon.exited).toEqual({ code: 1, signal: null });
  });
});
