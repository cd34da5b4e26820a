// What the blob store needs of the disk beyond reading and writing files.
import { open, statfs } from 'node:fs/promises';

/** What has been put into it, or taken out, is durable once this resolves. */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

/** `freeBytes` are what this user may fill. Undefined where there is no such path. */
export async function measureDisk(path: string): Promise<{ bytes: number; freeBytes: number } | undefined> {
  try {
    const { blocks, bavail, bsize } = await statfs(path);
    return { bytes: blocks * bsize, freeBytes: bavail * bsize };
  } catch (error) {
    if (isCode(error, 'ENOENT')) return undefined;
    throw error;
  }
}

/** What of a disk uploads must leave free, so that the database and its deletes go on: the larger of the two. */
export interface DiskReserve {
  /** A share of the whole disk, from 0 to 1. */
  share: number;
  bytes: number;
}

/** Whether `moreBytes` still fit without using up the reserve. */
export async function leavesReserve(path: string, reserve: DiskReserve, moreBytes: number): Promise<boolean> {
  const disk = await measureDisk(path);
  return disk === undefined || disk.freeBytes - moreBytes >= Math.max(reserve.share * disk.bytes, reserve.bytes);
}

/** Whether the system refused with this code, e.g. `ENOENT`. */
export function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code;
}
