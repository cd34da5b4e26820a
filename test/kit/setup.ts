// Installs the programs that the tests and the demo drive, through Debian's packages, and only those that are absent.
import { spawnSync } from 'node:child_process';
import { accessSync, chmodSync, constants, existsSync, globSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';

/** Program -> Debian package that brings it. */
const PACKAGES = {
  dockerd: 'docker.io',
  'docker-compose': 'docker-compose',
  'docker-registry': 'docker-registry',
  iptables: 'iptables',
  nft: 'nftables',
  ip: 'iproute2',
  busybox: 'busybox-static',
  curl: 'curl',
  ssh: 'openssh-client',
  sshd: 'openssh-server',
  dbclient: 'dropbear-bin',
  dropbearkey: 'dropbear-bin',
  openssl: 'openssl',
  initdb: 'postgresql',
  'mkfs.btrfs': 'btrfs-progs',
  btrfs: 'btrfs-progs',
  python3: 'python3',
  chromium: 'chromium',
  'firefox-esr': 'firefox-esr',
  shellcheck: 'shellcheck',
  nginx: 'nginx',
  'dpkg-deb': 'dpkg',
  systemd: 'systemd',
} as const;

export type ProgramName = keyof typeof PACKAGES;

/** The folders in which Debian keeps programs that are not in every PATH. */
const MORE_FOLDERS = [
  '/usr/local/sbin',
  '/usr/sbin',
  '/sbin',
  '/usr/lib/postgresql/*/bin',
  '/usr/lib/systemd',
  '/lib/systemd',
];

const POLICY = '/usr/sbin/policy-rc.d';

/** The absolute path of a program, or undefined. `busybox` counts only when it is static: test images hold nothing else. */
function findProgram(name: string): string | undefined {
  const folders = [
    ...(process.env['PATH'] ?? '').split(delimiter),
    ...MORE_FOLDERS.flatMap((folder) => globSync(folder)),
  ];
  return folders
    .map((folder) => join(folder, name))
    .find((path) => isExecutable(path) && (name !== 'busybox' || isStatic(path)));
}

/** Does the same as `findProgram`, but a missing program is an error that names its package. */
export function requireProgram(name: ProgramName): string {
  const path = findProgram(name);
  if (path === undefined) throw new Error(`${name} is missing: on Debian, apt-get install ${PACKAGES[name]}`);
  return path;
}

/**
 * Installs what is missing if that is possible (root on a Debian system), and says so through `say`.
 * Services that come along are not started. Returns the programs that are still missing.
 */
export function installMissing(names: readonly ProgramName[], say: (line: string) => void): ProgramName[] {
  const missing = (): ProgramName[] => names.filter((name) => findProgram(name) === undefined);
  const packages = [...new Set(missing().map((name) => PACKAGES[name]))];
  if (packages.length === 0 || process.getuid?.() !== 0 || findProgram('apt-get') === undefined) return missing();
  say(`Installing with apt-get, because it is missing here: ${packages.join(', ')}`);
  withoutStartingServices(() => {
    aptGet(['update']);
    aptGet(['install', '--yes', '--no-install-recommends', ...packages]);
  });
  return missing();
}

function aptGet(args: string[]): void {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  const result = spawnSync('apt-get', ['-q', ...args], { env, encoding: 'utf8' });
  if (result.status !== 0) throw new Error(`apt-get ${args.join(' ')} failed:\n${result.stdout}${result.stderr}`);
}

/** Debian asks this policy before it starts a service: 101 means no. One that is there already stays as it is. */
function withoutStartingServices(install: () => void): void {
  if (existsSync(POLICY)) return install();
  writeFileSync(POLICY, '#!/bin/sh\nexit 101\n');
  chmodSync(POLICY, 0o755);
  try {
    install();
  } finally {
    rmSync(POLICY);
  }
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** True for a 64-bit ELF program that asks for no loader (no PT_INTERP among its program headers). */
function isStatic(path: string): boolean {
  const elf = readFileSync(path);
  const [offset, size, count] = [Number(elf.readBigUInt64LE(0x20)), elf.readUInt16LE(0x36), elf.readUInt16LE(0x38)];
  const PT_INTERP = 3;
  return Array.from({ length: count }, (_, i) => elf.readUInt32LE(offset + i * size)).every(
    (type) => type !== PT_INTERP,
  );
}
