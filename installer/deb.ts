// Makes the Debian packages: control plane, agent and command line, each with its own Node, below /usr/lib/<package>.
//
// The daemons have the users, folders and units that install.sh gives them. What it does to the system is in deb/, as maintainer scripts.
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { build } from 'esbuild';
import { VERSION } from '../shared/version.ts';
import { FILE_TIME, ROOT } from './tree.ts';

interface DebianPackage {
  name: string;
  depends: string;
  recommends?: string;
  description: string;
  /** Puts its own files into the folder that becomes `/`; `lib` is `/usr/lib/<package>` in it. */
  fill(tree: string, root: string, lib: string): Promise<void>;
  /** The systemd unit, for a daemon. */
  unit?: string;
}

/** The SQLite of the control plane is built against a newer C library than Node. */
const CONTROL_PLANE_NEEDS = 'libc6 (>= 2.34), libstdc++6, passwd, systemd';
const NODE_NEEDS = 'libc6 (>= 2.28), libstdc++6';
/** Files and folders of the tree that every daemon needs in addition to its own folder. */
const COMMON = ['shared', 'node_modules', 'package.json', 'LICENSE', 'BUILD'];

const PACKAGES: readonly DebianPackage[] = [
  {
    ...daemon('control-plane', ['alerts.yaml', 'dashboards']),
    name: 'gpu-rental-control-plane',
    depends: CONTROL_PLANE_NEEDS,
    description: 'control plane of a GPU rental and inference service',
  },
  {
    ...daemon('agent'),
    name: 'gpu-rental-agent',
    depends: `${NODE_NEEDS}, nftables, systemd`,
    recommends: 'docker.io | docker-ce, nvidia-container-toolkit',
    description: 'agent of a GPU rental service, for the host whose GPUs are rented out',
  },
  {
    name: 'gpu-rental-cli',
    depends: NODE_NEEDS,
    recommends: 'openssh-client',
    description: 'command line of a GPU rental service: svc',
    fill: fillCli,
  },
];

/** Builds all packages of the tree into `folder` and returns their paths. `work` is a folder for temporary files. */
export async function buildDebs(tree: string, { work, folder }: { work: string; folder: string }): Promise<string[]> {
  const files: string[] = [];
  for (const each of PACKAGES) {
    const root = join(work, each.name);
    const lib = join(root, 'usr/lib', each.name);
    mkdirSync(join(lib, 'bin'), { recursive: true });
    mkdirSync(join(root, 'usr/bin'), { recursive: true });
    for (const file of ['node', 'node.LICENSE']) cpSync(join(tree, 'bin', file), join(lib, 'bin', file));
    put(join(root, 'usr/share/doc', each.name, 'copyright'), readFileSync(join(tree, 'LICENSE'), 'utf8'));
    await each.fill(tree, root, lib);
    // Sets the file modes independently of the umask. The control files are written later, because some of them are scripts.
    execFileSync('chmod', ['-R', 'u=rwX,go=rX', root]);
    if (each.unit !== undefined) chmodSync(configOf(root, each.unit), 0o640);
    writeControl(each, root);
    files.push(pack(each, root, folder));
  }
  return files;
}

/** `monitoring`: names in `systemd` that an operator gives to other programs. They get into `/usr/share/<package>`. */
function daemon(
  role: 'control-plane' | 'agent',
  monitoring: readonly string[] = [],
): Pick<DebianPackage, 'fill' | 'unit'> {
  const unit = `svc-${role}`;
  const fill = async (tree: string, root: string, lib: string): Promise<void> => {
    for (const part of [role, ...COMMON]) cpSync(join(tree, part), join(lib, part), { recursive: true });
    cpSync(join(tree, 'bin', unit), join(lib, 'bin', unit));
    const inRoot = lib.slice(root.length);
    symlinkSync(`..${inRoot.slice('/usr'.length)}/bin/${unit}`, join(root, 'usr/bin', unit));
    const text = readFileSync(join(tree, `systemd/${unit}.service`), 'utf8');
    put(
      join(root, `usr/lib/systemd/system/${unit}.service`),
      text.replaceAll(`/opt/gpu-rental-service/${unit}`, inRoot),
    );
    const share = join(root, 'usr/share', basename(lib));
    for (const part of monitoring) cpSync(join(tree, 'systemd', part), join(share, part), { recursive: true });
    put(configOf(root, unit), readFileSync(join(tree, `etc/${role}.yaml`), 'utf8'));
  };
  return { unit, fill };
}

function configOf(root: string, unit: string): string {
  return join(root, 'etc', unit, `${unit.slice('svc-'.length)}.yaml`);
}

/** The command is one file of code, so it starts fast and needs no packages. */
async function fillCli(_tree: string, root: string, lib: string): Promise<void> {
  await build({
    entryPoints: [join(ROOT, 'control-plane/cli/main.ts')],
    absWorkingDir: ROOT,
    outfile: join(lib, 'svc.mjs'),
    bundle: true,
    platform: 'node',
    target: 'node24',
    format: 'esm',
    // Packages in the older format ask for modules of Node by `require`.
    banner: { js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);" },
    logLevel: 'silent',
  });
  const launcher = join(root, 'usr/bin/svc');
  const find = 'here=$(dirname "$(readlink -f "$0")")/../lib/gpu-rental-cli';
  put(launcher, `#!/bin/sh\n${find}\nexec "$here/bin/node" "$here/svc.mjs" "$@"\n`);
  chmodSync(launcher, 0o755);
}

function put(file: string, text: string): void {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}

function writeControl({ name, depends, recommends, description, unit }: DebianPackage, root: string): void {
  const kib = Math.ceil(bytesOf(root) / 1024);
  const lines = [
    `Package: ${name}`,
    `Version: ${debianVersion()}`,
    'Architecture: amd64',
    'Maintainer: GPU rental service <root@localhost>',
    `Installed-Size: ${kib}`,
    `Depends: ${depends}`,
    ...(recommends === undefined ? [] : [`Recommends: ${recommends}`]),
    'Section: admin',
    'Priority: optional',
    `Description: ${description}`,
  ];
  put(join(root, 'DEBIAN/control'), `${lines.join('\n')}\n`);
  chmodSync(join(root, 'DEBIAN'), 0o755);
  chmodSync(join(root, 'DEBIAN/control'), 0o644);
  if (unit === undefined) return;
  put(join(root, 'DEBIAN/conffiles'), `${configOf('/', unit)}\n`);
  chmodSync(join(root, 'DEBIAN/conffiles'), 0o644);
  for (const script of ['preinst', 'postinst', 'prerm', 'postrm']) {
    const file = join(root, 'DEBIAN', script);
    put(file, readFileSync(join(ROOT, 'installer/deb', script), 'utf8').replaceAll('@unit@', unit));
    chmodSync(file, 0o755);
  }
}

/** The version with a tilde before the suffix. Debian sorts a tilde before the end of a text, so a test version is older than its release. */
function debianVersion(): string {
  return VERSION.replace('-', '~');
}

function bytesOf(folder: string): number {
  const paths = readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((path) => join(folder, path));
  return paths.reduce((sum, path) => sum + (existsSync(path) && statSync(path).isFile() ? statSync(path).size : 0), 0);
}

function pack({ name }: DebianPackage, root: string, folder: string): string {
  const file = join(folder, `${name}_${debianVersion()}_amd64.deb`);
  // SOURCE_DATE_EPOCH is the latest time that dpkg-deb writes. The output of zstd depends on the number of threads, so there is one thread.
  // Level 6 of zstd gives files of the size that xz gives at level 0, in a third of the time. Installing them takes a tenth of the time.
  const epoch = `SOURCE_DATE_EPOCH=${Date.parse(FILE_TIME) / 1000}`;
  const options = ['--root-owner-group', '-Zzstd', '-z6', '--threads-max=1'];
  execFileSync('env', [epoch, 'dpkg-deb', ...options, '--build', root, file], { stdio: 'pipe' });
  return file;
}
