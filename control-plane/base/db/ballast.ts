// The ballast: a file beside the database that only reserves disk space. If the disk is full, the ballast is deleted at once, so that
// deletes, the ends of rentals and their bills can still be written. Until the ballast is back, the service refuses everything that can
// wait.
import { rmSync, statSync } from 'node:fs';
import { open, rm, stat, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import type { Rng } from '../../../shared/rng.ts';

const MIB = 1024 ** 2;
/** If there is no new work, the service writes a few KiB a second at most, so this lasts for hours. */
export const BALLAST_BYTES = 64 * MIB;
const PIECE_BYTES = MIB;
const RESTORE_AGAIN_MS = 5_000;
/** The unit of `blocks` in the result of `stat`. */
const BLOCK_BYTES = 512;

export interface Ballast {
  /** Deletes the ballast. Returns true if a write that failed because of the full disk is worth another try. */
  release(): boolean;
  /** False from the release until the ballast is complete again. */
  hasRoom(): boolean;
  /** Writes the ballast if it is incomplete and the disk has twice its size free. Otherwise it retries by itself until `close`. */
  restore(): Promise<void>;
  close(): void;
}

interface BallastDeps {
  clock: Clock;
  rng: Rng;
  log: Log;
}

/** The caller of `restore` and `release` must own the database. */
export function openBallast(path: string, bytes: number, { clock, rng, log }: BallastDeps): Ballast {
  /** Unknown until `restore` has looked: the process before may have left a ballast. */
  let state: 'unknown' | 'whole' | 'missing' = 'unknown';
  let isClosed = false;
  let cancelNext = (): void => undefined;

  const restore = async (): Promise<void> => {
    cancelNext();
    const isWhole = (await allocated(path)) >= bytes || ((await freeBeside(path)) >= 2 * bytes && (await fill()));
    if (!isWhole) {
      setMissing('there is no room for the ballast of the database');
      restoreLater();
      return;
    }
    if (state === 'missing') log.info('the disk of the database has room again');
    state = 'whole';
  };

  const restoreLater = (): void => {
    if (!isClosed) cancelNext = clock.after(RESTORE_AGAIN_MS, () => void restore());
  };

  const setMissing = (why: string): void => {
    if (state !== 'missing')
      log.error(
        { path },
        `${why}: deletes and running instances go on, requests that store something are refused until ${(2 * bytes) / MIB} MiB are free`,
      );
    state = 'missing';
  };

  /** Random bytes, because a file system may store equal bytes without using disk space. */
  const fill = async (): Promise<boolean> => {
    const piece = rng.bytes(PIECE_BYTES);
    try {
      const file = await open(path, 'w', 0o600);
      try {
        for (let written = 0; written < bytes; written += piece.length)
          await file.writeFile(piece.subarray(0, bytes - written));
        await file.sync();
      } finally {
        await file.close();
      }
      return true;
    } catch (error) {
      await rm(path, { force: true });
      log.warn({ path, err: error }, 'the ballast could not be written; it will be retried');
      return false;
    }
  };

  return {
    release: () => {
      const isThere = state === 'unknown' ? blocksOf(path) > 0 : state === 'whole';
      if (!isThere) return false;
      rmSync(path, { force: true });
      // The state is unknown at a start. The owner of the database then calls `restore` itself, as soon as the database is open.
      if (state === 'whole') restoreLater();
      setMissing('the disk of the database is full');
      return true;
    },
    hasRoom: () => state !== 'missing',
    restore,
    close: () => {
      isClosed = true;
      cancelNext();
    },
  };
}

function blocksOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.blocks ?? 0;
}

async function allocated(path: string): Promise<number> {
  const found = await stat(path).catch(() => undefined);
  return (found?.blocks ?? 0) * BLOCK_BYTES;
}

async function freeBeside(path: string): Promise<number> {
  const disk = await statfs(dirname(path)).catch(() => undefined);
  return (disk?.bavail ?? 0) * (disk?.bsize ?? 0);
}
