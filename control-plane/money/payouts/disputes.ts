// Disputes: the earnings of a rental stay unpaid until the operator releases them to the supplier or refunds the customer.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { fail, failField } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { dollarText } from '../../../shared/money.ts';
import { int, text, ucents } from '../../base/db/columns.ts';
import { type Db, join, type Query, type Sql, sql, type Tx } from '../../base/db/db.ts';
import { pageBy, type PageStart } from '../../base/http/cursors.ts';
import { waitingCreditOf } from '../credits/store.ts';
import { refundTotals } from '../ledger/store.ts';
import { besideSegments, paidOfSubjects } from '../ledger/wallets.ts';
import { DISPUTED, type Metering } from '../metering/metering.ts';
import { isRentedFrom, segmentsOf, segmentsPast } from '../metering/store.ts';

const DisputeRow = z.object({
  id: text,
  instance_id: text,
  since_ms: int,
  reason: text,
  state: z.enum(['open', 'released', 'refunded']),
  refunded_ucents: ucents,
  note: text.nullable(),
  opened_ms: int,
  resolved_ms: int.nullable(),
});
export type Dispute = z.infer<typeof DisputeRow>;

const COLUMNS = sql`id, instance_id, since_ms, reason, state, refunded_ucents, note, opened_ms, resolved_ms`;

export interface NewDispute {
  instanceId: string;
  /** Null: the whole rental is disputed. */
  sinceMs: number | null;
  reason: string;
}

export interface Resolution {
  /** Takes the disputed time back from supplier and platform and refunds its cost to the customer. */
  refund: boolean;
  note: string;
}

export interface Disputes {
  /** @throws ServiceError `not_found` for a rental that was never charged, `conflict` if it is disputed, `validation_failed` for a future time */
  open(dispute: NewDispute): Promise<Dispute>;
  /** @throws ServiceError `not_found`, `conflict` if it is resolved already */
  resolve(id: string, resolution: Resolution): Promise<Dispute>;
}

interface DisputesDeps {
  db: Db;
  clock: Clock;
  ids: Ids;
  metering: Pick<Metering, 'refund'>;
}

export function openDisputes(deps: DisputesDeps): Disputes {
  const { db } = deps;
  return {
    open: async (dispute) => {
      const suppliers = await suppliersOf(db.read, dispute.instanceId);
      return db.tx('payouts.dispute', async (tx) => {
        // Waits until a transaction that pays the supplier has ended. A later one sees the dispute.
        await tx.lock('supplier', ...suppliers);
        await tx.lock('instance', dispute.instanceId);
        return openDispute(tx, dispute, deps);
      });
    },
    resolve: async (id, resolution) => {
      const instanceId = (await findDispute(db.read, id))?.instance_id ?? '';
      const suppliers = await suppliersOf(db.read, instanceId);
      return db.tx('payouts.resolve', async (tx) => {
        // Waits too. Else a payout could read the earnings before the refund, and the disputes after it.
        await tx.lock('supplier', ...suppliers);
        await tx.lock('instance', instanceId);
        return resolve(tx, id, { ...deps, ...resolution });
      });
    },
  };
}

/** The suppliers of a rental. They never change after its first charge. */
async function suppliersOf(query: Query, instanceId: string): Promise<string[]> {
  return (await segmentsOf(query, [instanceId])).map((segment) => segment.supplier_id);
}

/** A page, newest first. */
export function pageOfDisputes(query: Query, start: PageStart): Promise<Dispute[]> {
  const page = pageBy(start, { time: sql`opened_ms`, id: sql`id` });
  return query.all(DisputeRow, sql`select ${COLUMNS} from disputes where ${page}`);
}

/** Disputes of one rental, oldest first. */
export function disputesOf(query: Query, instanceId: string): Promise<Dispute[]> {
  return query.all(
    DisputeRow,
    sql`select ${COLUMNS} from disputes where instance_id = ${instanceId} order by opened_ms, id`,
  );
}

function findDispute(query: Query, id: string): Promise<Dispute | undefined> {
  return query.one(DisputeRow, sql`select ${COLUMNS} from disputes where id = ${id}`);
}

/** Open disputes, oldest first. */
export function oldestDisputes(query: Query, limit: number): Promise<Dispute[]> {
  return query.all(
    DisputeRow,
    sql`select ${COLUMNS} from disputes where state = 'open' order by opened_ms, id limit ${limit}`,
  );
}

/** Selects each rental of the supplier with an open dispute, and the time from which it is disputed as `from_ms`; 0: all of it. */
export function disputedOf(supplierId: string): Sql {
  return sql`select instance_id as subject_id, since_ms as from_ms from disputes
    where state = 'open' and ${isRentedFrom(supplierId, sql`instance_id`)}`;
}

const DisputedRow = DisputeRow.pick({ instance_id: true, since_ms: true });

/** Those of the rentals that have an open dispute, and the time from which each is disputed; 0: all of it. */
export async function disputedAmong(query: Query, instanceIds: readonly string[]): Promise<Map<string, number>> {
  if (instanceIds.length === 0) return new Map();
  const rows = await query.all(
    DisputedRow,
    sql`select instance_id, since_ms from disputes where state = 'open' and instance_id in (${join([...instanceIds])})`,
  );
  return new Map(rows.map((row) => [row.instance_id, row.since_ms]));
}

/** Whether an open dispute can still take the entry back. An entry is posted at or after the end of the time that it pays for. */
export function isDisputed(
  { subject_id: id, posted_ms: postedMs }: { subject_id: string; posted_ms: number },
  disputed: ReadonlyMap<string, number>,
): boolean {
  const sinceMs = disputed.get(id);
  return sinceMs !== undefined && postedMs >= sinceMs;
}

/** Proves that each refund is in the ledger, to the microcent. Returns broken invariants in words; empty if all hold. */
export async function disputeFaults(query: Query): Promise<string[]> {
  const posted = await refundTotals(query, DISPUTED);
  const rows = await query.all(DisputeRow, sql`select ${COLUMNS} from disputes order by id`);
  const faults = rows.flatMap((row) => {
    const is = posted.get(evidenceOf(row)) ?? 0n;
    posted.delete(evidenceOf(row));
    return is === row.refunded_ucents ? [] : [`${row.id}: ${row.refunded_ucents} refunded, the ledger has ${is}`];
  });
  return [...faults, ...[...posted.keys()].map((evidence) => `${evidence}: a refund without a dispute`)];
}

const evidenceOf = ({ id }: Pick<Dispute, 'id'>): string => `${DISPUTED}${id}`;

async function openDispute(
  tx: Tx,
  { instanceId, sinceMs, reason }: NewDispute,
  { ids, clock }: DisputesDeps,
): Promise<Dispute> {
  // A refund would charge a running rental until then, and charge the same time again from the refund on.
  if (sinceMs !== null && sinceMs > clock.now()) failField('since', 'must not be in the future');
  if ((await segmentsPast(tx, [instanceId], sinceMs ?? 0)).length === 0) {
    return fail(
      'not_found',
      `Nothing was charged for an instance ${instanceId} in that time: there is nothing to dispute.`,
    );
  }
  const row: Dispute = {
    id: ids.prefixed('dsp'),
    instance_id: instanceId,
    since_ms: sinceMs ?? 0,
    reason,
    state: 'open',
    refunded_ucents: 0n,
    note: null,
    opened_ms: clock.now(),
    resolved_ms: null,
  };
  const isNew = await tx.run(
    sql`insert into disputes (${COLUMNS})
        values (${row.id}, ${row.instance_id}, ${row.since_ms}, ${row.reason}, ${row.state}, ${row.refunded_ucents}, ${row.note},
          ${row.opened_ms}, ${row.resolved_ms})
        on conflict (instance_id) where state = 'open' do nothing`,
  );
  return isNew === 1 ? row : fail('conflict', `The instance ${instanceId} is disputed already. Resolve that first.`);
}

/** @throws ServiceError `conflict` if the wallet got back more than it has paid, or would get it from credits that wait for a decision */
async function assertWithinCharge(tx: Tx, instanceId: string): Promise<void> {
  // Read before what was paid: a credit that is released between the two reads is then counted twice, and never left out.
  const waitingUcents = await waitingCreditOf(tx, instanceId);
  const left = (await paidOfSubjects(tx, [instanceId])).get(instanceId) ?? 0n;
  if (left - waitingUcents >= 0n) return;
  const { shortfall_ucents: uncovered = 0n } = (await besideSegments(tx, [instanceId])).get(instanceId) ?? {};
  const more = 'more would be given back than was charged';
  if (left >= 0n)
    return fail(
      'conflict',
      `Credits of ${instanceId} wait for a decision. With them, ${more}. Decide about them first: admin credit list.`,
    );
  if (left + uncovered < 0n)
    return fail('conflict', `An operator has refunded ${instanceId} already. Together, ${more}.`);
  return fail(
    'conflict',
    `The balance has not covered $${dollarText(uncovered)} of the charge for ${instanceId}, so this refund would give back more than was paid. Release the dispute, and give back what was paid: admin refund ${instanceId}.`,
  );
}

async function resolve(
  tx: Tx,
  id: string,
  { refund, note, metering, clock }: DisputesDeps & Resolution,
): Promise<Dispute> {
  const row = await findDispute(tx, id);
  if (row === undefined) return fail('not_found', `There is no dispute ${id}.`);
  if (row.state !== 'open') return fail('conflict', `The dispute ${id} was ${row.state} already.`);
  const refunded = refund
    ? await metering.refund(tx, row.instance_id, { sinceMs: row.since_ms, evidence: evidenceOf(row) })
    : 0n;
  if (refund) await assertWithinCharge(tx, row.instance_id);
  const state = refund ? 'refunded' : 'released';
  const resolvedMs = clock.now();
  await tx.run(
    sql`update disputes set state = ${state}, refunded_ucents = ${refunded}, note = ${note}, resolved_ms = ${resolvedMs}
        where id = ${id}`,
  );
  return { ...row, state, refunded_ucents: refunded, note, resolved_ms: resolvedMs };
}
