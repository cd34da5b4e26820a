// Removes the history of deleted endpoints, and deliveries that ended long ago.
import type { Clock } from '../../../shared/clock.ts';
import type { Db } from '../../base/db/db.ts';
import { forgetDeliveries, forgettable } from './delivery-store.ts';
import { deletedEndpoints, forgetEndpoint } from './endpoint-store.ts';

const HISTORY_MS = 30 * 24 * 3_600_000;
/** Deliveries in one transaction. Few, because other writers wait for it. */
const PIECE = 200;
/** Endpoints in one run. The next run takes the rest. */
const ENDPOINTS_PER_RUN_MAX = 100;

/** Ends early if the signal aborts. Resolves with the number of removed deliveries. */
export async function purge({ db, clock }: { db: Db; clock: Clock }, signal: AbortSignal): Promise<number> {
  let gone = 0;
  for (const endpointId of await deletedEndpoints(db.read, ENDPOINTS_PER_RUN_MAX)) {
    gone += await forgetAll(db, { endpointId }, signal);
    if (signal.aborted) return gone;
    await db.tx('webhooks.forget_endpoint', async (tx) => {
      await tx.lock('webhook_endpoint', endpointId);
      await forgetEndpoint(tx, endpointId);
    });
  }
  return gone + (await forgetAll(db, { completedUntilMs: clock.now() - HISTORY_MS }, signal));
}

async function forgetAll(db: Db, whose: Parameters<typeof forgettable>[1], signal: AbortSignal): Promise<number> {
  let gone = 0;
  while (!signal.aborted) {
    const ids = await forgettable(db.read, whose, PIECE);
    if (ids.length === 0) break;
    await db.tx('webhooks.forget', (tx) => forgetDeliveries(tx, ids));
    gone += ids.length;
  }
  return gone;
}
