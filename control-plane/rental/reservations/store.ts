// The SQL of reservation contracts.
import { z } from 'zod';
import { Commitment, RenewalMode } from '../../../shared/api/reservation.ts';
import type { ReservationState } from '../../../shared/states.ts';
import { idRow, int, json, text } from '../../base/db/columns.ts';
import { type Query, type Tx, sql } from '../../base/db/db.ts';
import { pageFrom, type PageStart } from '../../base/http/cursors.ts';
import type { Term } from './term.ts';

const ReservationRow = z.object({
  id: text,
  org_id: text,
  title: text,
  status: z.enum(['pending', 'active', 'suspended', 'expired', 'cancelled']),
  renewal: RenewalMode,
  commitment: json(Commitment),
  starts_ms: int,
  /** The end of the term. The contract covers the time before it. */
  ends_ms: int,
  /** The start of the first term. It stays when terms follow. */
  first_ms: int,
  created_ms: int,
  /** When the contract began to set GPUs aside; null before the lead time. */
  claimed_ms: int.nullable(),
});
export type ReservationRow = z.infer<typeof ReservationRow>;

const COLUMNS = sql`id, org_id, title, status, renewal, commitment, starts_ms, ends_ms, first_ms, created_ms, claimed_ms`;

export async function insertReservation(tx: Tx, row: ReservationRow): Promise<void> {
  await tx.run(
    sql`insert into reservations (${COLUMNS})
        values (${row.id}, ${row.org_id}, ${row.title}, ${row.status}, ${row.renewal}, ${JSON.stringify(row.commitment)},
          ${row.starts_ms}, ${row.ends_ms}, ${row.first_ms}, ${row.created_ms}, ${row.claimed_ms})`,
  );
}

export function findReservation(query: Query, id: string): Promise<ReservationRow | undefined> {
  return query.one(ReservationRow, sql`select ${COLUMNS} from reservations where id = ${id}`);
}

/** Newest first. */
export function reservationsOfOrg(query: Query, orgId: string): Promise<ReservationRow[]> {
  return query.all(ReservationRow, sql`select ${COLUMNS} from reservations where org_id = ${orgId} order by id desc`);
}

/** A page of the contracts of all organisations, newest first. */
export function pageOfReservations(query: Query, start: PageStart): Promise<ReservationRow[]> {
  return query.all(ReservationRow, sql`select ${COLUMNS} from reservations where ${pageFrom(start)}`);
}

/** Contracts that are not over. */
export function liveReservations(query: Query): Promise<ReservationRow[]> {
  return query.all(
    ReservationRow,
    sql`select ${COLUMNS} from reservations where status in ('pending', 'active', 'suspended') order by id`,
  );
}

/** Contracts with a due step: their GPUs must be set aside, or their term has begun or ended and the status does not show it yet. */
export async function dueReservations(
  query: Query,
  now: { nowMs: number; leadMs: number },
  limit: number,
): Promise<string[]> {
  const { nowMs, leadMs } = now;
  const rows = await query.all(
    idRow,
    sql`select id from reservations
        where status in ('pending', 'active', 'suspended')
          and ((claimed_ms is null and starts_ms <= ${nowMs + leadMs})
            or (status = 'pending' and starts_ms <= ${nowMs}) or (status <> 'pending' and ends_ms <= ${nowMs}))
        order by id limit ${limit}`,
  );
  return rows.map((row) => row.id);
}

/** The only writer of `status` (through states.ts). False if the status has changed meanwhile. */
export async function setStatus(
  tx: Tx,
  id: string,
  step: { from: ReservationState; to: ReservationState },
): Promise<boolean> {
  const changed = await tx.run(
    sql`update reservations set status = ${step.to} where id = ${id} and status = ${step.from}`,
  );
  return changed === 1;
}

export async function setClaimed(tx: Tx, id: string, nowMs: number): Promise<void> {
  await tx.run(sql`update reservations set claimed_ms = ${nowMs} where id = ${id}`);
}

export async function setTerm(tx: Tx, id: string, term: Term): Promise<void> {
  await tx.run(sql`update reservations set starts_ms = ${term.starts_ms}, ends_ms = ${term.ends_ms} where id = ${id}`);
}
