// The end of old events.
import { type Db, sql } from '../db/db.ts';
import type { Piece } from '../db/pieces.ts';

/** How many went. What webhooks make of an event is their own, and so is its age. */
export function forgetEvents(db: Db, { untilMs, limit }: Piece): Promise<number> {
  return db.tx('events.forget', (tx) =>
    tx.run(
      sql`delete from events where id in (select id from events where created_ms <= ${untilMs} order by created_ms limit ${limit})`,
    ),
  );
}
