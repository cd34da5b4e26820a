// What operators watch of the database: whether it commits, how large it is, and how full its disk is. Whether it commits is checked by writing
// a row durably. Reads are no proof: they work long after the disk is full.
import { statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import { type Db, DbError, isDatabaseAway, sql } from './db.ts';
import { int } from './columns.ts';

/** Unauthenticated callers may ask, and a commit is expensive, so an answer is reused for this long. */
const FRESH_MS = 1_000;
const COMMIT_MS_MAX = 5_000;

export interface Readiness {
  /** Reasons why nothing can be written now, for people; empty if commits work. An answer is reused for one second. */
  check(): Promise<string[]>;
}

interface ReadinessDeps {
  db: Db;
  clock: Clock;
  log: Log;
  /** False while the disk of the database is full and the ballast is released. */
  hasRoom(): boolean;
}

const FULL = 'the disk of the database is full';

export function openReadiness(deps: ReadinessDeps): Readiness {
  const { clock, log } = deps;
  let last: { reasons: string[]; atMs: number } | undefined;
  let underWay: Promise<string[]> | undefined;
  let isReported = false;

  const ask = async (): Promise<string[]> => {
    const { reasons, error } = await commit(deps);
    if (!isReported && reasons.length > 0 && !isDatabaseAway(error)) {
      log.error({ reasons, err: error }, 'the database is not ready for writes');
      isReported = true;
    }
    if (isReported && reasons.length === 0) {
      log.info('the database is ready for writes again');
      isReported = false;
    }
    last = { reasons, atMs: clock.monotonicMs() };
    return reasons;
  };

  return {
    check: async () => {
      if (last !== undefined && clock.monotonicMs() - last.atMs < FRESH_MS) return last.reasons;
      underWay ??= ask().finally(() => (underWay = undefined));
      return underWay;
    },
  };
}

/** Writes a row and makes it durable. @throws DbError if the database takes no writes */
export async function writeRow(db: Db, clock: Clock): Promise<void> {
  const atMs = clock.now();
  await db.tx('db.commit_probe', (tx) =>
    tx.run(
      sql`insert into commit_probes (id, at_ms) values (1, ${atMs}) on conflict (id) do update set at_ms = ${atMs}`,
    ),
  );
}

export interface DiskUse {
  used_bytes: number;
  total_bytes: number;
}

const BytesRow = z.object({ bytes: int });

export async function databaseBytes({ dialect, read }: Pick<Db, 'dialect' | 'read'>): Promise<number> {
  const size =
    dialect === 'sqlite'
      ? sql`select page_count * page_size as bytes from pragma_page_count(), pragma_page_size()`
      : sql`select pg_database_size(current_database()) as bytes`;
  return (await read.one(BytesRow, size))?.bytes ?? 0;
}

/** The disk that holds the file. Blocks that only root may use count as used, because the service cannot use them. */
export async function diskUse(path: string): Promise<DiskUse> {
  const { bavail, blocks, bsize } = await statfs(dirname(path));
  return { used_bytes: (blocks - bavail) * bsize, total_bytes: blocks * bsize };
}

async function commit({ db, clock, hasRoom }: ReadinessDeps): Promise<{ reasons: string[]; error?: unknown }> {
  const late = Promise.withResolvers<{ reasons: string[] }>();
  const cancel = clock.after(COMMIT_MS_MAX, () => late.resolve({ reasons: ['the database does not commit in time'] }));
  const written = writeRow(db, clock).then(
    () => ({ reasons: hasRoom() ? [] : [FULL] }),
    (error: unknown) => ({ reasons: [reasonOf(error)], error }),
  );
  try {
    return await Promise.race([written, late.promise]);
  } finally {
    cancel();
  }
}

function reasonOf(error: unknown): string {
  return error instanceof DbError && error.code === 'disk_full' ? FULL : 'the database does not commit';
}
