// The disk under the blob store: durable directories, the free space that must remain, and the removal of leftovers of dead processes. A sweep never
// removes a blob with a row, or a young one.
import { readdir, rm, stat, open, statfs } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import { codeOf } from '../../../shared/errors.ts';
import { type BlobOwner, isKeyOf } from './keys.ts';

/** One function for each owner returns those of the keys that have a row. Blobs of an owner without a function are kept. */
export type Claims = Partial<Record<BlobOwner, (keys: readonly string[]) => Promise<readonly string[]>>>;

/** A blob without a row is removed at this age. A row is written within seconds of its blob, so a younger blob may still get one. */
const ORPHAN_MS = 3_600_000;

interface SweepDeps {
  clock: Clock;
  log: Log;
  halves: string;
  whole: string;
  /** Names of the files that this process is writing. */
  writing: ReadonlySet<string>;
}

/** Returns the number of removed files. */
export async function sweepBlobs(deps: SweepDeps, claims: Claims, signal: AbortSignal): Promise<number> {
  let removed = 0;
  for (const name of await namesIn(deps.halves)) {
    // Only one process writes here, so an unknown file belongs to a process that has died.
    if (deps.writing.has(name)) continue;
    await rm(join(deps.halves, name), { force: true });
    removed += 1;
  }
  for (const [owner, claimed] of Object.entries(claims)) {
    for (const place of await namesIn(join(deps.whole, owner))) {
      if (signal.aborted) return removed;
      const path = join(deps.whole, owner, place);
      const keys = (await namesIn(path)).filter((name) => isKeyOf(owner, name));
      removed += await sweepPlace({ path, keys }, claimed, deps);
    }
  }
  if (removed > 0) deps.log.info({ removed }, 'files that dead processes left in the blob store were removed');
  return removed;
}

/** Resolves when all changes of the directory's entries are on disk. */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

/**
 * `freeBytes` is the space that this user may fill. A folder that the first blob will make is on the disk of the nearest one above it that is there,
 * so that a disk which is full already is seen before that.
 */
export async function measureDisk(path: string): Promise<{ bytes: number; freeBytes: number }> {
  try {
    const { blocks, bavail, bsize } = await statfs(path);
    return { bytes: blocks * bsize, freeBytes: bavail * bsize };
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error;
    return measureDisk(dirname(path));
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
  return disk.freeBytes - moreBytes >= reserveOf(disk, reserve);
}

export function reserveOf({ bytes }: { bytes: number }, reserve: DiskReserve): number {
  return Math.ceil(Math.max(reserve.share * bytes, reserve.bytes));
}

async function sweepPlace(
  { path, keys }: { path: string; keys: readonly string[] },
  claimed: NonNullable<Claims[BlobOwner]>,
  { clock }: SweepDeps,
): Promise<number> {
  const old: string[] = [];
  for (const key of keys) {
    const found = await stat(join(path, key)).catch(() => undefined);
    if (found !== undefined && found.mtimeMs <= clock.now() - ORPHAN_MS) old.push(key);
  }
  if (old.length === 0) return 0;
  const named = new Set(await claimed(old));
  const orphans = old.filter((key) => !named.has(key));
  for (const key of orphans) await rm(join(path, key), { force: true });
  return orphans.length;
}

/** Empty if there is no such directory. */
async function namesIn(directory: string): Promise<string[]> {
  try {
    return await readdir(directory);
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes(codeOf(error) ?? '')) return [];
    throw error;
  }
}
