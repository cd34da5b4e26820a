// The operator's route for the bookkeeping export: every transfer of a window, in the order of posting.
import { Readable } from 'node:stream';
import { z } from 'zod';
import { type Clock, isoTime } from '../../shared/clock.ts';
import { csvLine } from '../../shared/csv.ts';
import { failField } from '../../shared/errors.ts';
import { dollarText } from '../../shared/money.ts';
import { pageSchema } from '../../shared/api/page.ts';
import type { Db } from '../base/db/db.ts';
import type { Cursors, PageStart } from '../base/http/cursors.ts';
import { listParameters, operator } from '../base/http/operator.ts';
import { type Route, route } from '../base/http/route.ts';
import { type PostedWindow, type TransferFilter, type TransferRow, transfersIn } from '../money/ledger/wallets.ts';

/** The columns of the export, in order. Other people's programs read them, so a new column may only be added at the end. */
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

export const TRANSFER_COLUMNS = Object.keys(TransferFields.shape) as (keyof z.infer<typeof TransferFields>)[];

const CSV_PIECE = 1_000;

/** No transaction lasts this long. So no transfer is added any more with a time that is older than this. */
const SETTLED_MS = 60_000;

export interface ExportDeps {
  db: Db;
  clock: Clock;
  cursors: Cursors;
}

const time = z.iso.datetime({ offset: true });
const id = z.string().min(1).max(255).optional();
const TransferQuery = z.strictObject({
  ...listParameters,
  from: time.optional(),
  to: time.optional(),
  org_id: id,
  subject_id: id,
  kind: id,
  format: z.enum(['json', 'csv']).default('json'),
});

export function exportRoute({ db, clock, cursors }: ExportDeps): Route {
  return route({
    ...operator,
    method: 'GET',
    path: '/admin/transfers',
    operationId: 'adminListTransfers',
    summary:
      'List the transfers of a time window in the order of posting, also only those of an organisation, a subject or a kind. Transfers of the last minute are left out. With `format=csv`, all transfers instead of a page',
    query: TransferQuery,
    responses: {
      200: { description: 'A page of transfers', schema: pageSchema(TransferFields), streamType: 'text/csv' },
    },
    errors: [],
    handler: async ({ query }) => {
      const wanted = wantedBy(query, clock.now());
      const page = ({ from, count }: PageStart): Promise<TransferRow[]> => {
        const after = from === undefined ? undefined : { postedMs: from.createdMs, id: from.id };
        return transfersIn(db.read, wanted, { after, limit: count }, clock);
      };
      if (query.format === 'csv') {
        const headers = {
          'content-type': 'text/csv; charset=utf-8',
          'content-disposition': 'attachment; filename="transfers.csv"',
        };
        return { status: 200, headers, stream: Readable.from(csvOf(page)) };
      }
      const { from = '', to = '', org_id: orgId, subject_id: subjectId, kind } = query;
      const name = `admin/transfers/${JSON.stringify([from, to, orgId, subjectId, kind])}`;
      return { status: 200, body: await cursors.page(name, query, page, { at: positionOf, show: fieldsOf }) };
    },
  });
}

/** @throws ServiceError `validation_failed` */
function wantedBy(query: z.infer<typeof TransferQuery>, nowMs: number): PostedWindow & TransferFilter {
  const { from, to, org_id: orgId, subject_id: subjectId, kind } = query;
  const fromMs = from === undefined ? 0 : Date.parse(from);
  const toMs = to === undefined ? nowMs : Date.parse(to);
  if (fromMs >= toMs) failField('to', 'must be after from');
  // There is no index by kind, so a search by the kind alone would read all transfers.
  if (kind !== undefined && orgId === undefined && subjectId === undefined)
    failField('kind', 'must be given with org_id or subject_id');
  return { fromMs, untilMs: Math.min(toMs, nowMs - SETTLED_MS), orgId, subjectId, kind };
}

const positionOf = ({ posted_ms: createdMs, id: transferId }: TransferRow) => ({ createdMs, id: transferId });

/** The header line, and a line for each transfer. The next page is read only after the client has taken the page before. */
async function* csvOf(page: (start: PageStart) => Promise<TransferRow[]>): AsyncGenerator<string> {
  yield csvLine(TRANSFER_COLUMNS);
  for (let from: PageStart['from'], isLast = false; !isLast;) {
    const rows: TransferRow[] = await page({ count: CSV_PIECE, ...(from && { from }) });
    if (rows.length > 0) yield rows.map((row) => csvOfFields(fieldsOf(row))).join('');
    from = rows.length > 0 ? positionOf(rows.at(-1) as TransferRow) : from;
    isLast = rows.length < CSV_PIECE;
  }
}

/** One line of the export. */
export function csvOfFields(fields: z.infer<typeof TransferFields>): string {
  return csvLine(TRANSFER_COLUMNS.map((column) => fields[column]));
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
