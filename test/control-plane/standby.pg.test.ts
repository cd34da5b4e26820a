// Two control planes on one PostgreSQL database: one serves, and the other stands by and takes over. Both are real processes.
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { Client } from 'pg';
import { afterEach, beforeEach, expect, inject, test } from 'vitest';
import { createDatabase } from '../bench/database.ts';
import { capture } from '../kit/capture.ts';
import { eventually, type Program, startProgram } from '../kit/processes.ts';
import { hasSystemd, type NotifySocket, openNotifySocket } from '../kit/notify-socket.ts';
import { freePort } from '../kit/ports.ts';

const LAUNCHER = resolve(import.meta.dirname, '../../control-plane/svc-control-plane.js');

interface Place {
  config: string;
  port: number;
}

let databases = 0;
let dir: string;
let url: string;
let sshPort: number;
let systemd: NotifySocket;
let first: Place;
let second: Place;
let programs: Program[];

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'standby-'));
  databases += 1;
  url = await createDatabase(inject('postgresUrl') ?? '', `standby_${process.pid}_${databases}`);
  sshPort = await freePort();
  [first, second] = [await placeOf('first'), await placeOf('second')];
  systemd = await openNotifySocket();
  programs = [serve(first)];
  await programs[0]?.waitForOutput(/the control plane serves/, 30_000);
  copyFileSync(join(dir, 'first', 'secret'), join(dir, 'second', 'secret'));
});
afterEach(async () => {
  for (const program of programs) await program.stop('SIGKILL');
  await systemd.close();
  rmSync(dir, { recursive: true });
});

/** The folder of a machine, with its configuration. */
async function placeOf(name: string): Promise<Place> {
  mkdirSync(join(dir, name));
  const place = { config: join(dir, name, 'config.yaml'), port: await freePort() };
  configure(name, place, {});
  return place;
}

function configure(name: string, { config, port }: Place, more: object): void {
  const at = (file: string): string => join(dir, name, file);
  const settings = {
    listen: { host: '127.0.0.1', port },
    database: { postgres: url },
    admin_socket: at('admin.sock'),
    secret_file: at('secret'),
    ssh: { host: '127.0.0.1', port_range: { first: sshPort, last: sshPort } },
    ...more,
  };
  writeFileSync(config, JSON.stringify(settings));
}

function serve({ config }: Place, env: Record<string, string> = {}): Program {
  return startProgram({ command: process.execPath, args: [LAUNCHER, 'serve', '--config', config], env });
}

async function standBy(env?: Record<string, string>): Promise<Program> {
  const program = serve(second, env);
  programs.push(program);
  await program.waitForOutput(/this one stands by/, 30_000);
  return program;
}

/** Both serve: the first one is the primary. */
async function serveBoth(ofSecond: object = {}): Promise<{ primary: Program; secondary: Program }> {
  await programs[0]?.stop('SIGTERM');
  for (const [name, place] of Object.entries({ first, second })) {
    const more = name === 'second' ? ofSecond : {};
    configure(name, place, { peer_url: `http://127.0.0.1:${place.port}`, ...more });
    const program = serve(place);
    programs.push(program);
    await program.waitForOutput(/the control plane serves/, 30_000);
  }
  const [primary, secondary] = programs.slice(-2);
  if (primary === undefined || secondary === undefined) throw new Error('they do not run');
  return { primary, secondary };
}

const signUpAt = async ({ port }: Place): Promise<unknown> => {
  const answer = await fetch(`http://127.0.0.1:${port}/v1/auth/methods`);
  return ((await answer.json()) as Record<string, unknown>)['sign_up'];
};

test('the one that stands by listens nowhere, and takes over with the newest files when the other one ends', async () => {
  chmodSync(join(dir, 'second', 'secret'), 0o644);
  configure('second', second, { disk_price_per_gb_hour: 0.5 });
  const other = await standBy();
  expect(other.output()).toMatch(/"level":40[^\n]*"setting":"secret_file"[^\n]*chmod 600 [^\n]*secret/);
  expect(other.output()).toMatch(/"level":40[^\n]*"setting":"blobs_s3"[^\n]*keep them in an S3 store/);
  expect(other.output()).toMatch(/"settings":\[[^\]]*"disk_price_per_gb_hour"\][^\n]*has other values of settings/);
  await expect(fetch(`http://127.0.0.1:${second.port}/readyz`)).rejects.toThrow('fetch failed');
  const made = await capture([
    process.execPath,
    LAUNCHER,
    'admin',
    'org',
    'create',
    '--name',
    'acme',
    '--config',
    first.config,
  ]);
  expect(made).toMatchObject({ code: 0 });
  configure('second', second, { sign_up: 'open' });
  await programs[0]?.stop('SIGTERM');
  await other.waitForOutput(/the control plane serves/, 30_000);
  expect(await signUpAt(second)).toBe('open');
  const member = /"member":"([^"]+)"/.exec(programs[0]?.output() ?? '')?.[1] ?? 'none';
  const named = [
    /"primary":"member ([^"]+)","msg":"another/,
    /"former_primary":"member ([^"]+)",.*has given its lease/,
  ];
  expect(named.map((line) => line.exec(other.output())?.[1])).toEqual([member, member]);
  const listed = await capture([process.execPath, LAUNCHER, 'admin', 'org', 'list', '--config', second.config]);
  expect(listed.stdout.toString()).toContain('acme');
});

test('a mistake in its files at that moment is logged, and they count as they were', async () => {
  configure('second', second, { sign_up: 'closed' });
  const other = await standBy();
  configure('second', second, { sign_up: 'perhaps' });
  await programs[0]?.stop('SIGTERM');
  await other.waitForOutput(/have a mistake; they count as they were before/, 30_000);
  await other.waitForOutput(/the control plane serves/, 30_000);
  expect(await signUpAt(second)).toBe('closed');
});

test.skipIf(!hasSystemd)(
  'systemd hears that it stands by, then at times that it is alive, and then that it serves',
  async () => {
    await standBy({ NOTIFY_SOCKET: systemd.path, WATCHDOG_USEC: '300000' });
    await systemd.waitFor(/READY=1\nSTATUS=stands by[^]*WATCHDOG=1[^]*WATCHDOG=1/);
    await programs[0]?.stop('SIGTERM');
    await systemd.waitFor(/WATCHDOG=1[^]*READY=1\nSTATUS=serves[^]*WATCHDOG=1/);
  },
);

test('one that serves beside the primary with other prices says so once, and the overview shows it while it lasts', async () => {
  const { secondary } = await serveBoth({ platform_fee_bps: 100 });
  const complaints = secondary
    .output()
    .match(/"settings":\[[^\]]*"platform_fee_bps"[^\n]*has other values of settings/g);
  expect(complaints).toHaveLength(1);
  const overview = async (): Promise<string> =>
    (await capture([process.execPath, LAUNCHER, 'admin', 'overview', '--config', first.config])).stdout.toString();
  expect(await overview()).toContain(
    `The control plane http://127.0.0.1:${second.port} has other values than the primary: `,
  );
  await secondary.stop('SIGTERM');
  expect(await overview()).not.toContain('has other values');
});

test('the log names the socket of the operator where there is one, and a command without one says what to do on the machine of a secondary', async () => {
  const { primary, secondary } = await serveBoth();
  expect(primary.output()).toContain('admin_socket');
  expect(secondary.output()).not.toContain('admin_socket');
  const served = `"base_url":"http://127.0.0.1:8080/v1","database":"postgresql"`;
  expect(primary.output()).toContain(`"role":"primary",${served}`);
  expect(secondary.output()).toContain(`"role":"secondary",${served}`);
  expect(primary.output()).not.toContain('keep them in an S3 store');
  expect(secondary.output()).toContain('keep them in an S3 store');
  const refusalOf = async (...words: string[]): Promise<string> =>
    (await capture([process.execPath, LAUNCHER, 'admin', ...words, '--config', second.config])).stderr;
  expect(await refusalOf('reload')).toContain('A secondary is reloaded with "systemctl reload svc-control-plane"');
  expect(await refusalOf('org', 'list')).toContain(`another control plane (http://127.0.0.1:${first.port}) serves`);
  await primary.stop('SIGTERM');
  await secondary.waitForOutput(
    /"admin_socket":"[^"]*second[^"]*","msg":"this control plane is the primary now"/,
    30_000,
  );
});

test('a SIGHUP does not end the one that stands by, and a SIGTERM ends it at once', async () => {
  const other = await standBy();
  process.kill(other.pid, 'SIGHUP');
  process.kill(other.pid, 'SIGTERM');
  expect(await other.exited).toEqual({ code: 0, signal: null });
  expect(await signUpAt(first)).toBe('invite');
});

test('a SIGTERM to one that changes the schema ends it with success before that is over, and the lease is free', async () => {
  await programs[0]?.stop('SIGTERM');
  const other = new Client({ connectionString: url });
  await other.connect();
  await other.query(`delete from schema_migrations where name like '%control-planes%'`);
  await other.query('drop table control_planes');
  await other.query('begin');
  // The migration waits at its end.
  await other.query('lock table schema_migrations in share mode');
  const changes = serve(first);
  programs.push(changes);
  await changes.waitForOutput(/the database is being upgraded/, 30_000);
  process.kill(changes.pid, 'SIGTERM');
  expect(await changes.exited).toEqual({ code: 0, signal: null });
  expect(changes.output()).not.toMatch(/"level":[4-6]0/);
  const held = await other.query(`select holder from leases where name = 'primary'`);
  expect(held.rows).toEqual([{ holder: '' }]);
  await other.query('rollback');
  await other.end();
});

test('one with another secret ends with a sentence in place of standing by', async () => {
  writeFileSync(join(dir, 'second', 'secret'), `${'ab'.repeat(32)}\n`);
  const other = serve(second);
  programs.push(other);
  expect(await other.exited).toEqual({ code: 1, signal: null });
  expect(other.output()).toContain('secret_file does not hold the secret that this database was written under');
  expect(await signUpAt(first)).toBe('invite');
});

test('one without a secret makes none in place of standing by, and says whose it needs', async () => {
  rmSync(join(dir, 'second', 'secret'));
  const other = serve(second);
  programs.push(other);
  expect(await other.exited).toEqual({ code: 1, signal: null });
  expect(other.output()).toContain('each control plane of the database has the same one');
  expect(readdirSync(join(dir, 'second'))).toEqual(['config.yaml']);
});

test('of two that start on an empty database at once, only the one that serves makes a secret', async () => {
  await programs[0]?.stop('SIGTERM');
  url = await createDatabase(inject('postgresUrl') ?? '', `standby_${process.pid}_${databases}_new`);
  const started = (
    [
      ['first', first],
      ['second', second],
    ] as const
  ).map(([name, place]) => {
    rmSync(join(dir, name, 'secret'));
    configure(name, place, {});
    return { name, program: serve(place) };
  });
  programs.push(...started.map(({ program }) => program));
  const refused = await Promise.race(
    started.map(async ({ name, program }) => {
      await program.exited;
      return { name, output: program.output() };
    }),
  );
  expect(refused.output).toContain('which does not exist');
  const made = (): string[] => ['first', 'second'].filter((name) => existsSync(join(dir, name, 'secret')));
  // The other one may still be at its start.
  await expect.poll(made).toEqual(started.map(({ name }) => name).filter((name) => name !== refused.name));
});

test('a SIGTERM to one that is about to become the primary ends it with success, and the lease is free', async () => {
  const { primary, secondary } = await serveBoth();
  const other = new Client({ connectionString: url });
  await other.connect();
  const leases = async (): Promise<unknown[]> => (await other.query('select name, holder from leases')).rows;
  // It prepares these ports before it opens its sockets.
  await other.query('begin');
  await other.query('lock table endpoint_ports in exclusive mode');
  await primary.stop('SIGTERM');
  const holder = "select 1 from leases where name = 'primary' and holder <> ''";
  await eventually('the takeover', 10_000, async () => (await other.query(holder)).rows[0]);
  process.kill(secondary.pid, 'SIGTERM');
  await secondary.waitForOutput(/stopping: /);
  await other.query('rollback');
  expect(await secondary.exited).toEqual({ code: 0, signal: null });
  expect(secondary.output()).not.toContain('could not');
  expect(await leases()).toEqual([{ name: 'primary', holder: '' }]);
  await other.end();
});
