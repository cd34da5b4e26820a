// The end of operations that were over long ago.
import { type Db, sql } from '../db/db.ts';
import type { Piece } from '../db/pieces.ts';

/** How many went. One that is not over stays, however old it is. */
export function forgetOperations(db: Db, { untilMs, limit }: Piece): Promise<number> {
  return db.tx('operations.forget', (tx) =>
    tx.run(
      sql`delete from operations where id in (
            select id from operations where completed_ms <= ${untilMs} order by completed_ms limit ${limit})`,
    ),
  );
}
