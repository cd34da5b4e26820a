// The operator's routes for rentals: list, show, explain the bill, and end one.
import { z } from 'zod';
import { INSTANCE_STATES, type InstanceState } from '../../shared/states.ts';
import type { Instances } from '../rental/instances/instances.ts';
import { type InstanceEvidenceDeps, openInstanceEvidence } from './instance-evidence.ts';
import { type Route, route } from '../base/http/route.ts';
import { AnyFields, Id, listOf, operator } from '../base/http/operator.ts';

const BASE = '/admin/instances';
const SHOWN_MAX = 1_000;
const STATUSES = Object.keys(INSTANCE_STATES) as InstanceState[];
const Filter = z.strictObject({
  org_id: z.string().optional(),
  machine_id: z.string().optional(),
  status: z.enum(['any', ...STATUSES]).optional(),
  limit: z.coerce.number().int().min(1).max(SHOWN_MAX),
});

export function instanceRoutes(deps: InstanceEvidenceDeps & { instances: Pick<Instances, 'end'> }): Route[] {
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
      responses: { 200: { description: 'Those that fit', schema: listOf(AnyFields) } },
      errors: [],
      handler: async ({ query }) => {
        const { org_id: orgId = null, machine_id: machineId = null, status = null, limit } = query;
        return { status: 200, body: { data: await evidence.list({ orgId, machineId, status, limit }) } };
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
      summary: 'What decided about the bill of an instance, oldest first',
      responses: { 200: { description: 'The evidence', schema: listOf(AnyFields) } },
      errors: ['not_found'],
      handler: async ({ params }) => ({ status: 200, body: { data: await evidence.why(params.id) } }),
    }),
    route({
      ...shared,
      method: 'POST',
      path: `${BASE}/{id}/end`,
      operationId: 'adminEndInstance',
      summary: 'End an instance, for a reason that its customer reads',
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
