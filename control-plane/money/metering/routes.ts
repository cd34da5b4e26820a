// GET /v1/usage and GET /v1/balance (specification 4.6, DESIGN section 8).
import { Balance, UsageQuery, UsageRow } from '../../../shared/api/billing.ts';
import { pageParameters, pageSchema } from '../../../shared/api/page.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { failField } from '../../../shared/errors.ts';
import { centsFloor, dollarText } from '../../../shared/money.ts';
import type { Db } from '../../base/db/db.ts';
import type { Cursors } from '../../base/http/cursors.ts';
import { type Route, route } from '../../base/http/route.ts';
import { wallet } from '../ledger/accounts.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { type Bucket, type GroupBy, type UsageRow as UsageEntry, usageRows } from './usage.ts';

const DAY_MS = 24 * 3_600_000;
/** Specification 4.6. */
const WINDOW_DEFAULT_MS = 30 * DAY_MS;

interface Deps {
  db: Db;
  clock: Clock;
  cursors: Cursors;
  ledger: Ledger;
}

export function billingRoutes(deps: Deps): Route[] {
  return [usageRoute(deps), balanceRoute(deps)];
}

function usageRoute({ db, clock, cursors }: Deps): Route {
  return route({
    method: 'GET',
    path: '/v1/usage',
    operationId: 'listUsage',
    tag: 'Billing',
    summary: 'What was used and what it cost, by time bucket',
    scope: 'billing:read',
    idempotency: 'none',
    query: UsageQuery.extend(pageParameters),
    responses: { 200: { description: 'A page of usage rows', schema: pageSchema(UsageRow) } },
    errors: [],
    handler: async ({ caller, query }) => {
      const nowMs = clock.now();
      const endMs = query.end === undefined ? nowMs : Date.parse(query.end);
      const startMs = query.start === undefined ? endMs - WINDOW_DEFAULT_MS : Date.parse(query.start);
      if (startMs >= endMs) failField('start', 'must be before end');
      const bucket = query.bucket ?? bucketFor(endMs - startMs);
      const rows = await usageRows(db.read, {
        orgId: caller.orgId,
        bucket,
        groupBy: query.group_by,
        startMs,
        endMs,
        nowMs,
      });
      const list = `usage/${caller.orgId}/${bucket}/${query.group_by}`;
      const after = cursors.read(list, query.cursor);
      const rest = rows.filter((row) => after === undefined || isAfter(row, after));
      const body = cursors.pageOf(list, rest.slice(0, query.limit + 1), query.limit, {
        at: (row) => ({ createdMs: row.bucketStartMs, id: row.key }),
        show: (row) => usageView(row, query.group_by),
      });
      return { status: 200, body };
    },
  });
}

function balanceRoute({ db, ledger }: Deps): Route {
  return route({
    method: 'GET',
    path: '/v1/balance',
    operationId: 'getBalance',
    tag: 'Billing',
    summary: 'The prepaid balance',
    scope: 'billing:read',
    idempotency: 'none',
    responses: { 200: { description: 'The balance', schema: Balance } },
    errors: [],
    handler: async ({ caller }) => {
      const balance = await ledger.balance(db.read, wallet(caller.orgId));
      return {
        status: 200,
        body: {
          balance_cents: Number(centsFloor(balance.postedUcents)),
          held_cents: Number(centsFloor(balance.heldUcents)),
          available_cents: Number(centsFloor(balance.availableUcents)),
          balance: dollarText(balance.postedUcents),
        },
      };
    },
  });
}

function bucketFor(windowMs: number): Bucket {
  if (windowMs <= 2 * DAY_MS) return 'hour';
  return windowMs <= 62 * DAY_MS ? 'day' : 'month';
}

function isAfter(row: UsageEntry, position: { createdMs: number; id: string }): boolean {
  if (row.bucketStartMs !== position.createdMs) return row.bucketStartMs > position.createdMs;
  return row.key > position.id;
}

function usageView(row: UsageEntry, groupBy: GroupBy): UsageRow {
  return {
    bucket_start: isoTime(row.bucketStartMs),
    [groupBy]: row.key,
    gpu_seconds: row.gpuSeconds,
    cost_cents: Number(row.costCents),
  };
}
