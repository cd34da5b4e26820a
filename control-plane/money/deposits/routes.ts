// The routes of /v1/deposits (specification 2.18).
import { z } from 'zod';
import { CreateDeposit, Deposit as DepositView, DepositMethods } from '../../../shared/api/deposit.ts';
import { PageQuery, pageSchema } from '../../../shared/api/page.ts';
import { isoTime } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Db } from '../../base/db/db.ts';
import type { Feed } from '../../base/events/events.ts';
import { byCreation, type Cursors, type PageStart } from '../../base/http/cursors.ts';
import { type Route, route } from '../../base/http/route.ts';
import { tokenText } from './chains.ts';
import type { Deposits } from './deposits.ts';
import { type Deposit, depositsOfOrg, findDeposit } from './store.ts';

const tag = 'Deposits';

export interface DepositRouteDeps {
  db: Db;
  cursors: Cursors;
  deposits: Pick<Deposits, 'create' | 'methods'>;
}

export function depositRoutes(deps: DepositRouteDeps): Route[] {
  return [methodsRoute(deps), createRoute(deps), listRoute(deps), getRoute(deps)];
}

function methodsRoute({ db, deposits }: DepositRouteDeps): Route {
  return route({
    method: 'GET',
    path: '/v1/deposits/methods',
    operationId: 'getDepositMethods',
    tag,
    summary: 'Show which chains and tokens can be deposited',
    scope: 'deposits:read',
    idempotency: 'none',
    responses: { 200: { description: 'The methods, and the limits of an amount', schema: DepositMethods } },
    errors: [],
    handler: async () => ({ status: 200, body: await deposits.methods(db.read) }),
  });
}

function createRoute({ db, deposits }: DepositRouteDeps): Route {
  return route({
    method: 'POST',
    path: '/v1/deposits',
    operationId: 'createDeposit',
    tag,
    summary: 'Start a stablecoin deposit',
    description: CREATE_TEXT,
    scope: 'deposits:write',
    idempotency: 'optional',
    body: CreateDeposit,
    responses: { 201: { description: 'The deposit, with the address to pay to', schema: DepositView } },
    errors: ['deposits_unavailable', 'deposit_addresses_exhausted'],
    handler: ({ caller, body, settle }) =>
      db.tx('deposits.create', async (tx) => {
        await tx.lock('org', caller.orgId);
        const reply = { status: 201, body: viewOf(await deposits.create(tx, caller.orgId, body)) };
        await settle(tx, reply);
        return reply;
      }),
  });
}

function listRoute({ db, cursors }: DepositRouteDeps): Route {
  return route({
    method: 'GET',
    path: '/v1/deposits',
    operationId: 'listDeposits',
    tag,
    summary: 'List the stablecoin deposits of the organisation, newest first',
    scope: 'deposits:read',
    idempotency: 'none',
    query: PageQuery,
    responses: { 200: { description: 'A page of deposits', schema: pageSchema(DepositView) } },
    errors: [],
    handler: async ({ caller, query }) => {
      const rows = (start: PageStart) => depositsOfOrg(db.read, caller.orgId, start);
      const body = await cursors.page(`deposits/${caller.orgId}`, query, rows, { at: byCreation, show: viewOf });
      return { status: 200, body };
    },
  });
}

function getRoute({ db }: DepositRouteDeps): Route {
  return route({
    method: 'GET',
    path: '/v1/deposits/{id}',
    operationId: 'getDeposit',
    tag,
    summary: 'Follow a stablecoin deposit',
    scope: 'deposits:read',
    idempotency: 'none',
    params: z.strictObject({ id: z.string().describe('The id of the deposit') }),
    responses: { 200: { description: 'The deposit', schema: DepositView } },
    errors: ['not_found'],
    handler: async ({ caller, params: { id } }) => {
      const deposit = await findDeposit(db.read, id);
      if (deposit?.org_id !== caller.orgId) return fail('not_found', `There is no deposit ${id}.`);
      return { status: 200, body: viewOf(deposit) };
    },
  });
}

/** Deposits in the live stream. */
export const DEPOSIT_FEED: Feed = {
  of: 'deposit',
  scope: 'deposits:read',
  describe: async (query, orgId, ids) => {
    const found = await Promise.all(ids.map((id) => findDeposit(query, id)));
    return new Map(found.flatMap((deposit) => (deposit?.org_id === orgId ? [[deposit.id, viewOf(deposit)]] : [])));
  },
};

function viewOf(deposit: Deposit): DepositView {
  return {
    deposit_id: deposit.id,
    status: deposit.status,
    chain: deposit.chain,
    asset: deposit.asset,
    amount_usd_cents: deposit.amount_cents,
    created_at: isoTime(deposit.created_ms),
    pay_address: deposit.address,
    pay_amount: tokenText(deposit.due_units),
    expires_at: isoTime(deposit.expires_ms),
    ...(deposit.tx_hash === null ? {} : { tx_hash: deposit.tx_hash }),
    ...(deposit.credited_cents === null ? {} : { credited_cents: deposit.credited_cents }),
  };
}

const CREATE_TEXT = `Send \`pay_amount\` of the asset on the chain to \`pay_address\` before \`expires_at\`, then follow the deposit with GET. The
address belongs to this deposit alone. Several transfers add up until \`expires_at\`. What has arrived by then is credited when it is final. A later
transfer, and a transfer of another token or on another chain, is not credited automatically. USDT on Base is refused, because its issuer does not
issue it there. If deposits are paused or not set up, the answer is 503 \`deposits_unavailable\`.`;
