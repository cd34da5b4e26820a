// How large the database is, and how full the disk is on which an SQLite file lies.
import { statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { z } from 'zod';
import { int } from './columns.ts';
import { type Db, sql } from './db.ts';

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
