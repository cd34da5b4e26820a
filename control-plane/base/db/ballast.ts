// The ballast: a file beside the database that takes up room and holds nothing. If the disk turns out to be full, it is freed at once, so
// that deletes, the ends of rentals and their bills can still be written. Until it is back, nothing that can wait is taken in.
import { rmSync } from 'node:fs';
import { open, rm, stat, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import type { Rng } from '../../../shared/rng.ts';

/** What goes on without new work writes some KiB a second at most: this lasts for hours. */
export const BALLAST_BYTES = 64 * 1024 ** 2;
const PIECE_BYTES = 1024 ** 2;
const RESTORE_AGAIN_MS = 5_000;
/** What `stat` counts in. */
const BLOCK_BYTES = 512;

export interface Ballast {
  /** Frees it if it is there; whether a write that found no room is worth another try. */
  release(): boolean;
  /** False from the release on, until the ballast is whole again. */
  hasRoom(): boolean;
  /** Makes it if it is not whole and there is room for it and as much again; if not, tries again by itself until it is closed. */
  restore(): Promise<void>;
  close(): void;
}

interface BallastDeps {
  clock: Clock;
  rng: Rng;
  log: Log;
}

/** Touches nothing before `restore`: whoever calls that has the database to itself. */
export function openBallast(path: string, bytes: number, { clock, rng, log }: BallastDeps): Ballast {
  let isWhole = false;
  let isShort = false;
  let isClosed = false;
  let cancelNext = (): void => undefined;

  const restore = async (): Promise<void> => {
    cancelNext();
    isWhole = (await allocated(path)) >= bytes || ((await freeBeside(path)) >= 2 * bytes && (await fill()));
    if (isWhole && isShort) log.info('the disk of the database has room again');
    if (!isWhole) noteShort('there is no room for the ballast of the database');
    isShort = !isWhole;
    if (isShort && !isClosed) cancelNext = clock.after(RESTORE_AGAIN_MS, () => void restore());
  };

  const noteShort = (what: string): void => {
    if (!isShort)
      log.error({ path }, `${what}: deletes and what runs go on, and requests that store something are refused`);
  };

  /** Noise, because a file system may store equal or plain bytes in no room at all. */
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
      log.warn({ path, err: error }, 'the ballast could not be written; it is tried again');
      return false;
    }
  };

  return {
    release: () => {
      if (!isWhole) return false;
      rmSync(path, { force: true });
      noteShort('the disk of the database is full');
      [isWhole, isShort] = [false, true];
      cancelNext = clock.after(RESTORE_AGAIN_MS, () => void restore());
      return true;
    },
    hasRoom: () => !isShort,
    restore,
    close: () => {
      isClosed = true;
      cancelNext();
    },
  };
}

async function allocated(path: string): Promise<number> {
  const found = await stat(path).catch(() => undefined);
  return (found?.blocks ?? 0) * BLOCK_BYTES;
}

async function freeBeside(path: string): Promise<number> {
  const disk = await statfs(dirname(path)).catch(() => undefined);
  return (disk?.bavail ?? 0) * (disk?.bsize ?? 0);
}
