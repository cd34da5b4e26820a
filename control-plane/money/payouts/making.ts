// Makes payouts due: the loop looks at every supplier that may have one in the present period.
import type { Ids } from '../../../shared/ids.ts';
import { UCENTS_PER_CENT } from '../../../shared/money.ts';
import type { Db, Query, Tx } from '../../base/db/db.ts';
import { pauseOf } from '../../base/db/pauses.ts';
import { openRowFailures } from '../../base/db/row-failures.ts';
import { suppliersOwed } from '../ledger/suppliers.ts';
import type { PayoutDestinations } from './destinations.ts';
import { type Every, periodStart, sendObstacleOf } from './plan.ts';
import { type StandingDeps, standingNow } from './standing.ts';
import * as store from './store.ts';

/** Number of suppliers that are read in one query. */
const PIECE = 100;

export interface PayingDeps extends StandingDeps {
  db: Db;
  ids: Ids;
  destinations: PayoutDestinations;
  /** The smallest payout that the loop makes. */
  minimumUcents: bigint;
  every: Every;
  /** Provided by a room above; undefined for an unknown supplier. */
  supplierStatus(query: Query, supplierId: string): Promise<'active' | 'suspended' | undefined>;
}

/** A supplier that fails keeps no other one from its payout. @throws what has failed, at the end; DbError at once */
export async function makeAllDue(signal: AbortSignal, deps: PayingDeps): Promise<void> {
  const { db, clock, every, minimumUcents } = deps;
  const periodMs = periodStart(clock.now(), every);
  const failures = openRowFailures();
  for (let afterId: string | undefined = ''; afterId !== undefined && !signal.aborted;) {
    const supplierIds: string[] = await suppliersOwed(db.read, minimumUcents, { afterId, limit: PIECE });
    for (const supplierId of supplierIds) {
      if (signal.aborted) break;
      const failed = `no payout could be made due for the supplier ${supplierId}`;
      await failures.note(failed, dueFor(supplierId, periodMs, deps));
    }
    afterId = supplierIds.at(-1);
  }
  failures.throwAll();
}

async function dueFor(supplierId: string, periodMs: number, deps: PayingDeps): Promise<void> {
  // This check comes before the transaction, so that a loop with nothing to do writes nothing.
  if (await store.hasPayout(deps.db.read, supplierId, periodMs)) return;
  await deps.db.tx('payouts.due', async (tx) => {
    await tx.lock('supplier', supplierId);
    await makeDue(tx, supplierId, periodMs, deps);
  });
}

async function makeDue(tx: Tx, supplierId: string, periodMs: number, deps: PayingDeps): Promise<void> {
  if ((await pauseObstacle(tx)) !== undefined) return;
  const destinations = await deps.destinations.of(tx, supplierId);
  if (sendObstacleOf(await deps.supplierStatus(tx, supplierId), destinations) !== undefined) return;
  const { payableCents } = await standingNow(tx, supplierId, deps);
  const amountUcents = payableCents * UCENTS_PER_CENT;
  if (amountUcents === 0n || amountUcents < deps.minimumUcents) return;
  await store.insertPayout(tx, newPayout(supplierId, { amountUcents, periodMs }, deps));
}

/** Why operators let no money leave to anybody now; undefined if it may. */
export async function pauseObstacle(query: Query): Promise<string | undefined> {
  const paused = await pauseOf(query, 'payouts');
  return paused && `The operator has paused payouts (${paused.reason})`;
}

/** A new payout, which is due. `periodMs` is null for a payout by hand. */
export function newPayout(
  supplierId: string,
  { amountUcents, periodMs }: { amountUcents: bigint; periodMs: number | null },
  { ids, clock }: Pick<PayingDeps, 'ids' | 'clock'>,
): store.PayoutRow {
  return {
    id: ids.uuid(),
    supplier_id: supplierId,
    state: 'due',
    amount_ucents: amountUcents,
    chain: null,
    address: null,
    period_ms: periodMs,
    batch: null,
    reference: null,
    reason: null,
    created_ms: clock.now(),
    in_flight_ms: null,
    ended_ms: null,
  };
}
