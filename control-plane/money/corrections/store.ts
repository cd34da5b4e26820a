// The SQL of corrections.
import { z } from 'zod';
import { flag, int, text, ucents } from '../../base/db/columns.ts';
import { type Query, sql, type Tx } from '../../base/db/db.ts';

const CorrectionRow = z.object({
  id: text,
  kind: z.enum(['refund', 'credit', 'adjustment']),
  org_id: text,
  subject_id: text,
  reference: text,
  reason: text,
  amount_ucents: ucents,
  supplier_ucents: ucents,
  bad_debt_ucents: ucents,
  from_platform: flag,
  created_ms: int,
});
export type Correction = z.infer<typeof CorrectionRow>;

const COLUMNS = sql`id, kind, org_id, subject_id, reference, reason, amount_ucents, supplier_ucents, bad_debt_ucents, from_platform, created_ms`;

export async function insertCorrection(tx: Tx, row: Correction): Promise<void> {
  await tx.run(
    sql`insert into corrections (${COLUMNS})
        values (${row.id}, ${row.kind}, ${row.org_id}, ${row.subject_id}, ${row.reference}, ${row.reason}, ${row.amount_ucents},
          ${row.supplier_ucents}, ${row.bad_debt_ucents}, ${row.from_platform}, ${row.created_ms})`,
  );
}

export function findByReference(
  query: Query,
  { orgId, kind, reference }: { orgId: string; kind: Correction['kind']; reference: string },
): Promise<Correction | undefined> {
  return query.one(
    CorrectionRow,
    sql`select ${COLUMNS} from corrections where org_id = ${orgId} and kind = ${kind} and reference = ${reference}`,
  );
}

const TotalRow = z.object({ total_ucents: ucents });

/** The amount of a subject that was refunded by the platform alone, or, if `fromPlatform` is false, in proportion to the charge. */
export async function refundedOf(query: Query, subjectId: string, fromPlatform: boolean): Promise<bigint> {
  const row = await query.one(
    TotalRow,
    sql`select cast(coalesce(sum(amount_ucents), 0) as bigint) as total_ucents from corrections
        where subject_id = ${subjectId} and kind = 'refund' and from_platform = ${fromPlatform}`,
  );
  return row?.total_ucents ?? 0n;
}

/** The refunds of a subject, oldest first. */
export function refundsOf(query: Query, subjectId: string): Promise<Correction[]> {
  return query.all(
    CorrectionRow,
    sql`select ${COLUMNS} from corrections where subject_id = ${subjectId} and kind = 'refund' order by created_ms, id`,
  );
}

/** Corrections after `afterId`, in order. */
export function correctionsAfter(query: Query, afterId: string, limit: number): Promise<Correction[]> {
  return query.all(
    CorrectionRow,
    sql`select ${COLUMNS} from corrections where id > ${afterId} order by id limit ${limit}`,
  );
}
