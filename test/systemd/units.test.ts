// The systemd units, checked and rated by systemd itself.
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { capture } from '../kit/capture.ts';
import { blocksOf, pageOf, readPages } from '../kit/manual/documents.ts';
import { hasSystemd } from '../kit/notify-socket.ts';

const CHECKOUT = resolve(import.meta.dirname, '../..');
const INSTALLED = '/opt/gpu-rental-service';
const UNITS = ['svc-control-plane.service', 'svc-agent.service'];

const textOf = (unit: string): string => readFileSync(join(CHECKOUT, 'systemd', unit), 'utf8');

test.skipIf(!hasSystemd).each(UNITS)('systemd understands every line of %s', async (unit) => {
  const dir = mkdtempSync(join(tmpdir(), 'units-'));
  mkdirSync(join(dir, 'units'));
  const path = join(dir, 'units', unit);
  writeFileSync(path, textOf(unit).replaceAll(INSTALLED, dir));
  const name = unit.replace('.service', '');
  mkdirSync(join(dir, name, 'bin'), { recursive: true });
  writeFileSync(join(dir, name, 'bin', name), '#!/bin/sh\n', { mode: 0o755 });
  const { code, stderr } = await capture(['systemd-analyze', 'verify', '--man=no', path]);
  rmSync(dir, { recursive: true });
  expect({ code, stderr: stderr.split('\n').filter((line) => line.includes(unit)) }).toEqual({ code: 0, stderr: [] });
});

/** 10 is no protection at all; below 2 systemd calls it OK. */
test.skipIf(!hasSystemd)('the control plane is exposed by no more than 2.0', async () => {
  const path = join(CHECKOUT, 'systemd', 'svc-control-plane.service');
  const { code, stdout } = await capture(['systemd-analyze', 'security', '--offline=true', '--threshold=20', path]);
  expect({ code, verdict: stdout.toString().trim().split('\n').at(-1) }).toMatchObject({ code: 0 });
});

test('the programs that the units start exist', () => {
  for (const unit of UNITS) {
    const name = unit.replace('.service', '');
    expect(textOf(unit)).toContain(`\nExecStart=${INSTALLED}/${name}/bin/${name} `);
    expect(readFileSync(join(CHECKOUT, 'installer/bin', name), 'utf8')).toContain(`/${name}.js" "$@"`);
  }
});

test('the compiled code of the control plane goes into the cache folder that its unit owns', () => {
  const [folder] = /(?<=\nCacheDirectory=).+/.exec(textOf('svc-control-plane.service')) ?? [];
  expect(folder).toBe('svc-control-plane');
  expect(textOf('svc-control-plane.service')).toContain(`\nEnvironment=NODE_COMPILE_CACHE=%C/${folder}\n`);
  expect(readFileSync(join(CHECKOUT, 'installer/install.sh'), 'utf8')).toContain('\n  cache=$root/var/cache/$unit\n');
});

test('the agent has more threads than calls that a hanging disk keeps: it still finds the control plane by its name', async () => {
  const [size = ''] = /(?<=\nEnvironment=UV_THREADPOOL_SIZE=)\d+/.exec(textOf('svc-agent.service')) ?? [];
  const folder = mkdtempSync(join(tmpdir(), 'threads-'));
  // Opening a pipe that nobody writes waits for ever, like a call to a dead disk. Node would wait for it at its end.
  const program = `
    const pipe = ${JSON.stringify(join(folder, 'pipe'))};
    require('node:child_process').execFileSync('mkfifo', [pipe]);
    for (let i = 0; i < 10; i += 1) require('node:fs').open(pipe, 'r', () => undefined);
    require('node:dns').lookup('localhost', (error) => {
      require('node:fs').writeSync(1, error === null ? 'found' : 'not found');
      process.kill(process.pid, 'SIGKILL');
    });`;
  const environment = { env: { UV_THREADPOOL_SIZE: size }, timeoutMs: 10_000 };
  const { stdout } = await capture([process.execPath, '-e', program], environment);
  rmSync(folder, { recursive: true });
  expect(stdout.toString()).toBe('found');
});

test('Node stores the compiled code when the control plane ends', async () => {
  const cache = mkdtempSync(join(tmpdir(), 'compiled-'));
  const launcher = join(CHECKOUT, 'control-plane/svc-control-plane.js');
  await capture([process.execPath, launcher, '--version'], { env: { NODE_COMPILE_CACHE: cache } });
  const stored = readdirSync(cache, { recursive: true }).length;
  rmSync(cache, { recursive: true });
  expect(stored).toBeGreaterThan(10);
});

test('the drop-in of the manual lets the control plane listen on port 443, which its unit alone does not', () => {
  const blocks = blocksOf(pageOf(readPages(), 'control-plane/docs/operator.md'));
  const [dropIn] = blocks.filter(({ language }) => language === 'ini');
  expect(dropIn?.text).toMatch(/^\[Service\]\n/);
  for (const name of ['CapabilityBoundingSet', 'AmbientCapabilities']) {
    expect(textOf('svc-control-plane.service')).toContain(`\n${name}=\n`);
    expect(dropIn?.text).toContain(`\n${name}=CAP_NET_BIND_SERVICE\n`);
  }
});

test('the drop-in of the manual gives the control plane a folder on another disk, where its unit alone may not write', () => {
  const blocks = blocksOf(pageOf(readPages(), 'control-plane/docs/operator.md'));
  const [, dropIn] = blocks.filter(({ language }) => language === 'ini');
  expect(textOf('svc-control-plane.service')).toContain('\nProtectSystem=strict\n');
  const made = blocks.flatMap(({ text }) => /^mkdir .* (\/data\/\S+)$/m.exec(text)?.[1] ?? []);
  expect(dropIn?.text).toBe(`[Unit]\nRequiresMountsFor=${made[0]}\n[Service]\nReadWritePaths=${made[0]}\n`);
});

test('a stop signals the main process only: holders go on, and the control plane can still notify systemd', () => {
  const killModes = UNITS.map((unit) => /^KillMode=(.*)$/m.exec(textOf(unit))?.[1]);
  expect(killModes).toEqual(['mixed', 'process']);
});
