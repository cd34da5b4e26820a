// Files that survive a crash at any instant: written beside their place, flushed, renamed over it, and the folder flushed too.
import { mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { z } from 'zod';

/** Writes `text` so that a reader finds the old or the new content whole, whatever happens. Parents are made (0700). */
export async function writeFileSafely(file: string, text: string, mode = 0o600): Promise<void> {
  const folder = dirname(file);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const temporary = `${file}.new`;
  const handle = await open(temporary, 'w', mode);
  try {
    await handle.writeFile(text);
    await handle.chmod(mode);
    await handle.sync();
  } finally {
    await handle.close();
  }
  await rename(temporary, file);
  await syncFolder(folder);
}

/** Stores a value as JSON, crash-safe. */
export function writeJson(file: string, value: unknown): Promise<void> {
  return writeFileSafely(file, `${JSON.stringify(value, null, 2)}\n`);
}

/** The value in a JSON file, or undefined where there is none. Throws, naming the file, where it does not fit the schema. */
export async function readJson<T>(file: string, schema: z.ZodType<T>): Promise<T | undefined> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
  try {
    return schema.parse(JSON.parse(text));
  } catch (error) {
    throw new Error(`${file} is damaged`, { cause: error });
  }
}

/** Removes a file or folder with all it holds; nothing happens where there is none. */
export function removePath(path: string): Promise<void> {
  return rm(path, { recursive: true, force: true });
}

/** True where a call failed because the file or folder does not exist. */
export function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT';
}

async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
