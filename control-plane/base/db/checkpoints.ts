// Copies the write-ahead log of SQLite into the database, outside the event loop.
//
// SQLite appends commits to the log and copies their pages into the database later: the checkpoint. By itself it does that inside a COMMIT,
// which then takes a tenth of a second, and all requests wait for as long. Here a thread with a connection of its own copies the pages.
// Commits go on meanwhile.
//
//   commit ... commit: the log has 8,000 pages ──► thread: copies them (PASSIVE), while more commits append to the log
//                                                    └─► here: copies the few pages that were appended meanwhile
//
// The second step is needed because SQLite begins the log anew only if all of it was copied. Without it, the log of a busy service would grow
// for ever.
//
// A log that began anew has space for many commits, while new pages of the database need more of the disk. So on a full disk a checkpoint can be the
// first to fail. Its pages stay in the log, and a later checkpoint copies them.
import { Worker } from 'node:worker_threads';
import type Database from 'better-sqlite3';
import { z } from 'zod';
import { int } from './columns.ts';
import { isFull } from './db.ts';

export interface Checkpoints {
  /** Called after each commit. */
  afterCommit(): void;
  /** Ends the thread. */
  close(): Promise<void>;
}

/** A checkpoint writes each page once, however many commits have changed it. This many pages are 32 MB of log. */
const CHECKPOINT_PAGES = 8_000;
/** Number of commits after which the length of the log is read again. */
const COMMITS_BETWEEN = 16;

const Log = z.object({ log: int });

export interface CheckpointOptions {
  /** Pages in the log that start a checkpoint. */
  pages?: number;
  /** The program of the thread. Tests pass one that fails. */
  thread?: URL;
}

interface CheckpointDeps {
  /** The connection that commits. From now on it makes no checkpoints by itself. */
  writer: Database.Database;
  /** Commits the transaction that the writer has left open, because SQLite refuses a checkpoint inside a transaction. */
  settle(): void;
  /** Called if the disk is full. It frees space if it can. */
  makeRoom(): boolean;
}

export function openCheckpoints(
  path: string,
  { writer, settle, makeRoom }: CheckpointDeps,
  options: CheckpointOptions = {},
): Checkpoints {
  const { pages = CHECKPOINT_PAGES, thread = new URL('./checkpoint-thread.ts', import.meta.url) } = options;
  writer.pragma('wal_autocheckpoint = 0');
  const length = writer.prepare('pragma wal_checkpoint(NOOP)');
  const copyRest = writer.prepare('pragma wal_checkpoint(PASSIVE)');
  let commits = 0;
  let worker: Worker | undefined;
  let isCopying = false;

  const copied = (): void => {
    isCopying = false;
    if (!writer.open) return;
    settle();
    try {
      copyRest.get();
    } catch (error) {
      if (!isFull(error)) throw error;
      makeRoom();
    }
  };
  const start = (): Worker => {
    const started = new Worker(thread, { workerData: path, name: 'checkpoints' });
    started.unref();
    started.on('message', copied);
    // If the thread fails, the pages are copied here, as SQLite itself would have done. The next checkpoint gets a new thread.
    started.on('error', () => {
      worker = undefined;
      copied();
    });
    return started;
  };
  return {
    afterCommit: () => {
      commits += 1;
      if (isCopying || commits % COMMITS_BETWEEN !== 0 || Log.parse(length.get()).log < pages) return;
      isCopying = true;
      worker ??= start();
      worker.postMessage('copy');
    },
    close: async () => {
      await worker?.terminate();
    },
  };
}
