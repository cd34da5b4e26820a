// Puts our programs where containers find them: the holder with the page of the browser console, and the guest with everything that it needs
// inside a container (Node, loader, libraries), because an image may have none of it.
import { createHash } from 'node:crypto';
import { chmod, mkdir, readdir, readFile, realpath, stat } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { copyFileSafely, haveSameContent, isMissing, removePath, syncFolder, writeFileSafely } from '../host/state.ts';
import { run } from '../host/run.ts';
import type { Mount } from '../runtime/engine.ts';

/** The bundle lies in a folder that is named after its content, so an upgrade creates a new one beside the one in use. */
export interface Bundle {
  /** Mounted read-only at `BUNDLE_TARGET`. */
  folder: string;
  /** Starts the holder. One file starts in a third of the time of its sources, and a restarted holder has the same version. */
  holderProgram: string;
  /** Node inside a container, where the bundle is mounted at `BUNDLE_TARGET`; its arguments follow. */
  node: string[];
  /** The guest's command line inside the container; the run folder follows as last argument. */
  entrypoint: string[];
}

export const BUNDLE_TARGET = '/.svc';
export const RUN_TARGET = `${BUNDLE_TARGET}/run`;

/** Made by `npm run build`, and part of every package. */
const BUILT = join(import.meta.dirname, '../dist');
const PAGE_FILES = ['index.html', 'page.css', 'page.js'];
/** Holders share a compile cache, because a customer waits for each start. */
const HOLDER_START = Buffer.from(
  "require('node:module').enableCompileCache(`${__dirname}/compiled`);\nrequire('./holder-program.cjs');\n",
);
/** Node's OpenSSL loads the modules that this file names. Without our empty file it would read the image's. */
const OPENSSL_CONFIG = 'openssl.cnf';
const NO_CONFIG = Buffer.from('# Nothing: the image chooses no module of our program.\n');
const LDD_MS_MAX = 20_000;
/** The guest only passes bytes on, so this is enough. A leak ends the guest before it takes the tenant's memory. */
const GUEST_HEAP_MIB = 128;

/**
 * Makes the bundle below `stateDir`, or finds that of an earlier start. Each file is compared with its source, so a file that a power
 * cut has damaged is written again. Needs glibc's `ldd` on the host. `built` is the folder that `npm run build` fills.
 * @throws Error if it was not run here
 */
export async function prepareBundle(stateDir: string, built: string = BUILT): Promise<Bundle> {
  const [guest, holder, page] = await Promise.all([
    builtProgram(built, 'guest.cjs'),
    builtProgram(built, 'holder.cjs'),
    Promise.all(PAGE_FILES.map(async (name) => ({ name, contents: await builtProgram(built, join('page', name)) }))),
  ]);
  const node = await realpath(process.execPath);
  const ptyModule = createRequire(import.meta.url).resolve(
    `@lydell/node-pty-${process.platform}-${process.arch}/pty.node`,
  );
  const libraries = await librariesOf([node, ptyModule]);
  const sealed = sealedLoader(await readFile(libraries.loader));
  const programs = [guest, holder, sealed, ...page.map((file) => file.contents)];
  const name = await contentName(programs, [node, ptyModule, ...libraries.files]);
  const bundleFolder = join(stateDir, 'bundles', name);
  const folder = join(bundleFolder, 'guest');
  const loader = basename(libraries.loader);
  await makeFolders(folder);
  await placeAll([
    { source: node, target: join(folder, 'node'), mode: 0o755 },
    { source: ptyModule, target: join(folder, 'pty.node'), mode: 0o644 },
    { source: sealed, target: join(folder, loader), mode: 0o755 },
    { source: NO_CONFIG, target: join(folder, OPENSSL_CONFIG), mode: 0o644 },
    ...libraries.files.map((file) => ({ source: file, target: join(folder, 'lib', basename(file)), mode: 0o644 })),
    { source: guest, target: join(folder, 'guest.cjs'), mode: 0o644 },
    { source: holder, target: join(bundleFolder, 'holder-program.cjs'), mode: 0o600 },
    { source: HOLDER_START, target: join(bundleFolder, 'holder.cjs'), mode: 0o600 },
    ...page.map((file) => ({ source: file.contents, target: join(bundleFolder, 'page', file.name), mode: 0o644 })),
  ]);
  return {
    folder,
    holderProgram: join(bundleFolder, 'holder.cjs'),
    node: nodeOf(loader),
    entrypoint: entrypointOf(loader),
  };
}

/** How to run Node in a container that has nothing else: its command line (arguments follow) and its mounts. */
export function bareNode(bundle: Bundle): { argv: string[]; mounts: Mount[] } {
  return { argv: bundle.node, mounts: [{ source: bundle.folder, target: BUNDLE_TARGET }] };
}

/** Removes bundles of earlier versions (over 100 MB each) that no container uses. `inUse`: folders that are mounted into containers. */
export async function removeOldBundles(stateDir: string, bundle: Bundle, inUse: readonly string[]): Promise<string[]> {
  const bundles = join(stateDir, 'bundles');
  const current = basename(dirname(bundle.folder));
  const names = await readdir(bundles);
  const old = names.filter(
    (name) => name !== current && !inUse.some((path) => path.startsWith(join(bundles, name, '/'))),
  );
  for (const name of old) await removePath(join(bundles, name));
  return old;
}

/** The shared libraries and the loader in `text`, the output of `ldd` for one or more programs. */
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

/** glibc's loader puts the libraries that this file names into every program. No option of the loader turns that off. */
const PRELOAD_FILE = Buffer.from('/etc/ld.so.preload\0');

/**
 * The loader without its preload file: the file's name in it becomes empty, and an empty name is never found. Only this copy changes;
 * programs of the image use the image's own loader. Throws if the loader does not contain the name.
 */
export function sealedLoader(loader: Buffer): Buffer {
  const sealed = Buffer.from(loader);
  let at = sealed.indexOf(PRELOAD_FILE);
  if (at < 0) {
    throw new Error(
      "the host's program loader is not glibc's: an image could put libraries into our program inside it",
    );
  }
  for (; at >= 0; at = sealed.indexOf(PRELOAD_FILE, at)) sealed.fill(0, at, at + PRELOAD_FILE.length);
  return sealed;
}

function nodeOf(loader: string): string[] {
  return [
    `${BUNDLE_TARGET}/${loader}`,
    // The image's cache could name libraries of the image.
    '--inhibit-cache',
    '--library-path',
    `${BUNDLE_TARGET}/lib`,
    `${BUNDLE_TARGET}/node`,
    `--openssl-config=${BUNDLE_TARGET}/${OPENSSL_CONFIG}`,
  ];
}

function entrypointOf(loader: string): string[] {
  return [
    ...nodeOf(loader),
    `--max-old-space-size=${GUEST_HEAP_MIB}`,
    // A tenant's SIGUSR1 would otherwise open Node's debugger.
    '--disable-sigusr1',
    `${BUNDLE_TARGET}/guest.cjs`,
  ];
}

/** @throws Error if the programs were not built here */
async function builtProgram(built: string, name: string): Promise<Uint8Array> {
  try {
    return await readFile(join(built, name));
  } catch (error) {
    if (isMissing(error)) throw new Error("the agent's programs were not built here: run npm run build");
    throw error;
  }
}

async function librariesOf(programs: string[]): Promise<{ loader: string; files: string[] }> {
  const result = await run(['ldd', ...programs], { timeoutMs: LDD_MS_MAX });
  const { loader, files } = parseLdd(result.stdout);
  if (result.code !== 0 || loader === undefined) {
    throw new Error(`ldd could not name the libraries of ${programs.join(' and ')}: ${result.stderr.trim()}`);
  }
  return { loader, files };
}

/** Large files are identified by path, size and time, because hashing their content takes too long. */
async function contentName(programs: Uint8Array[], files: string[]): Promise<string> {
  const hash = createHash('sha256').update(await readFile(new URL(import.meta.url)));
  for (const program of programs) hash.update(program);
  for (const file of files) {
    const { size, mtimeMs } = await stat(file);
    hash.update(`\n${file} ${size} ${mtimeMs}`);
  }
  return hash.digest('hex').slice(0, 16);
}

async function makeFolders(guestFolder: string): Promise<void> {
  const bundleFolder = dirname(guestFolder);
  // A mount needs an existing folder as its target: the `run/` of each workload is mounted over this `run`.
  const guestFolders = [guestFolder, join(guestFolder, 'lib'), join(guestFolder, 'run')];
  for (const path of [...guestFolders, join(bundleFolder, 'page')]) await mkdir(path, { recursive: true });
  for (const path of guestFolders) await chmod(path, 0o755);
  for (const path of [guestFolder, bundleFolder, dirname(bundleFolder), dirname(dirname(bundleFolder))])
    await syncFolder(path);
}

interface BundleFile {
  /** A path, or the content itself. */
  source: string | Uint8Array;
  target: string;
  mode: number;
}

async function placeAll(files: BundleFile[]): Promise<void> {
  for (const file of files) {
    const { source, target, mode } = file;
    if (await isPlaced(file)) continue;
    if (typeof source === 'string') await copyFileSafely(source, target, mode);
    else await writeFileSafely(target, source, mode);
  }
}

async function isPlaced({ source, target, mode }: BundleFile): Promise<boolean> {
  try {
    const { mode: placedMode } = await stat(target);
    if ((placedMode & 0o777) !== mode) return false;
    return typeof source === 'string' ? await haveSameContent(source, target) : (await readFile(target)).equals(source);
  } catch (error) {
    if (isMissing(error)) return false;
    throw error;
  }
}
