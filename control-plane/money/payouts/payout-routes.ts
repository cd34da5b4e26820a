// What suppliers see of their payouts: the destination, the payouts, and the statement of a month.
import { Readable } from 'node:stream';
import {
  ChangeDestination,
  CommunityPayout,
  CommunityStatement,
  PayoutDestination,
  StatementQuery,
} from '../../../shared/api/payout.ts';
import { PageQuery, pageSchema } from '../../../shared/api/page.ts';
import { isoTime } from '../../../shared/clock.ts';
import { csvPieces } from '../../../shared/csv.ts';
import { fail } from '../../../shared/errors.ts';
import { BILLS_PER_ORG_MAX } from '../../../shared/limits.ts';
import { centsFloor } from '../../../shared/money.ts';
import type { Db, Query, Tx } from '../../base/db/db.ts';
import { byCreation, type Cursors } from '../../base/http/cursors.ts';
import { type Caller, type Reply, type Route, route } from '../../base/http/route.ts';
import { openTurns } from '../../base/http/turns.ts';
import { presentOf } from '../../base/users/sessions.ts';
import type { Payee } from './destinations.ts';
import { explainedPage, payoutView } from './payout-view.ts';
import type { Payouts, Schedule } from './payouts.ts';
import type { Destinations } from './plan.ts';
import { type StatementDeps, statementOf, statementRows } from './statement.ts';

export interface PayoutRouteDeps extends StatementDeps {
  db: Db;
  cursors: Cursors;
  payouts: Payouts;
  /** The supplier that the organisation is; undefined if it is not a supplier. */
  supplierOf(query: Query, orgId: string): Promise<string | undefined>;
}

const HOUR_MS = 3_600_000;

const tag = 'Community supply';
const reads = { method: 'GET', tag, scope: 'supply:read', idempotency: 'none' } as const;
const destination = { 200: { description: 'The destination', schema: PayoutDestination } };
const NO_SUPPLIER = 'This organisation is no supplier. POST /v1/community/supplier makes it one.';

export function payoutRoutes(deps: PayoutRouteDeps): Route[] {
  return [listRoute(deps), statementRoute(deps), destinationRoute(deps), changeRoute(deps), cancelRoute(deps)];
}

function listRoute({ db, cursors, payouts, supplierOf }: PayoutRouteDeps): Route {
  return route({
    ...reads,
    path: '/v1/community/payouts',
    operationId: 'listPayouts',
    summary: 'Your payouts, newest first',
    description:
      'A payout is made when the amount that can be paid out reaches the minimum, and a payout destination is set. The payout waits while a change of the destination is pending, and while the supplier is suspended.',
    query: PageQuery,
    responses: { 200: { description: 'A page of payouts', schema: pageSchema(CommunityPayout) } },
    errors: [],
    handler: async ({ caller, query }) => {
      const supplierId = (await supplierOf(db.read, caller.orgId)) ?? '';
      const body = await cursors.page(
        `payouts/${caller.orgId}`,
        query,
        (start) => explainedPage(db.read, { supplierId, state: undefined, payouts }, start),
        { at: ({ row }) => byCreation(row), show: ({ row, waitsBecause }) => payoutView(row, waitsBecause) },
      );
      return { status: 200, body };
    },
  });
}

function statementRoute(deps: PayoutRouteDeps): Route {
  const inTurn = openTurns(deps.clock, BILLS_PER_ORG_MAX);
  return route({
    ...reads,
    path: '/v1/community/statement',
    operationId: 'getStatement',
    summary: 'What you earned and were paid in a month',
    description:
      'The statement has the earnings by machine and rental, what was taken back, and the payouts. The opening balance plus all amounts is exactly the closing balance, and the next statement opens with it. A line belongs to the month in which it was posted, so a past statement never changes. With `format=csv` the answer is text/csv: `opening_balance`, the lines, `closing_balance`.',
    query: StatementQuery,
    responses: { 200: { description: 'The statement', schema: CommunityStatement, streamType: 'text/csv' } },
    errors: [],
    handler: async ({ caller, query: { month, format } }) => {
      const supplierId = (await deps.supplierOf(deps.db.read, caller.orgId)) ?? '';
      const statement = await inTurn(caller.orgId, () => statementOf(supplierId, month, deps));
      if (format === 'json') return { status: 200, body: statement };
      const headers = {
        'content-type': 'text/csv; charset=utf-8',
        'content-disposition': `attachment; filename="statement-${statement.month}.csv"`,
      };
      return { status: 200, headers, stream: Readable.from(csvPieces(statementRows(statement), deps.clock)) };
    },
  });
}

function destinationRoute({ db, payouts, supplierOf }: PayoutRouteDeps): Route {
  return route({
    ...reads,
    path: '/v1/community/payout-destination',
    operationId: 'getPayoutDestination',
    summary: 'Where your payouts go, and when',
    responses: destination,
    errors: ['not_found'],
    handler: async ({ caller }) => {
      const supplierId = (await supplierOf(db.read, caller.orgId)) ?? fail('not_found', NO_SUPPLIER);
      const destinations = await payouts.destinations.of(db.read, supplierId);
      return { status: 200, body: destinationView(destinations, await payouts.schedule(db.read, supplierId)) };
    },
  });
}

function changeRoute(deps: PayoutRouteDeps): Route {
  return route({
    method: 'PUT',
    path: '/v1/community/payout-destination',
    operationId: 'changePayoutDestination',
    tag,
    summary: 'Set the destination of your payouts',
    description:
      'The first destination is in force at once. A later destination is in force after a delay. Until then no payout is sent, so that you can cancel a change that you did not request. Another change replaces the pending change and starts the delay again. To cancel the pending change, name the destination that is in force.',
    scope: 'supply:write',
    stepUp: true,
    idempotency: 'optional',
    body: ChangeDestination,
    responses: destination,
    errors: ['not_found'],
    handler: ({ caller, body, settle }) =>
      ofPayee(caller, deps, settle, (tx, payee) => deps.payouts.destinations.change(tx, payee, body)),
  });
}

function cancelRoute(deps: PayoutRouteDeps): Route {
  return route({
    method: 'DELETE',
    path: '/v1/community/payout-destination/pending',
    operationId: 'cancelPayoutDestination',
    tag,
    summary: 'Cancel a pending change of your payout destination',
    description: 'Payouts go to the destination in force again, at once.',
    scope: 'supply:write',
    idempotency: 'optional',
    responses: destination,
    errors: ['not_found', 'conflict'],
    handler: ({ caller, settle }) =>
      ofPayee(caller, deps, settle, (tx, payee) => deps.payouts.destinations.cancel(tx, payee)),
  });
}

async function ofPayee(
  caller: Caller,
  { db, clock, payouts, supplierOf }: PayoutRouteDeps,
  settle: (tx: Tx, reply: Reply) => Promise<void>,
  work: (tx: Tx, payee: Payee) => Promise<Destinations>,
): Promise<Reply> {
  const { orgId } = caller;
  const supplierId = (await supplierOf(db.read, orgId)) ?? fail('not_found', NO_SUPPLIER);
  return db.tx('payouts.destination', async (tx) => {
    await tx.lock('org', orgId);
    // Waits until a transaction that pays the supplier has ended. A later one sees the change.
    await tx.lock('supplier', supplierId);
    // The caller was let in before its body came. Whoever has lost the key or the session meanwhile must not redirect the money.
    await presentOf(tx, caller, { scope: 'supply:write', nowMs: clock.now() });
    const destinations = await work(tx, { supplierId, orgId });
    const body = destinationView(destinations, await payouts.schedule(tx, supplierId));
    const reply: Reply = { status: 200, body };
    await settle(tx, reply);
    return reply;
  });
}

function destinationView({ inForce, pending }: Destinations, schedule: Schedule): PayoutDestination {
  return {
    destination:
      inForce === undefined
        ? null
        : { chain: inForce.chain, address: inForce.address, since: isoTime(inForce.in_force_ms) },
    pending:
      pending === undefined
        ? null
        : {
            chain: pending.chain,
            address: pending.address,
            requested_at: isoTime(pending.requested_ms),
            in_force_at: isoTime(pending.in_force_ms),
          },
    schedule: {
      every: schedule.every,
      minimum_cents: Number(centsFloor(schedule.minimumUcents)),
      not_before: isoTime(schedule.notBeforeMs),
      earnings_delay_hours: schedule.delayMs / HOUR_MS,
      destination_delay_hours: schedule.destinationDelayMs / HOUR_MS,
    },
  };
}
