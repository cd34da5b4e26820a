// The operator's routes for deposits: the queue and the decisions.
import { z } from 'zod';
import { pageSchema } from '../../../shared/api/page.ts';
import { isoTime } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { DEPOSIT_STATES, type DepositState } from '../../../shared/states.ts';
import type { Db } from '../../base/db/db.ts';
import type { EventRow, Events } from '../../base/events/events.ts';
import { byCreation, type Cursors } from '../../base/http/cursors.ts';
import { AnyFields, type Fields, Id, listParameters, operationOf, operator } from '../../base/http/operator.ts';
import { type Route, route } from '../../base/http/route.ts';
import { tokenText } from './chains.ts';
import type { Deposits } from './deposits.ts';
import { sumOf } from './plan.ts';
import { answered } from './rpc.ts';
import { type Deposit, depositsLike, findDeposit } from './store.ts';
import { type Transfer, transfersOf } from './transfers-store.ts';

export interface DepositOperatorDeps {
  db: Db;
  cursors: Cursors;
  events: Pick<Events, 'ofSubject'>;
  deposits: Deposits;
}

/** Number of changes that are shown. A deposit changes a few times in its life, but an operator can change it without end. */
const HISTORY_MAX = 100;

const BASE = '/admin/deposits';
const reply = { 200: { description: 'The deposit', schema: AnyFields } };
const Reason = z.strictObject({ reason: z.string().trim().min(1).max(1_000) });
const OfTransaction = Reason.extend({ tx_hash: z.string().min(1).max(128) });
const Shown = z.strictObject({ deposit: AnyFields, transfers: z.array(AnyFields), history: z.array(AnyFields) });
const DepositQuery = z.strictObject({
  ...listParameters,
  status: z.enum(Object.keys(DEPOSIT_STATES) as [DepositState, ...DepositState[]]).optional(),
  org_id: z.string().optional(),
  waiting: z.enum(['true']).optional(),
});

export function depositOperatorRoutes(deps: DepositOperatorDeps): Route[] {
  return [listRoute(deps), showRoute(deps), ...decisionRoutes(deps), returnedRoute(deps), rescanRoute(deps)];
}

function listRoute({ db, cursors }: DepositOperatorDeps): Route {
  return route({
    ...operator,
    method: 'GET',
    path: BASE,
    operationId: 'adminListDeposits',
    summary: 'List deposits, newest first. With `waiting=true`, only deposits that wait for a decision',
    query: DepositQuery,
    responses: { 200: { description: 'A page', schema: pageSchema(AnyFields) } },
    errors: [],
    handler: async ({ query }) => {
      const { status, org_id: orgId, waiting } = query;
      const filter = { status, orgId, isWaiting: waiting === 'true' };
      const name = `admin/deposits/${JSON.stringify([status, orgId, waiting])}`;
      const body = await cursors.page(name, query, (start) => depositsLike(db.read, filter, start), {
        at: byCreation,
        show: depositFields,
      });
      return { status: 200, body };
    },
  });
}

function showRoute({ db, events }: DepositOperatorDeps): Route {
  return route({
    ...operator,
    method: 'GET',
    path: `${BASE}/{id}`,
    operationId: 'adminShowDeposit',
    summary: 'Show a deposit with all its transfers, and the newest 100 changes of its status',
    params: Id,
    responses: { 200: { description: 'The deposit', schema: Shown } },
    errors: ['not_found'],
    handler: async ({ params: { id } }) => {
      const deposit = (await findDeposit(db.read, id)) ?? fail('not_found', `There is no deposit ${id}.`);
      const transfers = await transfersOf(db.read, id);
      const waiting = sumOf(transfers.filter(({ booking }) => booking === 'suspense'));
      const fields = { ...depositFields(deposit), in_suspense: tokenText(waiting) };
      const history = await events.ofSubject(db.read, id, { count: HISTORY_MAX });
      const body = { deposit: fields, transfers: transfers.map(transferFields), history: history.map(changeFields) };
      return { status: 200, body };
    },
  });
}

const VERBS = {
  credit: 'Credit a deposit whose senders could not be checked, or tokens that are in suspense',
  reject: 'Cancel an open deposit, or refuse tokens whose senders could not be checked',
} as const;

function decisionRoutes({ deposits }: DepositOperatorDeps): Route[] {
  return (['credit', 'reject'] as const).map((verb) =>
    route({
      ...operator,
      method: 'POST',
      path: `${BASE}/{id}/${verb}`,
      operationId: operationOf(verb, 'Deposit'),
      summary: VERBS[verb],
      params: Id,
      body: Reason,
      responses: reply,
      errors: ['not_found', 'conflict'],
      handler: async ({ params: { id }, body }) => ({
        status: 200,
        body: depositFields(await deposits.decisions[verb](id, body.reason)),
      }),
    }),
  );
}

function returnedRoute({ deposits }: DepositOperatorDeps): Route {
  return route({
    ...operator,
    method: 'POST',
    path: `${BASE}/{id}/returned`,
    operationId: operationOf('returned', 'Deposit'),
    summary: 'Record that tokens in suspense, which one transaction brought, were sent back',
    params: Id,
    body: OfTransaction,
    responses: reply,
    errors: ['not_found', 'conflict'],
    handler: async ({ params: { id }, body: { tx_hash: txHash, reason } }) => ({
      status: 200,
      body: depositFields(await deposits.decisions.returned(id, { txHash, reason })),
    }),
  });
}

function rescanRoute({ deposits }: DepositOperatorDeps): Route {
  return route({
    ...operator,
    method: 'POST',
    path: `${BASE}/{id}/rescan`,
    operationId: 'adminRescanDeposit',
    summary: 'Search one transaction for transfers that no watcher has seen',
    params: Id,
    body: OfTransaction,
    responses: reply,
    errors: ['not_found', 'conflict', 'deposits_unavailable'],
    handler: async ({ params: { id }, body }) => ({
      status: 200,
      body: depositFields(await answered(deposits.decisions.rescan(id, body.tx_hash))),
    }),
  });
}

function depositFields(deposit: Deposit): Fields {
  return {
    deposit_id: deposit.id,
    org_id: deposit.org_id,
    status: deposit.status,
    chain: deposit.chain,
    asset: deposit.asset,
    amount: tokenText(deposit.due_units),
    credited: deposit.credited_units === null ? null : tokenText(deposit.credited_units),
    address: deposit.address,
    index: deposit.position,
    created_at: isoTime(deposit.created_ms),
    expires_at: isoTime(deposit.expires_ms),
    note: deposit.note,
  };
}

function transferFields(transfer: Transfer): Fields {
  return {
    chain: transfer.chain,
    asset: transfer.asset,
    amount: tokenText(transfer.units),
    tx_hash: transfer.tx_hash,
    from: transfer.from_address,
    block: transfer.block_number,
    at: isoTime(transfer.block_ms),
    status: transfer.status,
    counts: transfer.is_counted,
    booked: transfer.booking,
  };
}

function changeFields({ created_ms: createdMs, data }: EventRow): Fields {
  const { status = null, amount = null, credited_cents: creditedCents = null } = data;
  return { at: isoTime(createdMs), status, amount, credited_cents: creditedCents };
}
