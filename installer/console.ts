// Builds the console from `control-plane/console/web` into `control-plane/console/dist`, which the control plane serves.
import { resolve } from 'node:path';
import { build } from 'vite';
import { fillFolder } from './built-folder.ts';

const ROOM = resolve(import.meta.dirname, '../control-plane/console');

/**
 * The same sources give the same files. A control plane may read the folder meanwhile, so no file is missing or half written.
 * @throws Error if a source cannot be compiled
 */
export async function buildConsole(outDir: string = resolve(ROOM, 'dist')): Promise<void> {
  await fillFolder(outDir, buildInto);
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

if (import.meta.main) await buildConsole();
