// Adds the rows of a large table to sums, up to a position, so that readers need not add up all rows.
//
//   rows by time:  r1 r2 r3 r4 | r5 r6 r7   | r8
//                  in the sums | next piece | settling: others may still come before it
//                              the position
//
// A loop moves the position and adds the rows of the next piece in one transaction, so each row is added once. The position is a row of its own table
// and is written first, so two processes never add the same piece. A row that commits behind the position would never be added: only rows that are
// older than any transaction are settled.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { int, text } from './columns.ts';
import { type Db, type Query, type Sql, type Tx, sql } from './db.ts';

const PlaceRow = z.object({ at_ms: int, id: text });

/** A place in the order of rows: by time, and by id among rows of one time. */
export type Place = z.infer<typeof PlaceRow>;

/** What the tables and their columns are called. */
export interface FoldingNames {
  /** The table whose rows are added, and its column of time. Its key is `id`. */
  rows: Sql;
  rowMs: Sql;
  /** The table of the position, and its two columns. It has one row at most, whose `id` is 1. */
  position: Sql;
  positionMs: Sql;
  positionId: Sql;
}

/** How the rows are added. */
export interface Fold {
  /** The name of the transaction. */
  body: string;
  /** Rows that are older than this no longer change, and none can come before them any more. */
  settledMs: number;
  /** The rows of one piece are before this time, if its first row is at `atMs`. */
  pieceUntilMs(atMs: number): number;
  /** Adds the rows after `position` up to `last`. */
  add(tx: Tx, piece: { position: Place; last: Place }): Promise<void>;
}

export interface Folding {
  /** All rows up to this place are in the sums, and no others. */
  position(query: Query): Promise<Place>;
  /** The same, and no other transaction changes the sums until this one ends. Must begin the transaction. */
  lock(tx: Tx): Promise<Place>;
  /** The rows of the table after the place. */
  isBehind(place: Place): Sql;
  /** The rows of the table up to the place, with the row at it. */
  isUpTo(place: Place): Sql;
  /** Rows after the place that are before `untilMs`, in their order. */
  behind(query: Query, place: Place, reach: { untilMs: number; limit: number }): Promise<Place[]>;
  /** Adds settled rows for a limited time. True if more work is due now. */
  run(deps: { db: Db; clock: Clock }, fold: Fold, signal: AbortSignal): Promise<boolean>;
}

const PIECE = 500;
/** A run ends after this time and the next one continues, because a long run counts as hanging. */
const SLICE_MS = 60_000;
const BEGINNING: Place = { at_ms: 0, id: '' };

export function openFolding({ rows, rowMs, position, positionMs, positionId }: FoldingNames): Folding {
  // The first two conditions let SQLite use an index by time alone, also one of rows that have a time.
  const isBehind = ({ at_ms: atMs, id }: Place): Sql =>
    sql`${rowMs} is not null and ${rowMs} >= ${atMs} and (${rowMs}, id) > (${atMs}, ${id})`;
  const columns = sql`id, ${positionMs}, ${positionId}`;
  const returned = sql`${positionMs} as at_ms, ${positionId} as id`;
  const place = async (read: Promise<Place | undefined>): Promise<Place> => (await read) ?? BEGINNING;

  const tables: PositionTables = {
    position: (query) => place(query.one(PlaceRow, sql`select ${returned} from ${position} where ${position}.id = 1`)),
    behind: (query, from, { untilMs, limit }) =>
      query.all(
        PlaceRow,
        sql`select ${rowMs} as at_ms, id from ${rows} where ${isBehind(from)} and ${rowMs} < ${untilMs}
            order by ${rowMs}, id limit ${limit}`,
      ),
    move: async (tx, from, to) => {
      const moved = await tx.run(
        sql`insert into ${position} (${columns}) values (1, ${to.at_ms}, ${to.id})
            on conflict (id) do update set ${positionMs} = excluded.${positionMs}, ${positionId} = excluded.${positionId}
              where ${position}.${positionMs} = ${from.at_ms} and ${position}.${positionId} = ${from.id}`,
      );
      return moved === 1;
    },
  };
  return {
    position: tables.position,
    behind: tables.behind,
    lock: (tx) =>
      place(
        tx.one(
          PlaceRow,
          sql`insert into ${position} (${columns}) values (1, 0, '')
              on conflict (id) do update set id = excluded.id returning ${returned}`,
        ),
      ),
    isBehind,
    isUpTo: ({ at_ms: atMs, id }) => sql`(${rowMs}, id) <= (${atMs}, ${id})`,
    run: async ({ db, clock }, fold, signal) => {
      const endMs = clock.monotonicMs() + SLICE_MS;
      while (await addPiece(tables, { db, untilMs: clock.now() - fold.settledMs }, fold))
        if (signal.aborted || clock.monotonicMs() >= endMs) return !signal.aborted;
      return false;
    },
  };
}

interface PositionTables extends Pick<Folding, 'position' | 'behind'> {
  /** Moves the position and locks it. False if it is not at `from` any more. Must begin the transaction. */
  move(tx: Tx, from: Place, to: Place): Promise<boolean>;
}

/** True if there may be more. Settled rows do not change, so they are found before the transaction. If there are none, nothing is written. */
async function addPiece(
  tables: PositionTables,
  { db, untilMs }: { db: Db; untilMs: number },
  { body, pieceUntilMs, add }: Fold,
): Promise<boolean> {
  const position = await tables.position(db.read);
  const found = await tables.behind(db.read, position, { untilMs, limit: PIECE });
  const [first] = found;
  if (first === undefined) return false;
  const pieceEndMs = pieceUntilMs(first.at_ms);
  const last = found.findLast(({ at_ms: atMs }) => atMs < pieceEndMs) ?? first;
  return db.tx(body, async (tx) => {
    // Another process is adding them.
    if (!(await tables.move(tx, position, last))) return false;
    await add(tx, { position, last });
    return true;
  });
}
