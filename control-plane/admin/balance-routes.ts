// The operator's routes for the balance of an organisation.
import { z } from 'zod';
import type { Clock } from '../../shared/clock.ts';
import { fail } from '../../shared/errors.ts';
import { centsFloor, dollarText, UCENTS_PER_CENT } from '../../shared/money.ts';
import type { Db } from '../base/db/db.ts';
import { AnyFields, Cents, type Fields, Id, operator } from '../base/http/operator.ts';
import { type Route, route } from '../base/http/route.ts';
import { supplierOfOrg } from '../fleet/supply/store.ts';
import { funding, payable, wallet } from '../money/ledger/accounts.ts';
import type { Ledger } from '../money/ledger/ledger.ts';
import { TransferDiffers } from '../money/ledger/store.ts';
import { runwayOf, setWarnBelowHours, warnBelowHours } from '../money/metering/runway.ts';

export interface BalanceDeps {
  db: Db;
  clock: Clock;
  ledger: Ledger;
  /** @throws ServiceError `not_found` */
  assertOrg(orgId: string): Promise<void>;
}

/** The kind of the transfers that an operator adds by hand. The evidence is the reference. */
export const FUNDING_KIND = 'funding.manual';

export function balanceRoutes(deps: BalanceDeps): Route[] {
  const Credit = z.strictObject({ cents: Cents, reference: z.string().min(1).max(255) });
  return [
    route({
      ...operator,
      method: 'POST',
      path: '/admin/balances/{id}/credits',
      operationId: 'adminAddBalance',
      summary: 'Add to the balance of an organisation. A second request with the same reference has no effect',
      params: Id,
      body: Credit,
      responses: { 200: { description: 'The balance', schema: AnyFields } },
      errors: ['not_found', 'conflict'],
      handler: async ({ params, body }) => ({ status: 200, body: await add(params.id, body, deps) }),
    }),
    route({
      ...operator,
      method: 'POST',
      path: '/admin/balances/{id}/warnings',
      operationId: 'adminWarnBalance',
      summary:
        'Set at how many hours left an organisation is warned about its balance. With an empty list it is never warned',
      params: Id,
      body: z.strictObject({ below_hours: z.array(z.int().min(1).max(720)).max(5) }),
      responses: { 200: { description: 'The balance', schema: AnyFields } },
      errors: ['not_found'],
      handler: async ({ params, body }) => {
        await deps.assertOrg(params.id);
        await deps.db.tx('admin.balance_warn', (tx) => setWarnBelowHours(tx, params.id, body.below_hours));
        return { status: 200, body: await show(params.id, deps) };
      },
    }),
    route({
      ...operator,
      method: 'GET',
      path: '/admin/balances/{id}',
      operationId: 'adminShowBalance',
      summary: 'Show the balance of an organisation',
      params: Id,
      responses: { 200: { description: 'The balance', schema: AnyFields } },
      errors: ['not_found'],
      handler: async ({ params }) => ({ status: 200, body: await show(params.id, deps) }),
    }),
  ];
}

async function show(orgId: string, { db, clock, ledger, assertOrg }: BalanceDeps): Promise<Fields> {
  await assertOrg(orgId);
  const { balance, rateUcentsPerHour } = await db.snapshot('admin.balance', (query) =>
    runwayOf(query, orgId, { ledger, nowMs: clock.now() }),
  );
  const supplier = await supplierOfOrg(db.read, orgId);
  const owed = supplier === undefined ? 0n : (await ledger.balance(db.read, payable(supplier.id))).postedUcents;
  return {
    org_id: orgId,
    balance_cents: Number(centsFloor(balance.postedUcents)),
    held_cents: Number(centsFloor(balance.heldUcents)),
    available_cents: Number(centsFloor(balance.availableUcents)),
    balance: dollarText(balance.postedUcents),
    burn_rate_per_hour: dollarText(rateUcentsPerHour),
    warn_below_hours: (await warnBelowHours(db.read, orgId)).join(', '),
    supplier_unpaid: dollarText(owed),
  };
}

/** Adds to the balance. A second call with the same reference has no effect. */
async function add(
  orgId: string,
  { cents, reference }: { cents: number; reference: string },
  deps: BalanceDeps,
): Promise<Fields> {
  const { db, clock, ledger, assertOrg } = deps;
  await assertOrg(orgId);
  const id = `funding:${orgId}:${reference}`;
  const transfer = {
    id,
    debit: funding,
    credit: wallet(orgId),
    amountUcents: BigInt(cents) * UCENTS_PER_CENT,
    kind: FUNDING_KIND,
    subjectId: orgId,
    evidence: reference,
    effectiveMs: clock.now(),
  };
  await db
    .tx('admin.balance_add', async (tx) => {
      await tx.lock('org', orgId);
      await ledger.post(tx, id, [transfer]);
    })
    .catch((error: unknown) => {
      if (!(error instanceof TransferDiffers)) throw error;
      fail(
        'conflict',
        `Another amount was added under the reference ${reference}. Nothing was changed: name a new one.`,
      );
    });
  return show(orgId, deps);
}
