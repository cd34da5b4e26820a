// The operator's route for the servers that answer requests to models.
import { AnyFields, listOf, operator } from '../../base/http/operator.ts';
import { type Route, route } from '../../base/http/route.ts';
import type { Gateway } from './gateway.ts';

export function upstreamsRoute(gateway: Pick<Gateway, 'servers'>): Route {
  return route({
    ...operator,
    method: 'GET',
    path: '/admin/upstreams',
    operationId: 'adminListUpstreams',
    summary:
      'List the model servers that this control plane has asked or checked since its start, and show which of them get no requests',
    responses: { 200: { description: 'All of them', schema: listOf(AnyFields) } },
    errors: [],
    handler: async () => ({
      status: 200,
      body: { data: gateway.servers().map(({ upstream, model, isOut }) => ({ upstream, model, is_out: isOut })) },
    }),
  });
}
