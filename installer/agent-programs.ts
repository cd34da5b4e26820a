// Builds the programs that the agent starts outside itself into `agent/dist`: the holder with the page of the browser console, and the guest.
import { build } from 'esbuild';
import { copyFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fillFolder } from './built-folder.ts';

const AGENT = resolve(import.meta.dirname, '../agent');
const PAGE = join(AGENT, 'holder/page');

/** The last argument is the workload's folder; the page lies beside the program. */
const HOLDER_RUN = "void program.runHolder(process.argv.at(-1) ?? '', `${__dirname}/page`);";

/**
 * Writes `guest.cjs`, `holder.cjs` and `page/` with `index.html`, `page.js` and `page.css`. The same sources give the same files. An agent may read
 * the folder meanwhile. @throws Error if a source cannot be compiled
 */
export async function buildAgentPrograms(): Promise<void> {
  await fillFolder(join(AGENT, 'dist'), async (outDir) => {
    await Promise.all([
      bundle('guest/main.ts', join(outDir, 'guest.cjs')),
      bundle('holder/main.ts', join(outDir, 'holder.cjs'), HOLDER_RUN),
      bundlePage(join(outDir, 'page')),
    ]);
  });
}

/** Bundles the program whose first file is `source` (below `agent/`) into one file, with `start` as its last line. */
async function bundle(source: string, outfile: string, start = ''): Promise<void> {
  await build({
    stdin: {
      contents: `import * as program from './${source}';\n${start}`,
      resolveDir: AGENT,
      // The loader `ts` would drop an import whose name is not used.
      loader: 'js',
    },
    // The comments in a bundle name its sources by their paths from this folder. So the folder of the checkout does not change the bundle.
    absWorkingDir: AGENT,
    outfile,
    bundle: true,
    platform: 'node',
    target: 'node24',
    format: 'cjs',
    logLevel: 'silent',
    // ssh2's optional native helpers: it works without them, and a bundle cannot hold them.
    external: ['cpu-features', '*.node'],
  });
}

async function bundlePage(outdir: string): Promise<void> {
  await build({
    entryPoints: [join(PAGE, 'page.ts'), join(PAGE, 'page.css')],
    absWorkingDir: AGENT,
    outdir,
    bundle: true,
    minify: true,
    target: ['es2022', 'safari16'],
    logLevel: 'silent',
  });
  copyFileSync(join(PAGE, 'index.html'), join(outdir, 'index.html'));
}

if (import.meta.main) await buildAgentPrograms();
