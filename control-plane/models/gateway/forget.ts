// The end of receipts that were closed long ago. What they charged is remembered as one sum, because the ledger keeps its transfers.
import type { Db } from '../../base/db/db.ts';
import type { Piece } from '../../base/db/pieces.ts';
import { removeClosed, rememberForgotten } from './store.ts';

/** How many went. One that is open stays, however old it is. */
export function forgetReceipts(db: Db, piece: Piece): Promise<number> {
  return db.tx('receipts.forget', async (tx) => {
    const removed = await removeClosed(tx, piece);
    const ucents = removed.reduce((sum, each) => sum + each.charged_ucents, 0n);
    if (removed.length > 0) await rememberForgotten(tx, { receipts: removed.length, ucents });
    return removed.length;
  });
}
