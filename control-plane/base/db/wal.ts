// Flushes the write-ahead log of SQLite in the thread pool, so that the event loop goes on while the disk works.
//
// SQLite appends each commit to the file `<database>-wal`. A commit survives a crash once that file is flushed. SQLite would flush it inside
// COMMIT and stop the event loop for as long. Here COMMIT only writes, and `flush` waits for the disk before callers get their results.
//
// If a flush fails, the kernel forgets which pages were not stored, and a later flush reports success without them. So after a failure
// nothing is written any more: the process must start again and read what the disk really has.
import { fdatasync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { promisify } from 'node:util';
import { DbError } from './db.ts';

export interface Wal {
  /** @throws DbError `unavailable` after a flush has failed */
  refuseBroken(): void;
  /** Resolves when everything that was committed before is on the disk. */
  flush(): Promise<void>;
  /** Notes that a commit is not on the disk yet and that nobody waits for it. The next flush stores it. */
  leave(): void;
  /** Resolves when every commit that was noted by `leave` is on the disk, and no flush is in progress. */
  flushed(): Promise<void>;
  close(): Promise<void>;
}

export type Datasync = (file: FileHandle) => Promise<void>;

/** This form is used because the method of a file handle costs twice as much and does the same. */
const datasyncOf = promisify(fdatasync);

/** Opens the file at the first flush, because the first commit creates it. */
export function openWal(path: string, datasync: Datasync = ({ fd }) => datasyncOf(fd)): Wal {
  let file: Promise<FileHandle> | undefined;
  let flushing: Promise<void> | undefined;
  let again: Promise<void> | undefined;
  let failure: unknown;
  /** Whether a commit was noted by `leave` since the last flush began. */
  let hasLeft = false;
  const run = async (): Promise<void> => {
    hasLeft = false;
    try {
      file ??= openDurably(path);
      await datasync(await file);
    } catch (error) {
      failure = error;
      throw brokenBy(error);
    } finally {
      flushing = undefined;
    }
  };
  const flush = (): Promise<void> => {
    if (flushing === undefined) {
      flushing = run();
      return flushing;
    }
    // A flush that is in progress may have begun before the last commit. So another flush follows it.
    again ??= flushing.then(() => {
      again = undefined;
      return flush();
    });
    return again;
  };
  return {
    refuseBroken: () => {
      if (failure !== undefined) throw brokenBy(failure);
    },
    flush,
    leave: () => {
      hasLeft = true;
    },
    flushed: async () => (hasLeft ? flush() : (again ?? flushing)),
    close: async () => {
      // If the file could not be opened, a flush has failed and reported it before.
      const opened = await file?.catch(() => undefined);
      await opened?.close();
    },
  };
}

/** The log is created by the first commit. Its entry in the folder must survive a crash too. */
async function openDurably(path: string): Promise<FileHandle> {
  const folder = await open(dirname(path), 'r');
  await folder.sync();
  await folder.close();
  return open(path, 'r+');
}

function brokenBy(error: unknown): DbError {
  return new DbError('unavailable', 'the disk did not store a commit; this process must start again', error);
}
