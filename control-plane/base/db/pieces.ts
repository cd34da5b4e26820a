// Deleting a lot without a long transaction: piece by piece, each a transaction of its own that other writers get in between.

/** What a room forgets, if the retention of the operator says so. */
export interface Forgets {
  what: string;
  /** Ends early if the signal aborts. Resolves with how many rows went. */
  run(signal: AbortSignal): Promise<number>;
}

/** Rows of one piece: about as long as a busy turn of the group commit. */
export const PIECE_ROWS = 500;

/** What one piece may delete. */
export interface Piece {
  /** Rows up to this time, and at it. */
  untilMs: number;
  limit: number;
}

/** Repeats `remove` until it finds less than a piece, or the signal aborts; how many rows it removed in all. */
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
