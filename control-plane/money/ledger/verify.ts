// The proof that the books agree: run by `ledger verify`, after every test scenario, and by operators whenever they like.
import { z } from 'zod';
import { text, ucents } from '../../base/db/columns.ts';
import { type Tx, sql } from '../../base/db/db.ts';

const SumsRow = z.object({ debits: ucents, credits: ucents });
const AccountFaultRow = z.object({ id: text, kept: ucents, summed: ucents });

/** Broken invariants in words, empty when all hold. One transaction, so that it sees one state. */
export async function ledgerFaults(tx: Tx): Promise<string[]> {
  const sums = await tx.one(
    SumsRow,
    sql`select cast(coalesce(sum(debits_ucents), 0) as bigint) as debits, cast(coalesce(sum(credits_ucents), 0) as bigint) as credits
        from ledger_accounts`,
  );
  const faults: string[] = [];
  if (sums !== undefined && sums.debits !== sums.credits)
    faults.push(`debits ${sums.debits} differ from credits ${sums.credits}`);
  const sided = [
    ['debits', sql`debits_ucents`, sql`select debit_account_id as account_id, amount_ucents from transfers`],
    ['credits', sql`credits_ucents`, sql`select credit_account_id as account_id, amount_ucents from transfers`],
    ['holds', sql`held_ucents`, sql`select account_id, amount_ucents from holds`],
  ] as const;
  for (const [what, column, source] of sided) {
    const rows = await tx.all(
      AccountFaultRow,
      sql`select a.id as id, a.${column} as kept, cast(coalesce(sum(s.amount_ucents), 0) as bigint) as summed
          from ledger_accounts a left join (${source}) s on s.account_id = a.id
          group by a.id, a.${column} having a.${column} <> coalesce(sum(s.amount_ucents), 0)`,
    );
    for (const row of rows) faults.push(`${row.id}: ${what} kept ${row.kept}, entries sum to ${row.summed}`);
  }
  const unclear = await tx.all(
    z.object({ id: text }),
    sql`select id from ledger_accounts where kind = 'rental_clearing' and debits_ucents <> credits_ucents`,
  );
  for (const row of unclear) faults.push(`${row.id} is not zero`);
  return faults;
}
