// Builds the packages: one tarball for install.sh, with Node and all our programs, and Debian packages of the same files. The same sources always
// give the same bytes.
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { VERSION } from '../shared/version.ts';
import { buildAgentPrograms } from './agent-programs.ts';
import { buildConsole } from './console.ts';
import { buildDebs } from './deb.ts';
import { FILE_TIME, makeTree, ROOT } from './tree.ts';

export interface Package {
  /** Path of the tarball; its SHA-256 is in the file with `.sha256` appended to the name. */
  file: string;
  /** Version and digest of the files, from `makeTree`. */
  build: string;
}

/** Builds the tarball into `folder`. @throws Error see `makeTree` */
export function buildPackage(folder: string): Package {
  const name = `gpu-rental-service-${VERSION}-linux-x64`;
  mkdirSync(folder, { recursive: true });
  const work = mkdtempSync(join(tmpdir(), 'package-'));
  try {
    const build = makeTree(join(work, name));
    const file = join(folder, `${name}.tar.gz`);
    const fixed = ['--sort=name', '--owner=0', '--group=0', '--numeric-owner', `--mtime=${FILE_TIME}`];
    const modes = '--mode=u=rwX,go=rX';
    execFileSync('tar', [...fixed, modes, '--format=gnu', '-I', 'gzip -n', '-C', work, '-cf', file, name]);
    writeSum(file);
    return { file, build };
  } finally {
    rmSync(work, { recursive: true });
  }
}

/** Builds the Debian packages into `folder` and returns their paths. @throws Error see `makeTree` */
export async function buildDebianPackages(folder: string): Promise<string[]> {
  mkdirSync(folder, { recursive: true });
  const work = mkdtempSync(join(tmpdir(), 'package-'));
  try {
    const tree = join(work, 'tree');
    makeTree(tree);
    const files = await buildDebs(tree, { work, folder });
    for (const file of files) writeSum(file);
    return files;
  } finally {
    rmSync(work, { recursive: true });
  }
}

function writeSum(file: string): void {
  const sum = createHash('sha256').update(readFileSync(file)).digest('hex');
  writeFileSync(`${file}.sha256`, `${sum}  ${basename(file)}\n`);
}

if (import.meta.main) {
  await Promise.all([buildConsole(), buildAgentPrograms()]);
  const dist = join(ROOT, 'dist');
  const { file, build } = buildPackage(dist);
  console.log(`${file} (${build})`);
  if (spawnSync('dpkg-deb', ['--version']).error !== undefined) {
    console.log('no Debian packages are made: dpkg-deb is missing here');
  } else {
    for (const deb of await buildDebianPackages(dist)) console.log(deb);
  }
}
