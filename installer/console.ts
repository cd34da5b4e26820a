// Builds the console from `control-plane/console/web` into `control-plane/console/dist`, which the control plane serves.
import { mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { build } from 'vite';

const ROOM = resolve(import.meta.dirname, '../control-plane/console');

/** The name of a folder with a build that is not finished begins with this. */
const UNFINISHED = '.building-';

/**
 * The same sources give the same files. A control plane may read the folder meanwhile, so no file is missing or half written.
 * @throws Error if a source cannot be compiled
 */
export async function buildConsole(outDir: string = resolve(ROOM, 'dist')): Promise<void> {
  const fresh = join(outDir, `${UNFINISHED}${process.pid}`);
  try {
    await buildInto(fresh);
    replaceFiles(outDir, fresh);
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
}

async function buildInto(outDir: string): Promise<void> {
  await build({
    configFile: false,
    root: resolve(ROOM, 'web'),
    base: '/console/',
    logLevel: 'warn',
    // Node runs the sources of both daemons as they are, so JSX is the only thing that must be translated. With NODE_ENV=test, vite would
    // write the path and line of each element into the scripts.
    oxc: { jsx: { runtime: 'automatic', importSource: 'preact', development: false } },
    build: {
      outDir,
      emptyOutDir: true,
      target: 'es2022',
      // The policy of the page allows no data: scripts, and small assets would become data: addresses.
      assetsInlineLimit: 0,
      modulePreload: { polyfill: false },
      reportCompressedSize: false,
    },
  });
}

/** The page comes after the files that it names, and files of an older build go last. */
function replaceFiles(outDir: string, fresh: string): void {
  const files = filesOf(fresh).toSorted((a, b) => Number(a === 'index.html') - Number(b === 'index.html'));
  for (const file of files) {
    mkdirSync(dirname(join(outDir, file)), { recursive: true });
    renameSync(join(fresh, file), join(outDir, file));
  }
  for (const file of filesOf(outDir).filter((each) => !files.includes(each)))
    rmSync(join(outDir, file), { force: true });
}

/** Their paths from the folder on, without those of builds that are not finished. */
function filesOf(folder: string): string[] {
  const entries = readdirSync(folder, { withFileTypes: true }).filter(({ name }) => !name.startsWith(UNFINISHED));
  return entries.flatMap((entry) =>
    entry.isDirectory() ? filesOf(join(folder, entry.name)).map((file) => join(entry.name, file)) : [entry.name],
  );
}

if (import.meta.main) await buildConsole();
