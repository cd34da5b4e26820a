// The life of payouts: the loop makes them due, and an operator exports, sends and records them. `states.ts` lists the moves.
//
// Nothing is paid twice. An export has one transaction for each payout, which takes the money out of what is owed and gives the payout its
// batch. If the process dies during an export, the rest stays due, and a repeated export continues. A closed batch gets no more payouts. So
// a batch is always the same list of payments, and each payment has an id that the sender can compare.
import { fail } from '../../../shared/errors.ts';
import { UCENTS_PER_CENT } from '../../../shared/money.ts';
import type { Query, Tx } from '../../base/db/db.ts';
import { openRowFailures } from '../../base/db/row-failures.ts';
import { makeAllDue, newPayout, pauseObstacle, type PayingDeps } from './making.ts';
import { sendObstacleOf, obstacleOf } from './plan.ts';
import { centsText, owedWords, standingNow } from './standing.ts';
import { move } from './states.ts';
import * as store from './store.ts';

const PIECE = 100;

export interface Sending {
  /** Makes a payout due for each supplier that may have one in this period. It is safe to repeat and to interrupt. */
  makeDue(signal: AbortSignal): Promise<void>;
  /**
   * Hands all due payouts to their sender under the name of a batch. If the name is used again, the same payouts are returned, without
   * those that are paid or have failed since then. @throws ServiceError `conflict` while payouts are paused
   */
  exportBatch(batch: string): Promise<store.PayoutRow[]>;
  /** Why a payout that is due cannot leave now; null for every other payout. */
  waitsBecause(query: Query, row: store.PayoutRow): Promise<string | null>;
  /** Records that the payout has left with the transaction `reference`. @throws ServiceError `not_found`, `conflict` */
  sent(id: string, reference: string): Promise<store.PayoutRow>;
  /**
   * Records that the payout has not left and will not leave. It is owed again. @throws ServiceError `not_found`, `conflict` if it was paid
   */
  failed(id: string, reason: string): Promise<store.PayoutRow>;
  /**
   * Records a payout that was made in another way. @throws ServiceError `conflict` for more than is payable, for the reference of another
   * payout, and while nothing may leave to the supplier
   */
  pay(payout: NewPayout): Promise<store.PayoutRow>;
}

export function openSending(deps: PayingDeps): Sending {
  const { db } = deps;
  const ofSupplier = async (
    name: string,
    id: string,
    work: (tx: Tx, row: store.PayoutRow) => Promise<store.PayoutRow>,
  ): Promise<store.PayoutRow> => {
    const seen = await store.findPayout(db.read, id);
    if (seen === undefined) return fail('not_found', `There is no payout ${id}.`);
    return db.tx(name, async (tx) => {
      await tx.lock('supplier', seen.supplier_id);
      return work(tx, (await store.findPayout(tx, id)) ?? seen);
    });
  };
  return {
    makeDue: (signal) => makeAllDue(signal, deps),
    exportBatch: (batch) => exportBatch(batch, deps),
    waitsBecause: async (query, { state, supplier_id: supplierId }) => {
      if (state !== 'due') return null;
      const destinations = await deps.destinations.of(query, supplierId);
      const why =
        (await pauseObstacle(query)) ?? sendObstacleOf(await deps.supplierStatus(query, supplierId), destinations);
      return why ?? null;
    },
    sent: (id, reference) => ofSupplier('payouts.sent', id, (tx, row) => sent(tx, row, reference, deps)),
    failed: (id, reason) => ofSupplier('payouts.failed', id, (tx, row) => failed(tx, row, reason, deps)),
    pay: (payout) =>
      db.tx('payouts.pay', async (tx) => {
        await tx.lock('supplier', payout.supplierId);
        return payByHand(tx, payout, deps);
      }),
  };
}

async function exportBatch(batch: string, deps: PayingDeps): Promise<store.PayoutRow[]> {
  const { db, clock } = deps;
  const why = await pauseObstacle(db.read);
  if (why !== undefined)
    return fail('conflict', `${why}. Nothing was exported. End the pause first (admin resume payouts).`);
  const { closed_ms: closedMs, created_ms: untilMs } = await db.tx('payouts.batch', (tx) =>
    store.openBatch(tx, batch, clock.now()),
  );
  const failures = openRowFailures();
  for (let afterId: string | undefined = closedMs === null ? '' : undefined; afterId !== undefined;) {
    const due: store.PayoutRow[] = await store.payoutsIn(db.read, 'due', { untilMs, afterId, limit: PIECE });
    for (const seen of due) {
      const exported = db.tx('payouts.export', async (tx) => {
        await tx.lock('supplier', seen.supplier_id);
        await exportOne(tx, seen.id, batch, deps);
      });
      await failures.note(`the payout ${seen.id} could not be exported`, exported);
    }
    afterId = due.at(-1)?.id;
  }
  await db.tx('payouts.batch', (tx) => store.closeBatch(tx, batch, clock.now()));
  // The batch is whole without the payouts that have failed, which stay due. A repeated export returns it.
  failures.throwAll();
  return (await store.payoutsOfBatch(db.read, batch)).filter(({ state }) => state === 'in_flight');
}

/** Exports one payout. If it may not leave now, it stays due. */
async function exportOne(tx: Tx, id: string, batch: string, deps: PayingDeps): Promise<void> {
  const row = await store.findPayout(tx, id);
  if (row?.state !== 'due' || (await pauseObstacle(tx)) !== undefined) return;
  // The same export may run twice, and the other one may have ended meanwhile. Whoever has its list would not know of a further payout.
  if (!(await store.keepBatchOpen(tx, batch))) return;
  const destinations = await deps.destinations.of(tx, row.supplier_id);
  const why = sendObstacleOf(await deps.supplierStatus(tx, row.supplier_id), destinations);
  if (why !== undefined || destinations.inForce === undefined) return;
  // A dispute or a claw-back may have reduced the payable amount since the payout became due.
  const now = await standingNow(tx, row.supplier_id, deps);
  const payableUcents = now.payableCents * UCENTS_PER_CENT;
  const amount = payableUcents < row.amount_ucents ? payableUcents : row.amount_ucents;
  if (amount === 0n || amount < deps.minimumUcents) {
    const least = centsText(deps.minimumUcents / UCENTS_PER_CENT);
    await move(tx, row, { to: 'failed', reason: `${owedWords(now)}: less than the minimum of ${least}` }, deps);
    return;
  }
  const { chain, address } = destinations.inForce;
  await move(tx, row, { to: 'in_flight', amount_ucents: amount, chain, address, batch }, deps);
}

async function sent(tx: Tx, row: store.PayoutRow, reference: string, deps: PayingDeps): Promise<store.PayoutRow> {
  if (row.state === 'paid' && row.reference === reference) return row;
  if (row.state === 'paid')
    return fail('conflict', `The payout ${row.id} was paid with ${row.reference ?? ''} already.`);
  if (row.state === 'failed') {
    return fail(
      'conflict',
      `The payout ${row.id} was entered as failed. If it has left after all, record it with admin payout create.`,
    );
  }
  if (row.state === 'due') return fail('conflict', `The payout ${row.id} is not in flight. Export it first.`);
  const other = await store.payoutOfReference(tx, row.supplier_id, reference);
  if (other !== undefined) {
    return fail('conflict', `The payout ${other.id} of this supplier has the reference ${reference} already.`);
  }
  return move(tx, row, { to: 'paid', reference }, deps);
}

async function failed(tx: Tx, row: store.PayoutRow, reason: string, deps: PayingDeps): Promise<store.PayoutRow> {
  if (row.state === 'failed') return row;
  if (row.state === 'paid')
    return fail('conflict', `The payout ${row.id} was paid with ${row.reference ?? ''} already.`);
  return move(tx, row, { to: 'failed', reason }, deps);
}

interface NewPayout {
  supplierId: string;
  /** Null: everything that is payable. */
  cents: number | null;
  /** The operator's name for the payout. A second payout with the same reference has no effect. */
  reference: string;
}

/**
 * Records a payout that an operator has made in another way, e.g. by a bank transfer: due, in flight and paid in one transaction. The caller
 * has locked the supplier.
 * @throws ServiceError as `Sending.pay`
 */
async function payByHand(tx: Tx, payout: NewPayout, deps: PayingDeps): Promise<store.PayoutRow> {
  const { supplierId, cents, reference } = payout;
  const known = await store.payoutOfReference(tx, supplierId, reference);
  if (known !== undefined) return sameOrFail(known, payout);
  const why =
    (await pauseObstacle(tx)) ??
    obstacleOf(await deps.supplierStatus(tx, supplierId), await deps.destinations.of(tx, supplierId));
  if (why !== undefined) return fail('conflict', `${why}. Nothing was recorded.`);
  const now = await standingNow(tx, supplierId, deps);
  const amount = cents === null ? now.payableCents : BigInt(cents);
  if (amount <= 0n) return fail('conflict', `${owedWords(now)}: there is nothing to pay.`);
  if (amount > now.payableCents) return fail('conflict', `${owedWords(now)}. Pay that or less.`);
  const row = { ...newPayout(supplierId, { amountUcents: amount * UCENTS_PER_CENT, periodMs: null }, deps), reference };
  if (!(await store.insertPayout(tx, row))) {
    // Another transaction has just recorded a payout with this reference, e.g. because the same command came twice at the same moment.
    const other = await store.payoutOfReference(tx, supplierId, reference);
    return other === undefined
      ? fail('internal_error', 'The payout vanished while it was made.')
      : sameOrFail(other, payout);
  }
  return move(tx, await move(tx, row, { to: 'in_flight' }, deps), { to: 'paid' }, deps);
}

function sameOrFail(known: store.PayoutRow, { cents, reference }: NewPayout): store.PayoutRow {
  if (cents === null || BigInt(cents) * UCENTS_PER_CENT === known.amount_ucents) return known;
  const paid = centsText(known.amount_ucents / UCENTS_PER_CENT);
  return fail('conflict', `${paid} was paid under the reference ${reference}. Nothing was changed: name a new one.`);
}
