// What our guest needs inside a container that has nothing: itself as one file, Node, the loader and libraries, and the terminal module.
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { chmod, copyFile, mkdir, readFile, realpath, rename, stat, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { basename, join } from 'node:path';
import { isMissing, removePath } from '../host/state.ts';
import { run } from '../host/run.ts';

/** A folder of the host that is mounted read-only at `KIT_TARGET`; named by its content, so an upgrade makes a new one. */
export interface Kit {
  folder: string;
  /** The program line inside the container; the door folder follows as last argument. */
  entrypoint: string[];
}

export const KIT_TARGET = '/.svc';
export const DOOR_TARGET = `${KIT_TARGET}/door`;

const LDD_MS_MAX = 20_000;
/** The guest carries bytes and keeps none: this is room enough, and a leak ends the guest before it starves the tenant. */
const GUEST_HEAP_MIB = 128;

/** Makes the kit below `stateDir`, or finds the one an earlier start made. Needs glibc's `ldd` on the host. */
export async function prepareKit(stateDir: string): Promise<Kit> {
  const program = await bundleGuest();
  const node = await realpath(process.execPath);
  const ptyModule = createRequire(import.meta.url).resolve(
    `@lydell/node-pty-${process.platform}-${process.arch}/pty.node`,
  );
  const libraries = await librariesOf([node, ptyModule]);
  const name = await contentName(program, [node, ptyModule, libraries.loader, ...libraries.files]);
  const folder = join(stateDir, 'kits', name);
  const loader = basename(libraries.loader);
  const kit = { folder, entrypoint: entrypointOf(loader) };
  if (await exists(folder)) return kit;

  const temporary = `${folder}.new`;
  await removePath(temporary);
  await mkdir(join(temporary, 'lib'), { recursive: true });
  // A mount needs a place: each workload's door is mounted over this one.
  await mkdir(join(temporary, 'door'));
  await place(node, join(temporary, 'node'), 0o755);
  await place(ptyModule, join(temporary, 'pty.node'), 0o644);
  await place(libraries.loader, join(temporary, loader), 0o755);
  for (const file of libraries.files) await place(file, join(temporary, 'lib', basename(file)), 0o644);
  await writeFile(join(temporary, 'guest.cjs'), program, { mode: 0o644 });
  for (const path of [temporary, join(temporary, 'lib'), join(temporary, 'door')]) await chmod(path, 0o755);
  await rename(temporary, folder);
  return kit;
}

/** The shared libraries and the loader that `ldd` names, `text` being its output for one or more programs. */
export function parseLdd(text: string): { loader: string | undefined; files: string[] } {
  const files = new Set<string>();
  let loader: string | undefined;
  for (const line of text.split('\n')) {
    const found = /^\s+(\S+)(?: => (\S+))? \(0x[0-9a-f]+\)$/.exec(line);
    const path = found?.[2] ?? found?.[1];
    if (path === undefined || !path.startsWith('/')) continue;
    if (/\/ld-[^/]+$/.test(path)) loader = path;
    else files.add(path);
  }
  return { loader, files: [...files] };
}

function entrypointOf(loader: string): string[] {
  return [
    `${KIT_TARGET}/${loader}`,
    '--library-path',
    `${KIT_TARGET}/lib`,
    `${KIT_TARGET}/node`,
    `--max-old-space-size=${GUEST_HEAP_MIB}`,
    // A tenant's SIGUSR1 would otherwise open Node's debugger.
    '--disable-sigusr1',
    `${KIT_TARGET}/guest.cjs`,
  ];
}

async function bundleGuest(): Promise<Uint8Array> {
  const result = await build({
    entryPoints: [new URL('guest/main.ts', import.meta.url).pathname],
    bundle: true,
    platform: 'node',
    target: 'node24',
    format: 'cjs',
    write: false,
    logLevel: 'silent',
  });
  const file = result.outputFiles[0];
  if (file === undefined) throw new Error('the guest could not be bundled');
  return file.contents;
}

async function librariesOf(programs: string[]): Promise<{ loader: string; files: string[] }> {
  const result = await run(['ldd', ...programs], { timeoutMs: LDD_MS_MAX });
  const { loader, files } = parseLdd(result.stdout);
  if (result.code !== 0 || loader === undefined) {
    throw new Error(`ldd could not name the libraries of ${programs.join(' and ')}: ${result.stderr.trim()}`);
  }
  return { loader, files };
}

/** Large files are told apart by path, size and time: hashing 120 MB at every start would be slow for nothing. */
async function contentName(program: Uint8Array, files: string[]): Promise<string> {
  const hash = createHash('sha256')
    .update(program)
    .update(await readFile(new URL(import.meta.url)));
  for (const file of files) {
    const { size, mtimeMs } = await stat(file);
    hash.update(`\n${file} ${size} ${mtimeMs}`);
  }
  return hash.digest('hex').slice(0, 16);
}

async function place(source: string, target: string, mode: number): Promise<void> {
  await copyFile(source, target, constants.COPYFILE_FICLONE);
  await chmod(target, mode);
}

async function exists(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (error) {
    if (isMissing(error)) return false;
    throw error;
  }
}
