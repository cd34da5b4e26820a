// Removes what processes that died have left in the blob store. It never touches what a row names, nor what is young.
import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import { isCode } from './disk.ts';

/** Rooms that keep blobs. Each says in the sweep which of its blobs it still names. */
export type BlobOwner = 'files' | 'videos';

/** Of the keys, those that a row of the owner names. Blobs of an owner who is not asked stay. */
export type Claims = Partial<Record<BlobOwner, (keys: readonly string[]) => Promise<readonly string[]>>>;

/** Between the end of a write and the row that names it lies far less. */
const ORPHAN_MS = 3_600_000;

interface Ground {
  clock: Clock;
  log: Log;
  halves: string;
  whole: string;
  /** Names of the halves that this process is at. */
  writing: ReadonlySet<string>;
  pathOf(key: string): string;
}

/** Returns how many it has removed. */
export async function sweepBlobs(ground: Ground, claims: Claims, signal: AbortSignal): Promise<number> {
  let removed = 0;
  for (const name of await namesIn(ground.halves)) {
    // One process writes here: what it does not know is of one that died.
    if (ground.writing.has(name)) continue;
    await rm(join(ground.halves, name), { force: true });
    removed += 1;
  }
  for (const [owner, claimed] of Object.entries(claims)) {
    for (const place of await namesIn(join(ground.whole, owner))) {
      if (signal.aborted) return removed;
      removed += await sweepPlace(join(ground.whole, owner, place), claimed, ground);
    }
  }
  if (removed > 0) ground.log.info({ removed }, 'what dead processes left in the blob store is removed');
  return removed;
}

async function sweepPlace(
  place: string,
  claimed: NonNullable<Claims[BlobOwner]>,
  { clock, pathOf }: Ground,
): Promise<number> {
  const old: string[] = [];
  for (const key of await namesIn(place)) {
    const found = await stat(join(place, key)).catch(() => undefined);
    if (found !== undefined && found.mtimeMs <= clock.now() - ORPHAN_MS) old.push(key);
  }
  if (old.length === 0) return 0;
  const named = new Set(await claimed(old));
  const orphans = old.filter((key) => !named.has(key));
  for (const key of orphans) await rm(pathOf(key), { force: true });
  return orphans.length;
}

async function namesIn(directory: string): Promise<string[]> {
  try {
    return await readdir(directory);
  } catch (error) {
    if (isCode(error, 'ENOENT')) return [];
    throw error;
  }
}
