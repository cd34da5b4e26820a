// Writes files that survive a crash at any instant: to a temporary file, flushed, renamed over the old one, and the folder flushed too.
import { constants } from 'node:fs';
import { copyFile, mkdir, open, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { z } from 'zod';
import { codeOf } from '../../shared/errors.ts';

const COMPARE_BYTES = 1024 * 1024;

/** Storage for state that must survive a restart. */
export interface StateFiles {
  /** Undefined if there is no such file. Rejects with the file's name if the content does not fit the schema. */
  read<T>(file: string, schema: z.ZodType<T>): Promise<T | undefined>;
  /** Replaces the value. A reader finds the whole old or the whole new value, even after a crash. */
  write(file: string, value: unknown): Promise<void>;
  /** Names in a folder, which is created if it does not exist. */
  list(folder: string): Promise<string[]>;
  /** Removes a file or folder if it exists. */
  remove(path: string): Promise<void>;
}

/** Storage on the disk of this host. */
export const DISK: StateFiles = {
  read: readJson,
  write: writeJson,
  list: async (folder) => {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    return readdir(folder);
  },
  remove: removePath,
};

/** Writes `text` so that a reader always finds the whole old or the whole new content. Creates parent folders (0700). */
export async function writeFileSafely(file: string, text: string | Uint8Array, mode = 0o600): Promise<void> {
  await mkdir(dirname(file), { recursive: true, mode: 0o700 });
  await replaceFile(file, mode, (temporary) => writeFile(temporary, text, { mode }));
}

/** Copies a file so that a reader finds the whole old or the whole new content. If the file system can, both files share their blocks. */
export async function copyFileSafely(source: string, file: string, mode: number): Promise<void> {
  await replaceFile(file, mode, (temporary) => copyFile(source, temporary, constants.COPYFILE_FICLONE));
}

/** Stores a value as JSON, crash-safe. */
export function writeJson(file: string, value: unknown): Promise<void> {
  return writeFileSafely(file, `${JSON.stringify(value, null, 2)}\n`);
}

/** The value in a JSON file; undefined if there is none. Throws with the file's name if the content does not fit the schema. */
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

/** Whether two files have the same bytes. Rejects if one does not exist. */
export async function haveSameContent(one: string, other: string): Promise<boolean> {
  const [oneFile, otherFile] = await Promise.all([open(one), open(other)]);
  try {
    const oneBuffer = Buffer.allocUnsafe(COMPARE_BYTES);
    const otherBuffer = Buffer.allocUnsafe(COMPARE_BYTES);
    for (;;) {
      const [oneRead, otherRead] = await Promise.all([oneFile.read(oneBuffer), otherFile.read(otherBuffer)]);
      const piece = oneBuffer.subarray(0, oneRead.bytesRead);
      if (!piece.equals(otherBuffer.subarray(0, otherRead.bytesRead))) return false;
      if (piece.length === 0) return true;
    }
  } finally {
    await Promise.all([oneFile.close(), otherFile.close()]);
  }
}

/** Removes a file, or a folder with its content, if it exists. */
export function removePath(path: string): Promise<void> {
  return rm(path, { recursive: true, force: true });
}

/** True if a call failed because the file or folder does not exist. */
export function isMissing(error: unknown): boolean {
  return codeOf(error) === 'ENOENT';
}

async function replaceFile(file: string, mode: number, write: (temporary: string) => Promise<void>): Promise<void> {
  const temporary = `${file}.new`;
  await write(temporary);
  await renameSafely(temporary, file, mode);
}

/** Gives a written file its final name and mode. Even after a crash, a file of that name is whole. */
export async function renameSafely(temporary: string, file: string, mode: number): Promise<void> {
  const handle = await open(temporary, 'r');
  try {
    await handle.chmod(mode);
    await handle.sync();
  } finally {
    await handle.close();
  }
  await rename(temporary, file);
  await syncFolder(dirname(file));
}

/** Flushes a folder, so that files created in it survive a crash. */
export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
