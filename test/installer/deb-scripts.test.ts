// The maintainer scripts of the Debian packages, with systemd and users as scripted programs.
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { capture, type Captured } from '../kit/capture.ts';
import { type Installation, openInstallation } from '../kit/installation.ts';

const SCRIPTS = resolve(import.meta.dirname, '../../installer/deb');

let dir: string;
let host: Installation;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'deb-scripts-'));
  host = openInstallation(dir);
  mkdirSync(join(host.root, 'run/systemd/system'), { recursive: true });
});
afterEach(() => rmSync(dir, { recursive: true }));

type Unit = 'svc-agent' | 'svc-control-plane';

/** Runs the script as dpkg does. */
function run(script: string, unit: Unit, ...argv: string[]): Promise<Captured> {
  const file = join(dir, script);
  writeFileSync(file, readFileSync(join(SCRIPTS, script), 'utf8').replaceAll('@unit@', unit));
  return capture(['sh', file, ...argv], { env: { ...host.env, DPKG_ROOT: host.root } });
}

/** `svc-agent clear` succeeds or not. */
function scriptAgent(exitCode: number): void {
  mkdirSync(join(host.root, 'usr/bin'), { recursive: true });
  const text = `#!/bin/sh\necho "svc-agent $*" >>"$INSTALLATION/recorded"\nexit ${exitCode}\n`;
  writeFileSync(join(host.root, 'usr/bin/svc-agent'), text, { mode: 0o755 });
}

/** Makes the configuration that dpkg has unpacked before postinst. */
function unpackConfig(): string {
  const folder = join(host.root, 'etc/svc-control-plane');
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'control-plane.yaml'), '');
  return join(folder, 'control-plane.yaml');
}

test('an installation brings the control plane its user, and enables the unit', async () => {
  const config = unpackConfig();
  expect(await run('preinst', 'svc-control-plane', 'install')).toMatchObject({ code: 0 });
  expect(await run('postinst', 'svc-control-plane', 'configure', '')).toMatchObject({ code: 0, stderr: '' });
  expect(host.recorded()).toEqual([
    'useradd --system --user-group --home-dir /var/lib/svc-control-plane --shell /usr/sbin/nologin svc-control-plane',
    `chown root:svc-control-plane ${config}`,
    'systemctl daemon-reload',
    'systemctl enable --quiet svc-control-plane',
    'systemctl try-restart svc-control-plane',
  ]);
});

// dpkg does not bring back a configuration that its operator has deleted, for example because a drop-in names another one.
test('an upgrade goes on without the configuration of the package', async () => {
  expect(await run('postinst', 'svc-control-plane', 'configure', '0.1.0')).toMatchObject({ code: 0, stderr: '' });
  expect(host.recorded().filter((line) => line.startsWith('chown'))).toEqual([]);
});

test('an upgrade leaves the unit enabled or disabled as the operator has it, an installation after a removal enables it', async () => {
  await run('preinst', 'svc-control-plane', 'upgrade', '0.1.0');
  await run('postinst', 'svc-control-plane', 'configure', '0.1.0');
  expect(host.recorded().filter((line) => line.startsWith('systemctl'))).toEqual([
    'systemctl daemon-reload',
    'systemctl try-restart svc-control-plane',
  ]);
  await run('preinst', 'svc-control-plane', 'install', '0.1.0');
  await run('postinst', 'svc-control-plane', 'configure', '0.1.0');
  await run('preinst', 'svc-control-plane', 'upgrade', '0.1.0');
  await run('postinst', 'svc-control-plane', 'configure', '0.1.0');
  expect(host.recorded().filter((line) => line.startsWith('systemctl enable'))).toHaveLength(1);
});

test('the agent is root, so it gets no user; a user that exists stays', async () => {
  await run('postinst', 'svc-agent', 'configure', '');
  host.script('getent', 'exit 0');
  await run('postinst', 'svc-control-plane', 'configure', '0.1.0');
  expect(host.recorded().filter((line) => line.startsWith('useradd'))).toEqual([]);
});

test('it refuses to stand beside an installation by install.sh', async () => {
  mkdirSync(join(host.root, 'usr/local/bin'), { recursive: true });
  symlinkSync('/opt/gpu-rental-service/svc-agent/bin/svc-agent', join(host.root, 'usr/local/bin/svc-agent'));
  const refused = await run('preinst', 'svc-agent', 'install');
  expect({ code: refused.code, stderr: refused.stderr }).toEqual({
    code: 1,
    stderr: expect.stringContaining('remove it with install.sh remove first') as string,
  });
  expect(await run('preinst', 'svc-control-plane', 'install')).toMatchObject({ code: 0 });
});

test('a control plane that runs is not removed, and an upgrade does not stop it', async () => {
  host.setActive('svc-control-plane');
  expect(await run('prerm', 'svc-control-plane', 'upgrade', '0.2.0')).toMatchObject({ code: 0 });
  const refused = await run('prerm', 'svc-control-plane', 'remove');
  expect(refused).toMatchObject({ code: 1, stderr: 'it serves customers: systemctl stop svc-control-plane first\n' });
  expect(host.recorded()).toEqual(['systemctl is-active svc-control-plane']);
});

test('an agent whose host still has rentals is not removed, and runs on', async () => {
  scriptAgent(1);
  host.setActive('svc-agent');
  const refused = await run('prerm', 'svc-agent', 'remove');
  expect(refused).toMatchObject({
    code: 1,
    stderr: 'nothing was removed; svc-agent clear --force ends the rentals and deletes their data\n',
  });
  expect(host.recorded()).toEqual([
    'systemctl is-active svc-agent',
    'systemctl stop svc-agent',
    `svc-agent clear --config ${host.root}/etc/svc-agent/agent.yaml`,
    'systemctl start svc-agent',
  ]);
});

test('an agent that is not removed stays disabled and stopped if its operator has left it so', async () => {
  scriptAgent(1);
  expect(await run('prerm', 'svc-agent', 'remove')).toMatchObject({ code: 1 });
  expect(host.recorded().filter((line) => / (enable|disable|start) /.test(line))).toEqual([]);
});

/** systemd says so of a unit that is about to restart, and ends with 3, as for a unit that is stopped. */
function scriptActivating(): void {
  host.script(
    'systemctl',
    'echo "systemctl $*" >>"$INSTALLATION/recorded"',
    'if [ "$1" = is-active ]; then echo activating; exit 3; fi',
  );
}

test('an agent that fails and restarts repeatedly is started again if it is not removed', async () => {
  scriptAgent(1);
  scriptActivating();
  expect(await run('prerm', 'svc-agent', 'remove')).toMatchObject({ code: 1 });
  expect(host.recorded().at(-1)).toBe('systemctl start svc-agent');
});

test('a control plane that is about to serve is not removed', async () => {
  scriptActivating();
  const refused = await run('prerm', 'svc-control-plane', 'remove');
  expect(refused).toMatchObject({ code: 1, stderr: 'it serves customers: systemctl stop svc-control-plane first\n' });
});

test('an agent without rentals is removed; only a purge removes its data', async () => {
  scriptAgent(0);
  for (const folder of ['etc/svc-agent', 'var/lib/svc-agent']) mkdirSync(join(host.root, folder), { recursive: true });
  expect(await run('prerm', 'svc-agent', 'remove')).toMatchObject({ code: 0, stderr: '' });
  expect(host.recorded().at(-1)).toBe('systemctl disable --quiet svc-agent');
  expect(await run('postrm', 'svc-agent', 'remove')).toMatchObject({ code: 0, stderr: '' });
  expect(existsSync(join(host.root, 'var/lib/svc-agent'))).toBe(true);
  expect(await run('postrm', 'svc-agent', 'purge')).toMatchObject({ code: 0, stderr: '' });
  expect([existsSync(join(host.root, 'var/lib/svc-agent')), existsSync(join(host.root, 'etc/svc-agent'))]).toEqual([
    false,
    false,
  ]);
});

// dpkg keeps the purge of a removed package on offer for years, and install.sh may stand in its place by then.
test('a purge after a removal spares the data of an installation by install.sh', async () => {
  host.script('getent', 'exit 0');
  const state = join(host.root, 'var/lib/svc-control-plane');
  for (const folder of [state, join(host.root, 'usr/local/bin')]) mkdirSync(folder, { recursive: true });
  symlinkSync('/opt/gpu-rental-service/svc-control-plane/bin', join(host.root, 'usr/local/bin/svc-control-plane'));
  const purged = await run('postrm', 'svc-control-plane', 'purge');
  expect(purged).toMatchObject({ code: 0, stderr: expect.stringContaining('its data stays') as string });
  expect(existsSync(state)).toBe(true);
  expect(host.recorded()).toEqual(['systemctl daemon-reload']);
});

test('a purge removes the user of the control plane, and its compiled code', async () => {
  host.script('getent', 'exit 0');
  mkdirSync(join(host.root, 'var/cache/svc-control-plane'), { recursive: true });
  expect(await run('postrm', 'svc-control-plane', 'purge')).toMatchObject({ code: 0, stderr: '' });
  expect(host.recorded()).toEqual(['systemctl daemon-reload', 'userdel svc-control-plane']);
  expect(existsSync(join(host.root, 'var/cache/svc-control-plane'))).toBe(false);
});
