// The operator's routes for suppliers and what they are paid.
import { z } from 'zod';
import { type Route, route } from '../base/http/route.ts';
import { AnyFields, Cents, type Fields, Id, listOf, operationOf, operator } from './fields.ts';

export interface SupplierCommands {
  list(): Promise<Fields[]>;
  /** @throws ServiceError `not_found`, `conflict` */
  suspend(id: string): Promise<Fields>;
  /** @throws ServiceError `not_found`, `conflict` */
  resume(id: string): Promise<Fields>;
  /**
   * Enters that the supplier was paid; null: all that it is owed. Paying twice under one reference counts once.
   * @throws ServiceError `not_found`, `conflict`
   */
  pay(id: string, cents: number | null, reference: string): Promise<Fields>;
  /** Of one supplier, or of all, newest first. */
  payouts(id: string | undefined): Promise<Fields[]>;
}

/** Verb -> what it does; each is a POST without a body. */
export const SUPPLIER_VERBS = {
  suspend: 'offer none of its machines and take no more; what runs goes on, what was earned stays owed',
  resume: 'end a suspension',
} as const;

const BASE = '/admin/suppliers';
const Payout = z.strictObject({ cents: Cents.optional(), reference: z.string().min(1).max(255) });

export function supplierAdminRoutes(suppliers: SupplierCommands): Route[] {
  const list = route({
    ...operator,
    method: 'GET',
    path: BASE,
    operationId: 'adminListSuppliers',
    summary: 'List suppliers',
    responses: { 200: { description: 'All of them', schema: listOf(AnyFields) } },
    errors: [],
    handler: async () => ({ status: 200, body: { data: await suppliers.list() } }),
  });
  const verbs = (Object.keys(SUPPLIER_VERBS) as (keyof typeof SUPPLIER_VERBS)[]).map((verb) =>
    route({
      ...operator,
      method: 'POST',
      path: `${BASE}/{id}/${verb}`,
      operationId: operationOf(verb, 'Supplier'),
      summary: SUPPLIER_VERBS[verb],
      params: Id,
      responses: { 200: { description: 'The supplier', schema: AnyFields } },
      errors: ['not_found', 'conflict'],
      handler: async ({ params }) => ({ status: 200, body: await suppliers[verb](params.id) }),
    }),
  );
  return [list, ...verbs, ...payoutAdminRoutes(suppliers)];
}

function payoutAdminRoutes(suppliers: SupplierCommands): Route[] {
  return [
    route({
      ...operator,
      method: 'POST',
      path: `${BASE}/{id}/payouts`,
      operationId: 'adminCreatePayout',
      summary: 'Enter that a supplier was paid; the same reference counts once',
      params: Id,
      body: Payout,
      responses: { 201: { description: 'The payout, and what is owed now', schema: AnyFields } },
      errors: ['not_found', 'conflict'],
      handler: async ({ params, body }) => ({
        status: 201,
        body: await suppliers.pay(params.id, body.cents ?? null, body.reference),
      }),
    }),
    route({
      ...operator,
      method: 'GET',
      path: '/admin/payouts',
      operationId: 'adminListPayouts',
      summary: 'List payouts, newest first',
      query: z.strictObject({ supplier_id: z.string().optional() }),
      responses: { 200: { description: 'The latest', schema: listOf(AnyFields) } },
      errors: [],
      handler: async ({ query }) => ({ status: 200, body: { data: await suppliers.payouts(query.supplier_id) } }),
    }),
  ];
}
