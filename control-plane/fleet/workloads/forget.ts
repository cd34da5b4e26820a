// The end of workloads of which nothing is left on any host.
import { type Db, sql } from '../../base/db/db.ts';
import type { Piece } from '../../base/db/pieces.ts';

/** How many went. A tombstone that a host has not confirmed stays, however old it is. */
export function forgetWorkloads(db: Db, { untilMs, limit }: Piece): Promise<number> {
  return db.tx('workloads.forget', (tx) =>
    tx.run(
      sql`delete from workloads where id in (
            select id from workloads where state = 'gone' and changed_ms <= ${untilMs} order by changed_ms limit ${limit})`,
    ),
  );
}
