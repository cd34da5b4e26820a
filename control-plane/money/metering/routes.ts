// GET /v1/usage and GET /v1/balance (specification 4.6, DESIGN section 8).
import { Balance, UsageQuery, UsageRow } from '../../../shared/api/billing.ts';
import { pageParameters, pageSchema } from '../../../shared/api/page.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { USAGE_READS_PER_ORG_MAX } from '../../../shared/limits.ts';
import { centsFloor, dollarText } from '../../../shared/money.ts';
import { z } from 'zod';
import type { Db } from '../../base/db/db.ts';
import type { Cursors } from '../../base/http/cursors.ts';
import { type Route, route } from '../../base/http/route.ts';
import { type InTurn, openTurns } from '../../base/http/turns.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { windowOf } from './buckets.ts';
import { runwayOf } from './runway.ts';
import { type GroupBy, type UsageQuery as UsageAsked, usageRows } from './usage.ts';
import type { UsageRow as UsageEntry } from './usage-sums.ts';

/** The fields of the last row that a cursor stores. */
const LastRow = z.strictObject({ key: z.string(), now_ms: z.int() });

/** A hundredth of an hour. */
const HUNDREDTH_MS = 36_000;

interface Deps {
  db: Db;
  clock: Clock;
  cursors: Cursors;
  ledger: Ledger;
}

export function billingRoutes(deps: Deps): Route[] {
  return [usageRoute(deps, openTurns(deps.clock, USAGE_READS_PER_ORG_MAX)), balanceRoute(deps)];
}

function usageRoute({ db, clock, cursors }: Deps, inTurn: InTurn): Route {
  return route({
    method: 'GET',
    path: '/v1/usage',
    operationId: 'listUsage',
    tag: 'Billing',
    summary: 'List usage and its cost, by time bucket',
    description:
      'Rows are in the order of time. Only the part of a bucket that lies within the window counts. So windows may begin and end at any time, and the costs of adjacent windows add up. Running instances count up to the moment of the first page. With every bucket and grouping, the `cost` of all rows adds up to exactly what was charged. The `cost_cents` of the rows of an instance add up to its charge, rounded down once.',
    scope: 'billing:read',
    idempotency: 'none',
    query: UsageQuery.extend(pageParameters),
    responses: { 200: { description: 'A page of usage rows', schema: pageSchema(UsageRow) } },
    errors: [],
    handler: async ({ caller, query }) => {
      // The cursor stores the window and the time of the first page, so that all pages show the state of one moment.
      const list = `usage/${caller.orgId}/${query.group_by}/${query.bucket}/${query.start}/${query.end}`;
      const position = cursors.read(list, query.cursor);
      const last = position === undefined ? undefined : LastRow.parse(JSON.parse(position.id));
      const nowMs = last?.now_ms ?? clock.now();
      const asked: UsageAsked = {
        ...windowOf(query, nowMs),
        orgId: caller.orgId,
        groupBy: query.group_by,
        nowMs,
        after:
          position === undefined || last === undefined
            ? undefined
            : { bucketStartMs: position.createdMs, key: last.key },
        limit: query.limit + 1,
      };
      const rows = await inTurn(caller.orgId, () => usageRows({ db, clock }, asked));
      const body = cursors.pageOf(list, rows, query.limit, {
        at: (row) => ({ createdMs: row.bucketStartMs, id: JSON.stringify({ key: row.key, now_ms: nowMs }) }),
        show: (row) => usageView(row, query.group_by),
      });
      return { status: 200, body };
    },
  });
}

function balanceRoute({ db, clock, ledger }: Deps): Route {
  return route({
    method: 'GET',
    path: '/v1/balance',
    operationId: 'getBalance',
    tag: 'Billing',
    summary: 'The prepaid balance',
    description:
      'The balance is exact at this moment. What rentals have cost so far is already subtracted, and is not part of `held` any more.',
    scope: 'billing:read',
    idempotency: 'none',
    responses: { 200: { description: 'The balance', schema: Balance } },
    errors: [],
    handler: async ({ caller }) => {
      const nowMs = clock.now();
      const { balance, rateUcentsPerHour, leftMs } = await db.snapshot('billing.balance', (query) =>
        runwayOf(query, caller.orgId, { ledger, nowMs }),
      );
      return {
        status: 200,
        body: {
          balance_cents: Number(centsFloor(balance.postedUcents)),
          held_cents: Number(centsFloor(balance.heldUcents)),
          available_cents: Number(centsFloor(balance.availableUcents)),
          balance: dollarText(balance.postedUcents),
          currency: 'USD',
          available: dollarText(balance.availableUcents),
          held: dollarText(balance.heldUcents),
          burn_rate_per_hour: dollarText(rateUcentsPerHour),
          hours_left: leftMs === undefined ? null : Math.floor(leftMs / HUNDREDTH_MS) / 100,
        },
      };
    },
  });
}

function usageView(row: UsageEntry, groupBy: GroupBy): UsageRow {
  return {
    bucket_start: isoTime(row.bucketStartMs),
    [groupBy]: row.key,
    gpu_seconds: row.gpuSeconds,
    cost_cents: Number(row.costCents),
    cost: dollarText(row.costUcents),
  };
}
