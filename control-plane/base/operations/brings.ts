// What this room adds to the house: a route and the retention of operations.
import type { Clock } from '../../../shared/clock.ts';
import { type Db, sql } from '../db/db.ts';
import { type Forgets, inPieces, type Piece } from '../db/pieces.ts';
import type { Operations } from './operations.ts';
import { operationRoutes } from './routes.ts';

interface Deps {
  db: Db;
  clock: Clock;
  operations: Operations;
  /** Operations are deleted this long after they completed. */
  keepMs: number;
}

export function operationsBrings({ db, clock, operations, keepMs }: Deps) {
  const forgets: Forgets = {
    what: 'operations',
    run: (signal) => inPieces(clock.now() - keepMs, (piece) => forgetOperations(db, piece), signal),
  };
  return { routes: operationRoutes({ db, operations }), forgets: [forgets] };
}

/** An operation that has not completed is kept, however old it is. */
function forgetOperations(db: Db, { untilMs, limit }: Piece): Promise<number> {
  return db.tx('operations.forget', (tx) =>
    tx.run(
      sql`delete from operations where id in (
            select id from operations where completed_ms <= ${untilMs} order by completed_ms limit ${limit})`,
    ),
  );
}
