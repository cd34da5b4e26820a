// What operators see of credits at a glance: rentals that are not charged now, and credits that wait for a decision.
import { z } from 'zod';
import { dollarText } from '../../../shared/money.ts';
import { int } from '../../base/db/columns.ts';
import { type Query, sql } from '../../base/db/db.ts';
import type { Waits } from '../../base/http/overview.ts';
import { oldestHeld } from './store.ts';

const OpenRow = z.object({ machines: int, rentals: int });

/** More rentals than this are not counted. */
const COUNTED_MAX = 10_000;

/** Rentals that are not charged now, and their machines. */
export async function openFreeTimes(query: Query): Promise<z.infer<typeof OpenRow>> {
  const row = await query.one(
    OpenRow,
    sql`select count(distinct machine_id) as machines, count(*) as rentals from (
          select machine_id from free_times where ended_ms is null and subject_id > '' limit ${COUNTED_MAX}) as open_times`,
  );
  return row ?? { machines: 0, rentals: 0 };
}

export const waitingCredits: Waits = async (query, { limit }) =>
  (await oldestHeld(query, limit)).map((row) => ({
    kind: 'credit',
    id: row.id,
    what:
      row.kind === 'credit'
        ? `A credit of $${dollarText(row.amount_ucents)} for the organisation ${row.org_id} waits for your decision.`
        : `A payment of $${dollarText(row.amount_ucents)} to the supplier ${row.supplier_id} waits for your decision.`,
    sinceMs: row.created_ms,
    command: `svc-control-plane admin credit release ${row.id} --note <text>`,
  }));
