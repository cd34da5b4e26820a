// A program that sorts more than fits into SQLite's memory, and prints the code of the error. A process chooses the folder of SQLite's temporary
// files only once, so a test cannot fill that disk for itself.
import { z } from 'zod';
import { int } from '../../../../control-plane/base/db/columns.ts';
import { DbError, sql } from '../../../../control-plane/base/db/db.ts';
import { openSqlite } from '../../../../control-plane/base/db/sqlite.ts';
import { systemClock } from '../../../../shared/clock.ts';

/** SQLite sorts up to 16 MB in memory. */
const ROWS = 40_000;

async function main(path: string): Promise<void> {
  const db = openSqlite(path, { clock: systemClock() });
  try {
    await db.read.all(
      z.object({ v: int }),
      sql`with recursive n(v) as (select 1 union all select v + 1 from n where v < ${ROWS})
          select v from (select v, hex(randomblob(500)) as long from n order by long limit ${ROWS})`,
    );
    process.stdout.write('sorted');
  } catch (error) {
    process.stdout.write(error instanceof DbError ? error.code : String(error));
  }
  await db.close();
}

const [, , path] = process.argv;
if (import.meta.main && path !== undefined) await main(path);
