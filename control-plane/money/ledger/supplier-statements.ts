// The SQL of a supplier's account over time: what changed it in a window, in groups.
import { z } from 'zod';
import { int, text, ucents } from '../../base/db/columns.ts';
import { type Query, type Sql, sql } from '../../base/db/db.ts';
import { accountId, payable } from './accounts.ts';
import { EARNED, FAILED, PAID, TAKEN_BACK } from './suppliers.ts';
import type { PostedWindow } from './wallets.ts';

const SumRow = z.object({ total_ucents: ucents });

const GroupRow = z.object({
  kind: text,
  subject_id: text,
  evidence: text.nullable(),
  count: int,
  /** Negative for what was taken back or paid out. */
  change_ucents: ucents,
  last_posted_ms: int,
});
export type SupplierGroup = z.infer<typeof GroupRow>;

/** All changes of the supplier's account in the window, by kind, subject and evidence. */
export function supplierGroups(query: Query, supplierId: string, window: PostedWindow): Promise<SupplierGroup[]> {
  return query.all(
    GroupRow,
    sql`select kind, subject_id, evidence, count(*) as count, cast(sum(change) as bigint) as change_ucents, max(posted_ms) as last_posted_ms
        from (${sidesOf(supplierId, window, sql`kind, subject_id, evidence, posted_ms`)}) as changes
        group by kind, subject_id, evidence order by max(posted_ms), kind, subject_id, evidence`,
  );
}

/** The change of the supplier's account in the window. */
export async function supplierChange(query: Query, supplierId: string, window: PostedWindow): Promise<bigint> {
  const row = await query.one(
    SumRow,
    sql`select cast(coalesce(sum(change), 0) as bigint) as total_ucents
        from (${sidesOf(supplierId, window, sql`posted_ms`)}) as changes`,
  );
  return row?.total_ucents ?? 0n;
}

/** Each side has its own index, whose condition is repeated here. */
function sidesOf(supplierId: string, { fromMs, untilMs }: PostedWindow, columns: Sql): Sql {
  const account = accountId(payable(supplierId));
  const isIn = sql`posted_ms >= ${fromMs} and posted_ms < ${untilMs}`;
  return sql`select ${columns}, amount_ucents as change from transfers where ${EARNED} and credit_account_id = ${account} and ${isIn}
    union all
    select ${columns}, amount_ucents as change from transfers where ${FAILED} and credit_account_id = ${account} and ${isIn}
    union all
    select ${columns}, -amount_ucents as change from transfers where ${TAKEN_BACK} and debit_account_id = ${account} and ${isIn}
    union all
    select ${columns}, -amount_ucents as change from transfers where ${PAID} and debit_account_id = ${account} and ${isIn}`;
}
