// Fills a folder with what a build has made, while programs may read it: no file is missing or half written.
import { mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';

/** The name of a folder with a build that is not finished begins with this. It lies in the folder that it will fill. */
export const UNFINISHED = '.building-';

/** Lets `build` write into an empty folder, and moves its files to `folder` when it has resolved. Other files of `folder` are removed. */
export async function fillFolder(folder: string, build: (fresh: string) => Promise<void>): Promise<void> {
  const fresh = join(folder, `${UNFINISHED}${process.pid}`);
  try {
    await build(fresh);
    replaceFiles(folder, fresh);
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
}

/** A page comes after the files that it names, and files of an older build go last. */
function replaceFiles(folder: string, fresh: string): void {
  const isPage = (file: string): number => Number(basename(file) === 'index.html');
  const files = filesOf(fresh).toSorted((a, b) => isPage(a) - isPage(b));
  for (const file of files) {
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    renameSync(join(fresh, file), join(folder, file));
  }
  for (const file of filesOf(folder).filter((each) => !files.includes(each)))
    rmSync(join(folder, file), { force: true });
}

/** Their paths from the folder on, without those of builds that are not finished. */
function filesOf(folder: string): string[] {
  const entries = readdirSync(folder, { withFileTypes: true }).filter(({ name }) => !name.startsWith(UNFINISHED));
  return entries.flatMap((entry) =>
    entry.isDirectory() ? filesOf(join(folder, entry.name)).map((file) => join(entry.name, file)) : [entry.name],
  );
}
