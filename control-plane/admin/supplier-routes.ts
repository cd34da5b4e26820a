// The operator's routes for suppliers.
import { type Route, route } from '../base/http/route.ts';
import { AnyFields, type Fields, Id, listOf, operationOf, operator } from './fields.ts';

export interface SupplierCommands {
  list(): Promise<Fields[]>;
  /** @throws ServiceError `not_found`, `conflict` */
  suspend(id: string): Promise<Fields>;
  /** @throws ServiceError `not_found`, `conflict` */
  resume(id: string): Promise<Fields>;
}

/** Verb -> what it does; each is a POST without a body. */
export const SUPPLIER_VERBS = {
  suspend: 'offer none of its machines and take no more; what runs goes on, what was earned stays owed',
  resume: 'end a suspension',
} as const;

const BASE = '/admin/suppliers';

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
  return [list, ...verbs];
}
