// The operator's routes for what is above a bound: credits and payments that wait, and tenants whose credits wait.
import { z } from 'zod';
import { type Route, route } from '../base/http/route.ts';
import { AnyFields, type Fields, Id, listOf, operationOf, operator } from './fields.ts';

export interface CreditCommands {
  /** What waits first, then the latest decisions. */
  list(): Promise<Fields[]>;
  /** @throws ServiceError `not_found`, `conflict` */
  release(id: string, note: string): Promise<Fields>;
  /** @throws ServiceError `not_found`, `conflict` */
  refuse(id: string, note: string): Promise<Fields>;
  /** Organisations that are flagged. */
  flags(): Promise<Fields[]>;
  /** @throws ServiceError `not_found` */
  trust(orgId: string, note: string): Promise<Fields>;
}

/** Verb -> what it does to a credit or payment that waits. */
export const CREDIT_VERBS = {
  release: 'give a credit to the customer, or a payment to the supplier',
  refuse: 'let the time of a credit be charged, or pay nothing',
} as const;

const Note = z.strictObject({ note: z.string().min(1).max(1_000) });

export function creditAdminRoutes(credits: CreditCommands): Route[] {
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
      handler: async ({ params, body }) => ({ status: 200, body: await credits[verb](params.id, body.note) }),
    }),
  );
  const lists = [
    {
      path: '/admin/credits',
      operationId: 'adminListCredits',
      summary: 'What waits for the operator',
      list: credits.list,
    },
    {
      path: '/admin/credit-flags',
      operationId: 'adminListCreditFlags',
      summary: 'Flagged tenants',
      list: credits.flags,
    },
  ].map(({ list, ...what }) =>
    route({
      ...operator,
      ...what,
      method: 'GET',
      responses: { 200: { description: 'All of them', schema: listOf(AnyFields) } },
      errors: [],
      handler: async () => ({ status: 200, body: { data: await list() } }),
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
    handler: async ({ params, body }) => ({ status: 200, body: await credits.trust(params.id, body.note) }),
  });
  return [...lists, ...decisions, trust];
}
