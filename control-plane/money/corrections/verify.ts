// The proof that corrections and ledger agree, and that no refund is above its charge.
import type { Query } from '../../base/db/db.ts';
import { correctedUcents, paidOfSubjects } from '../ledger/wallets.ts';
import * as store from './store.ts';

const PIECE = 500;

/** Returns broken invariants in words; empty if all hold. */
export async function correctionFaults(query: Query): Promise<string[]> {
  const posted = await correctedUcents(query);
  const faults: string[] = [];
  for (let afterId: string | undefined = ''; afterId !== undefined;) {
    const rows: store.Correction[] = await store.correctionsAfter(query, afterId, PIECE);
    for (const row of rows) {
      const size = row.amount_ucents < 0n ? -row.amount_ucents : row.amount_ucents;
      const due = size + row.bad_debt_ucents;
      const is = posted.get(row.id) ?? 0n;
      posted.delete(row.id);
      if (due !== is) faults.push(`${row.id}: ${due} should be posted, the ledger has ${is}`);
    }
    faults.push(...(await refundFaults(query, rows)));
    afterId = rows.at(-1)?.id;
  }
  return [...faults, ...[...posted.keys()].map((id) => `${id}: the ledger has a correction without a row`)];
}

async function refundFaults(query: Query, rows: readonly store.Correction[]): Promise<string[]> {
  const refunded = rows.filter(({ kind }) => kind === 'refund').map((row) => row.subject_id);
  const paid = await paidOfSubjects(query, [...new Set(refunded)]);
  return [...paid].flatMap(([id, ucents]) =>
    ucents < 0n ? [`${id}: ${-ucents} more was refunded than was charged`] : [],
  );
}
