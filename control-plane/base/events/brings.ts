// What this room adds to the house: the retention of events.
import type { Clock } from '../../../shared/clock.ts';
import { type Db, sql } from '../db/db.ts';
import { type Forgets, inPieces, type Piece } from '../db/pieces.ts';

/** Events are deleted `keepMs` after they happened. */
export function eventsBrings({ db, clock, keepMs }: { db: Db; clock: Clock; keepMs: number }) {
  const forgets: Forgets = {
    what: 'events',
    run: (signal) => inPieces(clock.now() - keepMs, (piece) => forgetEvents(db, piece), signal),
  };
  return { forgets: [forgets] };
}

/** Deletes old events. Webhooks keep their own copies, which have another retention time. */
export function forgetEvents(db: Db, { untilMs, limit }: Piece): Promise<number> {
  return db.tx('events.forget', (tx) =>
    tx.run(
      sql`delete from events where id in (select id from events where created_ms <= ${untilMs} order by created_ms limit ${limit})`,
    ),
  );
}
