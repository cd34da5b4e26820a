// GET /v1/receipts/totals: what requests to models used and cost, by time and by model or API key.
import { z } from 'zod';
import { pageParameters } from '../../../shared/api/page.ts';
import { ReceiptTotals, ReceiptTotalsQuery, type ReceiptTotal } from '../../../shared/api/receipt-totals.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { failField } from '../../../shared/errors.ts';
import { USAGE_READS_PER_ORG_MAX } from '../../../shared/limits.ts';
import { dollarText } from '../../../shared/money.ts';
import type { Db } from '../../base/db/db.ts';
import type { Cursors } from '../../base/http/cursors.ts';
import { type Route, route } from '../../base/http/route.ts';
import { openTurns } from '../../base/http/turns.ts';
import { bucketEnd, bucketStart, type Window, windowOf } from '../../money/metering/buckets.ts';
import { completeUntilMs, type GroupBy, type Total, totalRows } from './totals.ts';

/** The fields of the last row that a cursor stores. */
const LastRow = z.strictObject({ group: z.string(), now_ms: z.int() });

interface Deps {
  db: Db;
  clock: Clock;
  cursors: Cursors;
}

export function totalsRoute({ db, clock, cursors }: Deps): Route {
  const inTurn = openTurns(clock, USAGE_READS_PER_ORG_MAX);
  return route({
    method: 'GET',
    path: '/v1/receipts/totals',
    operationId: 'listReceiptTotals',
    tag: 'Billing',
    summary: 'Sum up the receipts of requests to models, by time bucket',
    description:
      'Rows are in the order of time. A request counts in the bucket in which it ended, and only once it has ended for two minutes: `complete_until` says how far the totals reach. They are kept for ever, also those of receipts that were deleted since.',
    scope: 'billing:read',
    idempotency: 'none',
    query: ReceiptTotalsQuery.extend(pageParameters),
    responses: { 200: { description: 'A page of totals', schema: ReceiptTotals } },
    errors: [],
    handler: async ({ caller: { orgId }, query }) => {
      const { bucket, group_by: groupBy, start, end, limit } = query;
      // The cursor stores the time of the first page, so that all pages have the same window.
      const list = `receipt-totals/${orgId}/${groupBy}/${bucket}/${start}/${end}`;
      const position = cursors.read(list, query.cursor);
      const last = position === undefined ? undefined : LastRow.parse(JSON.parse(position.id));
      const nowMs = last?.now_ms ?? clock.now();
      const { startMs, endMs } = windowFor(query, nowMs);
      const after =
        position === undefined || last === undefined ? undefined : { startMs: position.createdMs, group: last.group };
      // Read before the rows, which may then have more than it says, but not less.
      const completeMs = await completeUntilMs(db.read, clock.now());
      const asked = { orgId, span: bucket, groupBy, startMs, endMs, after, limit: limit + 1 };
      const rows = await inTurn(orgId, () => totalRows({ db, clock }, asked));
      const page = cursors.pageOf(list, rows, limit, {
        at: (row) => ({ createdMs: row.startMs, id: JSON.stringify({ group: row.group, now_ms: nowMs }) }),
        show: (row) => totalView(row, groupBy),
      });
      return { status: 200, body: { ...page, complete_until: isoTime(completeMs) } };
    },
  });
}

/**
 * The requested window, which begins and ends with a bucket: sums of parts of a bucket are not kept.
 * @throws ServiceError `validation_failed`
 */
function windowFor({ bucket, start, end }: z.infer<typeof ReceiptTotalsQuery>, nowMs: number): Window {
  const startOf = (ms: number): number => bucketStart(ms, bucket);
  const window = windowOf({ bucket, start, end }, bucketEnd(startOf(nowMs), bucket));
  const edge = `must be the start of ${bucket === 'hour' ? 'an' : 'a'} ${bucket} in UTC, because rows are by ${bucket}`;
  if (end !== undefined && startOf(window.endMs) !== window.endMs) failField('end', edge);
  if (start !== undefined && startOf(window.startMs) !== window.startMs) failField('start', edge);
  return { ...window, startMs: startOf(window.startMs) };
}

function totalView(row: Total, groupBy: GroupBy): ReceiptTotal {
  return {
    bucket_start: isoTime(row.startMs),
    ...(groupBy === 'none' ? {} : { [groupBy]: row.group }),
    requests: row.requests,
    prompt_tokens: row.promptTokens,
    completion_tokens: row.completionTokens,
    images: row.images,
    cost: dollarText(row.costUcents),
  };
}
