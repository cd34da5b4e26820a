// The Debian packages, made twice: what they hold, and that their programs run where there is neither Node nor this checkout.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buildDebianPackages } from '../../installer/package.ts';
import { VERSION } from '../../shared/version.ts';
import { capture, type Captured } from '../kit/capture.ts';
import { withoutNode } from '../kit/installation.ts';
import { requireProgram } from '../kit/setup.ts';

const CONTROL_PLANE = 'gpu-rental-control-plane';
const AGENT = 'gpu-rental-agent';

let dir: string;
let files: string[];
/** `mode owner path` of everything in the package of each daemon. */
let contents: Record<string, string[]>;

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'deb-'));
  files = await buildDebianPackages(join(dir, 'dist'));
  contents = { [CONTROL_PLANE]: await listed(CONTROL_PLANE), [AGENT]: await listed(AGENT) };
});
afterAll(() => rmSync(dir, { recursive: true }));

const fileOf = (name: string): string => files.find((file) => basename(file).startsWith(`${name}_`)) ?? '';
const dpkgDeb = async (...argv: string[]): Promise<string> => {
  const ran = await capture([requireProgram('dpkg-deb'), ...argv]);
  expect(ran).toMatchObject({ code: 0, stderr: '' });
  return ran.stdout.toString();
};
const listed = async (name: string): Promise<string[]> =>
  (await dpkgDeb('--contents', fileOf(name)))
    .trim()
    .split('\n')
    .map((row) => row.replace(/^(\S+) (\S+) +\d+ \S+ \S+ /, '$1 $2 '));

test('the same sources give the same bytes, and each sum is beside its package', async () => {
  expect(files.map((file) => basename(file))).toEqual(
    ['control-plane', 'agent', 'cli'].map((name) => `gpu-rental-${name}_${VERSION}_amd64.deb`),
  );
  const again = await buildDebianPackages(join(dir, 'again'));
  for (const [i, file] of again.entries()) {
    expect(readFileSync(file).equals(readFileSync(files[i] ?? ''))).toBe(true);
  }
  const sums = await capture(['sh', '-c', 'cd "$1" && sha256sum --check ./*.sha256', 'sh', join(dir, 'dist')]);
  expect(sums).toMatchObject({ code: 0 });
});

describe.each([
  { name: CONTROL_PLANE, unit: 'svc-control-plane', config: 'control-plane.yaml', other: 'agent' },
  { name: AGENT, unit: 'svc-agent', config: 'agent.yaml', other: 'control-plane' },
])('$name', ({ name, unit, config, other }) => {
  test('keeps the configuration of the operator, and has a program for each step of dpkg', async () => {
    const control = join(dir, `${name}-control`);
    await dpkgDeb('--control', fileOf(name), control);
    expect(readFileSync(join(control, 'conffiles'), 'utf8')).toBe(`/etc/${unit}/${config}\n`);
    for (const script of ['preinst', 'postinst', 'prerm', 'postrm'])
      expect(readFileSync(join(control, script), 'utf8')).toContain(`\nunit=${unit}\n`);
    expect(await dpkgDeb('--info', fileOf(name))).toMatch(/^ Depends: libc6 .*, libstdc\+\+6, .*systemd$/m);
  });

  test('holds its own daemon alone, and all of it belongs to root', () => {
    const rows = contents[name] ?? [];
    const kinds = new Set(
      rows.filter((row) => !row.endsWith(`/${config}`)).map((row) => row.split(' ').slice(0, 2).join(' ')),
    );
    expect([...kinds].toSorted()).toEqual(
      ['-rw-r--r--', '-rwxr-xr-x', 'drwxr-xr-x', 'lrwxrwxrwx'].map((mode) => `${mode} root/root`),
    );
    // It may hold the database's password.
    expect(rows).toContain(`-rw-r----- root/root ./etc/${unit}/${config}`);
    expect(rows).toContain(`-rw-r--r-- root/root ./usr/lib/systemd/system/${unit}.service`);
    expect(rows).toContain(`lrwxrwxrwx root/root ./usr/bin/${unit} -> ../lib/${name}/bin/${unit}`);
    expect(rows.filter((row) => row.includes(` ./usr/lib/${name}/${other}/`))).toEqual([]);
  });

  test('its unit starts the program of the package, which needs no Node', async () => {
    const root = join(dir, name);
    await dpkgDeb('--extract', fileOf(name), root);
    const text = readFileSync(join(root, `usr/lib/systemd/system/${unit}.service`), 'utf8');
    expect(text).toContain(`ExecStart=/usr/lib/${name}/bin/${unit} `);
    expect(text).not.toContain('/opt/');
    const ran = await capture(withoutNode([join(root, 'usr/bin', unit), '--version']));
    expect(said(ran)).toEqual({ code: 0, stdout: `${VERSION}\n`, stderr: '' });
  });
});

test('the rules and dashboards for monitoring are where the manual says, in the package of the control plane alone', () => {
  const shared = (name: string): string[] =>
    (contents[name] ?? []).filter((row) => /^-.* \.\/usr\/share\/gpu-/.test(row)).map((row) => basename(row));
  expect(shared(CONTROL_PLANE).toSorted()).toEqual(['alerts.yaml', 'inference.json', 'operator.json', 'supply.json']);
  expect(shared(AGENT)).toEqual([]);
  const manual = readFileSync(resolve(import.meta.dirname, '../../control-plane/docs/operator.md'), 'utf8');
  expect(manual).toContain('`/usr/share/gpu-rental-control-plane`');
});

test('dpkg installs the command line below a root, where it runs without Node, and removes all of it', async () => {
  const root = join(dir, 'root');
  for (const folder of ['updates', 'info']) mkdirSync(join(root, 'var/lib/dpkg', folder), { recursive: true });
  for (const file of ['status', 'available']) writeFileSync(join(root, 'var/lib/dpkg', file), '');
  const dpkg = (...argv: string[]): Promise<Captured> => capture(['dpkg', `--root=${root}`, ...argv]);
  // The root has no other packages, so nothing that it depends on is installed.
  expect(await dpkg('--force-depends', '--install', fileOf('gpu-rental-cli'))).toMatchObject({ code: 0 });
  const ran = await capture(withoutNode([join(root, 'usr/bin/svc'), '--version']));
  expect(said(ran)).toEqual({ code: 0, stdout: `${VERSION}\n`, stderr: '' });
  const refused = await capture(withoutNode([join(root, 'usr/bin/svc'), 'gpu', 'list']), {
    env: { HOME: root },
  });
  expect(refused.stderr).toContain('the address of the API is not known');

  expect(await dpkg('--purge', 'gpu-rental-cli')).toMatchObject({ code: 0 });
  const left = await capture(['find', join(root, 'usr'), '-type', 'f']);
  expect(left.stdout.toString()).toBe('');
});

function said({ code, stdout, stderr }: Captured): { code: number | null; stdout: string; stderr: string } {
  return { code, stdout: stdout.toString(), stderr };
}
