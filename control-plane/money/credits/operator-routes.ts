// The operator's routes for what is above a bound: credits and payments that wait, and tenants whose credits wait.
import { z } from 'zod';
import { isoTime } from '../../../shared/clock.ts';
import { dollarText } from '../../../shared/money.ts';
import { pageSchema } from '../../../shared/api/page.ts';
import type { Db } from '../../base/db/db.ts';
import type { Cursors } from '../../base/http/cursors.ts';
import { type Route, route } from '../../base/http/route.ts';
import type { Credits } from './credits.ts';
import { type CreditFlag, type HeldCredit, pageOfFlags, pageOfHeld, placeOfHeld } from './store.ts';
import { AnyFields, type Fields, Id, ListQuery, operationOf, operator } from '../../base/http/operator.ts';

/** Verb of the operator -> the decision about a held credit or payment. */
export const CREDIT_VERBS = {
  release: 'give a credit to the customer, or a payment to the supplier',
  refuse: 'charge the time of a credit, or pay nothing to the supplier',
} as const;

const Note = z.strictObject({ note: z.string().min(1).max(1_000) });

interface Deps {
  db: Db;
  cursors: Cursors;
  credits: Pick<Credits, 'release' | 'refuse' | 'trust'>;
}

export function creditOperatorRoutes({ db, cursors, credits }: Deps): Route[] {
  const decisions = (['release', 'refuse'] as const).map((verb) =>
    route({
      ...operator,
      method: 'POST',
      path: `/admin/credits/{id}/${verb}`,
      operationId: operationOf(verb, 'Credit'),
      summary: CREDIT_VERBS[verb],
      params: Id,
      body: Note,
      responses: { 200: { description: 'The credit', schema: AnyFields } },
      errors: ['not_found', 'conflict'],
      handler: async ({ params, body }) => ({
        status: 200,
        body: creditFields(await credits[verb](params.id, body.note)),
      }),
    }),
  );
  const lists = [
    {
      path: '/admin/credits',
      operationId: 'adminListCredits',
      summary: 'List the credits that wait for the operator, then the latest decisions',
      page: (query: ListQuery) =>
        cursors.page('admin/credits', query, (start) => pageOfHeld(db.read, start), {
          at: placeOfHeld,
          show: creditFields,
        }),
    },
    {
      path: '/admin/credit-flags',
      operationId: 'adminListCreditFlags',
      summary: 'Flagged tenants, newest flag first',
      page: (query: ListQuery) =>
        cursors.page('admin/credit-flags', query, (start) => pageOfFlags(db.read, start), {
          at: ({ flagged_ms: flaggedMs, org_id: id }) => ({ createdMs: flaggedMs ?? 0, id }),
          show: flagFields,
        }),
    },
  ].map(({ page, ...what }) =>
    route({
      ...operator,
      ...what,
      method: 'GET',
      query: ListQuery,
      responses: { 200: { description: 'A page', schema: pageSchema(AnyFields) } },
      errors: [],
      handler: async ({ query }) => ({ status: 200, body: await page(query) }),
    }),
  );
  const trust = route({
    ...operator,
    method: 'POST',
    path: '/admin/credit-flags/{id}/trust',
    operationId: operationOf('trust', 'Tenant'),
    summary: 'Lift the flag of a tenant',
    params: Id,
    body: Note,
    responses: { 200: { description: 'The tenant', schema: AnyFields } },
    errors: ['not_found'],
    handler: async ({ params, body }) => ({ status: 200, body: flagFields(await credits.trust(params.id, body.note)) }),
  });
  return [...lists, ...decisions, trust];
}

function creditFields(row: HeldCredit): Fields {
  return {
    credit_id: row.id,
    state: row.state,
    kind: row.kind,
    because: row.why,
    dollars: dollarText(row.amount_ucents),
    // If a credit is refused, its customer does not pay this part.
    uncovered_dollars: row.kind === 'credit' ? dollarText(row.amount_ucents - row.wallet_ucents) : null,
    org_id: row.org_id,
    supplier_id: row.supplier_id,
    instance_id: row.subject_id,
    cause: row.cause,
    from: isoTime(row.from_ms),
    until: isoTime(row.until_ms),
    evidence: row.evidence,
    note: row.note,
    decided_at: row.decided_ms === null ? null : isoTime(row.decided_ms),
  };
}

function flagFields(row: CreditFlag): Fields {
  return {
    org_id: row.org_id,
    flagged_at: row.flagged_ms === null ? null : isoTime(row.flagged_ms),
    trusted_at: row.trusted_ms === null ? null : isoTime(row.trusted_ms),
    detail: row.detail,
  };
}
