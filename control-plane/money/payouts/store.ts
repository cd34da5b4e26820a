// The SQL of payouts, their batches, and the destinations of suppliers.
import { z } from 'zod';
import { Chain } from '../../../shared/api/payout.ts';
import type { PayoutState } from '../../../shared/states.ts';
import { idRow, int, text, ucents } from '../../base/db/columns.ts';
import { type Db, join, type Query, type Sql, sql, type Tx } from '../../base/db/db.ts';
import type { Piece } from '../../base/db/pieces.ts';
import { pageFrom, type PageStart } from '../../base/http/cursors.ts';

const PayoutRow = z.object({
  id: text,
  supplier_id: text,
  state: z.enum(['due', 'in_flight', 'paid', 'failed']),
  amount_ucents: ucents,
  /** Chain and address are null before the payout is in flight, and for a payout by hand. */
  chain: Chain.nullable(),
  address: text.nullable(),
  period_ms: int.nullable(),
  batch: text.nullable(),
  reference: text.nullable(),
  reason: text.nullable(),
  created_ms: int,
  in_flight_ms: int.nullable(),
  ended_ms: int.nullable(),
});
export type PayoutRow = z.infer<typeof PayoutRow>;

const PAYOUT = sql`id, supplier_id, state, amount_ucents, chain, address, period_ms, batch, reference, reason, created_ms, in_flight_ms, ended_ms`;

/** False if the loop has already made a payout for the supplier and the period, if a payout is due, or if the reference was used. */
export async function insertPayout(tx: Tx, row: PayoutRow): Promise<boolean> {
  const made = await tx.run(
    sql`insert into payouts (${PAYOUT})
        values (${row.id}, ${row.supplier_id}, ${row.state}, ${row.amount_ucents}, ${row.chain}, ${row.address}, ${row.period_ms},
          ${row.batch}, ${row.reference}, ${row.reason}, ${row.created_ms}, ${row.in_flight_ms}, ${row.ended_ms})
        on conflict do nothing`,
  );
  return made === 1;
}

export function findPayout(query: Query, id: string): Promise<PayoutRow | undefined> {
  return query.one(PayoutRow, sql`select ${PAYOUT} from payouts where id = ${id}`);
}

export function payoutOfReference(query: Query, supplierId: string, reference: string): Promise<PayoutRow | undefined> {
  return query.one(
    PayoutRow,
    sql`select ${PAYOUT} from payouts where supplier_id = ${supplierId} and reference = ${reference}`,
  );
}

/** Writes all that a move changes. False if the payout is no longer in the state `from`. */
export async function writeMove(tx: Tx, from: PayoutState, row: PayoutRow): Promise<boolean> {
  const changed = await tx.run(
    sql`update payouts set state = ${row.state}, amount_ucents = ${row.amount_ucents}, chain = ${row.chain}, address = ${row.address},
          batch = ${row.batch}, reference = ${row.reference}, reason = ${row.reason}, in_flight_ms = ${row.in_flight_ms},
          ended_ms = ${row.ended_ms}
        where id = ${row.id} and state = ${from}`,
  );
  return changed === 1;
}

/** Whether the loop has made a payout for the period, or one is due. */
export async function hasPayout(query: Query, supplierId: string, periodMs: number): Promise<boolean> {
  const row = await query.one(
    idRow,
    sql`select id from payouts where supplier_id = ${supplierId} and period_ms is not null and (period_ms = ${periodMs} or state = 'due')
        limit 1`,
  );
  return row !== undefined;
}

/** A page of the payouts of all suppliers or of one, in all states or in one, newest first. */
export function pageOfPayouts(
  query: Query,
  { supplierId, state }: { supplierId: string | undefined; state: PayoutState | undefined },
  start: PageStart,
): Promise<PayoutRow[]> {
  const whose = supplierId === undefined ? sql`1 = 1` : sql`supplier_id = ${supplierId}`;
  const which = state === undefined ? sql`1 = 1` : sql`state = ${state}`;
  return query.all(PayoutRow, sql`select ${PAYOUT} from payouts where ${whose} and ${which} and ${pageFrom(start)}`);
}

/** Payouts in this state after `afterId` that were made at `untilMs` or earlier, in order. */
export function payoutsIn(
  query: Query,
  state: PayoutState,
  { untilMs, afterId, limit }: { untilMs: number; afterId: string; limit: number },
): Promise<PayoutRow[]> {
  return payoutsWhere(query, sql`state = ${state} and created_ms <= ${untilMs} and id > ${afterId}`, limit);
}

export function payoutsOfBatch(query: Query, batch: string): Promise<PayoutRow[]> {
  return query.all(PayoutRow, sql`select ${PAYOUT} from payouts where batch = ${batch} order by id`);
}

/** All payouts after `afterId`, in order. */
export function payoutsAfter(query: Query, afterId: string, limit: number): Promise<PayoutRow[]> {
  return payoutsWhere(query, sql`id > ${afterId}`, limit);
}

export async function payoutsWithIds(query: Query, ids: readonly string[]): Promise<PayoutRow[]> {
  return ids.length === 0 ? [] : payoutsWhere(query, sql`id in (${join([...ids])})`, ids.length);
}

function payoutsWhere(query: Query, which: Sql, limit: number): Promise<PayoutRow[]> {
  return query.all(PayoutRow, sql`select ${PAYOUT} from payouts where ${which} order by id limit ${limit}`);
}

const WaitingRow = z.object({ state: text, count: int, total_ucents: ucents });

/** How many payouts are open, and their amounts. */
export function countOpen(query: Query): Promise<z.infer<typeof WaitingRow>[]> {
  return query.all(
    WaitingRow,
    sql`select state, count(*) as count, cast(sum(amount_ucents) as bigint) as total_ucents from payouts
        where state in ('due', 'in_flight') group by state order by state`,
  );
}

const BatchRow = z.object({ name: text, created_ms: int, closed_ms: int.nullable() });
export type BatchRow = z.infer<typeof BatchRow>;

/** The batch of this name. The first call makes it. */
export async function openBatch(tx: Tx, name: string, nowMs: number): Promise<BatchRow> {
  const row = await tx.one(
    BatchRow,
    sql`insert into payout_batches (name, created_ms, closed_ms) values (${name}, ${nowMs}, null)
        on conflict (name) do update set name = excluded.name returning name, created_ms, closed_ms`,
  );
  if (row === undefined) throw new Error(`the batch ${name} vanished while it was made`);
  return row;
}

/** False if the batch is closed. Otherwise nobody closes it before the end of the transaction. */
export async function keepBatchOpen(tx: Tx, name: string): Promise<boolean> {
  const kept = await tx.run(sql`update payout_batches set name = name where name = ${name} and closed_ms is null`);
  return kept === 1;
}

export async function closeBatch(tx: Tx, name: string, nowMs: number): Promise<void> {
  await tx.run(sql`update payout_batches set closed_ms = ${nowMs} where name = ${name} and closed_ms is null`);
}

const DestinationRow = z.object({
  id: text,
  supplier_id: text,
  chain: Chain,
  address: text,
  requested_ms: int,
  in_force_ms: int,
  cancelled_ms: int.nullable(),
});
export type DestinationRow = z.infer<typeof DestinationRow>;
const DESTINATION = sql`id, supplier_id, chain, address, requested_ms, in_force_ms, cancelled_ms`;

export async function insertDestination(tx: Tx, row: DestinationRow): Promise<void> {
  await tx.run(
    sql`insert into payout_destinations (${DESTINATION})
        values (${row.id}, ${row.supplier_id}, ${row.chain}, ${row.address}, ${row.requested_ms}, ${row.in_force_ms}, ${row.cancelled_ms})`,
  );
}

export async function cancelDestination(tx: Tx, id: string, nowMs: number): Promise<void> {
  await tx.run(sql`update payout_destinations set cancelled_ms = ${nowMs} where id = ${id}`);
}

const RequestedRow = DestinationRow.pick({ requested_ms: true });

/** When the supplier asked for the nth newest of its destinations, also if that was cancelled; undefined if there were fewer. */
export async function timeOfNthChange(query: Query, supplierId: string, nth: number): Promise<number | undefined> {
  const row = await query.one(
    RequestedRow,
    sql`select requested_ms from payout_destinations where supplier_id = ${supplierId}
        order by requested_ms desc limit 1 offset ${nth - 1}`,
  );
  return row?.requested_ms;
}

/** Deletes changes that were cancelled long ago. The payouts themselves have the addresses to which money went. */
export function forgetDestinations(db: Db, { untilMs, limit }: Piece): Promise<number> {
  return db.tx('payouts.forget_destinations', (tx) =>
    tx.run(
      sql`delete from payout_destinations where id in (
            select id from payout_destinations where cancelled_ms is not null and cancelled_ms <= ${untilMs} order by cancelled_ms limit ${limit})`,
    ),
  );
}

/** The newest two destinations of the supplier that were not cancelled: one may be pending, the one before it is in force. */
export function lastDestinations(query: Query, supplierId: string): Promise<DestinationRow[]> {
  return query.all(
    DestinationRow,
    sql`select ${DESTINATION} from payout_destinations where supplier_id = ${supplierId} and cancelled_ms is null
        order by in_force_ms desc, id desc limit 2`,
  );
}
