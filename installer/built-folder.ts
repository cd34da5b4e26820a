// Fills a folder with what a build has made, while programs may read it: no file is missing or half written.
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';

/** The name of a folder with a build that is not finished begins with this. It lies in the folder that it will fill. */
export const UNFINISHED = '.building-';

/**
 * Lets `build` write into an empty folder, and moves its files to `folder` when it has resolved. Other files of `folder` are removed, also what a
 * build that was killed has left.
 */
export async function fillFolder(folder: string, build: (fresh: string) => Promise<void>): Promise<void> {
  removeLeftovers(folder);
  const fresh = join(folder, `${UNFINISHED}${process.pid}`);
  try {
    await build(fresh);
    replaceFiles(folder, fresh);
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
}

function removeLeftovers(folder: string): void {
  const names = existsSync(folder) ? readdirSync(folder) : [];
  const builds = names.filter((name) => name.startsWith(UNFINISHED));
  for (const name of builds.filter((each) => !isRunning(Number(each.slice(UNFINISHED.length)))))
    rmSync(join(folder, name), { recursive: true, force: true });
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
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
