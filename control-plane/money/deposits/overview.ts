// What operators see of deposits at a glance: those that wait for a decision, and those that are due.
import { z } from 'zod';
import { dollarText, UCENTS_PER_CENT } from '../../../shared/money.ts';
import { int, text } from '../../base/db/columns.ts';
import { sql } from '../../base/db/db.ts';
import { countDue, type DueRows, type Waits } from '../../base/http/overview.ts';

export const DUE_DEPOSITS: DueRows = {
  kind: 'deposits',
  done: { driver: 'deposits' },
  count: (query, nowMs) =>
    countDue(query, sql`select due_ms from deposits where due_ms is not null and due_ms <= ${nowMs}`),
};

const WaitingRow = z.object({
  id: text,
  org_id: text,
  status: text,
  amount_cents: int,
  note: text.nullable(),
  created_ms: int,
});

/**
 * Each of the three reasons to wait has an index, so decided deposits are not read. The time at which a deposit began to wait is not
 * stored. The time of its creation is shown instead.
 */
export const waitingDeposits: Waits = async (query, { limit }) => {
  const rows = await query.all(
    WaitingRow,
    sql`select d.id, d.org_id, d.status, d.amount_cents, d.note, d.created_ms from (
          select distinct deposit_id from (
            select id as deposit_id from deposits where status = 'held_screening'
            union all select id from deposits where note > ''
            union all select deposit_id from deposit_transfers where booking = 'suspense') as found) as waiting
        cross join deposits d where d.id = waiting.deposit_id order by d.created_ms, d.id limit ${limit}`,
  );
  return rows.map(({ id, org_id: orgId, status, amount_cents: cents, note, created_ms: sinceMs }) => ({
    kind: 'deposit',
    id,
    what: `The deposit of $${dollarText(BigInt(cents) * UCENTS_PER_CENT)} from the organisation ${orgId} is ${status}${note === null ? '' : `: ${note}`}.`,
    sinceMs,
    command: `svc-control-plane admin deposit show ${id}`,
  }));
};
