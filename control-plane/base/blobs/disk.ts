// Disk functions of the blob store beyond reading and writing files.
import { open, statfs } from 'node:fs/promises';

/** Resolves when all changes of the directory's entries are on disk. */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

/** `freeBytes` is the space that this user may fill. Undefined if the path does not exist. */
export async function measureDisk(path: string): Promise<{ bytes: number; freeBytes: number } | undefined> {
  try {
    const { blocks, bavail, bsize } = await statfs(path);
    return { bytes: blocks * bsize, freeBytes: bavail * bsize };
  } catch (error) {
    if (isCode(error, 'ENOENT')) return undefined;
    throw error;
  }
}

/** The disk space that uploads must leave free, so that the database can go on. The larger of the two values counts. */
export interface DiskReserve {
  /** A fraction of the whole disk, from 0 to 1. */
  share: number;
  bytes: number;
}

/** Whether `moreBytes` fit without using up the reserve. */
export async function leavesReserve(path: string, reserve: DiskReserve, moreBytes: number): Promise<boolean> {
  const disk = await measureDisk(path);
  return disk === undefined || disk.freeBytes - moreBytes >= Math.max(reserve.share * disk.bytes, reserve.bytes);
}

/** Whether the error has this system code, such as `ENOENT`. */
export function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code;
}
