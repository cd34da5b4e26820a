// Deletes many rows without a long transaction: in pieces, each in its own transaction, so that other writers run in between.

/** One kind of old rows that a room deletes. All rooms together bring a list of them, which one loop runs through. */
export interface Forgets {
  /** The name of these rows in the log, often that of their table. */
  what: string;
  /** Stops early if the signal aborts. Resolves with the number of deleted rows. */
  run(signal: AbortSignal): Promise<number>;
}

/** Rows of one piece. Deleting them takes about as long as a busy batch of the group commit. */
export const PIECE_ROWS = 500;

/** The limits of one piece. */
export interface Piece {
  /** Deletes only rows up to and including this time. */
  untilMs: number;
  limit: number;
}

/** Repeats `remove` until it deletes less than a full piece or the signal aborts. Returns the number of deleted rows. */
export async function inPieces(
  untilMs: number,
  remove: (piece: Piece) => Promise<number>,
  signal: AbortSignal,
): Promise<number> {
  let total = 0;
  while (!signal.aborted) {
    const removed = await remove({ untilMs, limit: PIECE_ROWS });
    total += removed;
    if (removed < PIECE_ROWS) break;
  }
  return total;
}
