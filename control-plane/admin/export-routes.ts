// The operator's route for the bookkeeping export: every transfer of a window, in the order of posting.
import { z } from 'zod';
import { type Clock, isoTime } from '../../shared/clock.ts';
import { failField } from '../../shared/errors.ts';
import { dollarText } from '../../shared/money.ts';
import { pageSchema } from '../../shared/api/page.ts';
import type { Db } from '../base/db/db.ts';
import type { Cursors, PageStart } from '../base/http/cursors.ts';
import { listParameters, operator } from '../base/http/operator.ts';
import { type Route, route } from '../base/http/route.ts';
import { type TransferRow, transfersIn } from '../money/ledger/wallets.ts';

/** The columns of the export, in their order. Programs of others read them: they only ever get new ones at the end. */
export const TransferFields = z.strictObject({
  transfer_id: z.string(),
  batch_id: z.string(),
  posted_at: z.string(),
  effective_at: z.string(),
  kind: z.string(),
  debit_account: z.string(),
  credit_account: z.string(),
  amount: z.string(),
  currency: z.string(),
  subject_id: z.string(),
  evidence: z.string().nullable(),
});

/** No transaction lasts this long, so nothing is added to the time before. */
const SETTLED_MS = 60_000;

export interface ExportDeps {
  db: Db;
  clock: Clock;
  cursors: Cursors;
}

export function exportRoute({ db, clock, cursors }: ExportDeps): Route {
  const time = z.iso.datetime({ offset: true });
  return route({
    ...operator,
    method: 'GET',
    path: '/admin/transfers',
    operationId: 'adminListTransfers',
    summary: 'Transfers of a window in the order of posting; those of the last minute are left out',
    query: z.strictObject({ ...listParameters, from: time, to: time }),
    responses: { 200: { description: 'A page of transfers', schema: pageSchema(TransferFields) } },
    errors: [],
    handler: async ({ query }) => {
      const [fromMs, toMs] = [Date.parse(query.from), Date.parse(query.to)];
      if (fromMs >= toMs) failField('to', 'must be after from');
      const window = { fromMs, untilMs: Math.min(toMs, clock.now() - SETTLED_MS) };
      const rows = ({ from, count }: PageStart): Promise<TransferRow[]> => {
        const after = from === undefined ? undefined : { postedMs: from.createdMs, id: from.id };
        return transfersIn(db.read, window, { after, limit: count });
      };
      const view = {
        at: ({ posted_ms: createdMs, id }: TransferRow) => ({ createdMs, id }),
        show: fieldsOf,
      };
      return { status: 200, body: await cursors.page(`admin/transfers/${fromMs}/${toMs}`, query, rows, view) };
    },
  });
}

function fieldsOf(row: TransferRow): z.infer<typeof TransferFields> {
  return {
    transfer_id: row.id,
    batch_id: row.batch_id,
    posted_at: isoTime(row.posted_ms),
    effective_at: isoTime(row.effective_ms),
    kind: row.kind,
    debit_account: row.debit_account_id,
    credit_account: row.credit_account_id,
    amount: dollarText(row.amount_ucents),
    currency: 'USD',
    subject_id: row.subject_id,
    evidence: row.evidence,
  };
}
