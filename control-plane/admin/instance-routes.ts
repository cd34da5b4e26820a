// The operator's routes for rentals: list, show, explain the bill, and end one.
import { z } from 'zod';
import { INSTANCE_STATES, type InstanceState } from '../../shared/states.ts';
import type { Instances } from '../rental/instances/instances.ts';
import { type InstanceEvidenceDeps, openInstanceEvidence } from './instance-evidence.ts';
import { type Route, route } from '../base/http/route.ts';
import { AnyFields, type Fields, Id, listOf, listParameters, operator } from '../base/http/operator.ts';
import { byCreation, type Cursors, type PageStart, type PageView } from '../base/http/cursors.ts';
import { pageSchema } from '../../shared/api/page.ts';

const BASE = '/admin/instances';
const STATUSES = Object.keys(INSTANCE_STATES) as InstanceState[];
const Filter = z.strictObject({
  ...listParameters,
  org_id: z.string().optional(),
  machine_id: z.string().optional(),
  status: z.enum(['any', ...STATUSES]).optional(),
});

export function instanceRoutes(
  deps: InstanceEvidenceDeps & { cursors: Cursors; instances: Pick<Instances, 'end'> },
): Route[] {
  const evidence = openInstanceEvidence(deps);
  const shared = { ...operator, params: Id } as const;
  const shown = { description: 'The instance', schema: AnyFields };
  return [
    route({
      ...operator,
      method: 'GET',
      path: BASE,
      operationId: 'adminListInstances',
      summary: 'List instances, newest first',
      query: Filter,
      responses: { 200: { description: 'A page of the instances that fit', schema: pageSchema(AnyFields) } },
      errors: [],
      handler: async ({ query }) => {
        const { org_id: orgId = null, machine_id: machineId = null, status = null } = query;
        const filter = { orgId, machineId, status };
        const rows = (start: PageStart) => evidence.list(filter, start);
        const view: PageView<Awaited<ReturnType<typeof rows>>[number], Fields> = {
          at: ({ row }) => byCreation(row),
          show: ({ fields }) => fields,
        };
        const list = `admin/instances/${JSON.stringify(filter)}`;
        return { status: 200, body: await deps.cursors.page(list, query, rows, view) };
      },
    }),
    route({
      ...shared,
      method: 'GET',
      path: `${BASE}/{id}`,
      operationId: 'adminShowInstance',
      summary: 'Show an instance',
      responses: { 200: shown },
      errors: ['not_found'],
      handler: async ({ params }) => ({ status: 200, body: await evidence.show(params.id) }),
    }),
    route({
      ...shared,
      method: 'GET',
      path: `${BASE}/{id}/why`,
      operationId: 'adminExplainInstance',
      summary: 'List what determined the bill of an instance, oldest first',
      responses: { 200: { description: 'The evidence', schema: listOf(AnyFields) } },
      errors: ['not_found'],
      handler: async ({ params }) => ({ status: 200, body: { data: await evidence.why(params.id) } }),
    }),
    route({
      ...shared,
      method: 'POST',
      path: `${BASE}/{id}/end`,
      operationId: 'adminEndInstance',
      summary: 'End an instance. The customer can read the reason',
      body: z.strictObject({ reason: z.string().min(1).max(500) }),
      responses: { 200: shown },
      errors: ['not_found', 'conflict'],
      handler: async ({ params, body }) => ({
        status: 200,
        body: await evidence.bill(await deps.instances.end(params.id, body.reason)),
      }),
    }),
  ];
}
