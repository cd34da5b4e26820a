// GET /v1/operations/{id} (specification 4.5).
import { z } from 'zod';
import { Operation } from '../../../shared/api/operation.ts';
import { fail } from '../../../shared/errors.ts';
import type { Db } from '../db/db.ts';
import { type Route, route } from '../http/route.ts';
import { type Operations, operationView } from './operations.ts';

export function operationRoutes(deps: { db: Db; operations: Operations }): Route[] {
  return [
    route({
      method: 'GET',
      path: '/v1/operations/{id}',
      operationId: 'getOperation',
      tag: 'Operations',
      summary: 'Follow an operation',
      description:
        'The operation is visible to the API key that created it. Poll after 1, 2, 4, 8, 16, then every 30 seconds.',
      scope: 'instances:read',
      idempotency: 'none',
      params: z.strictObject({ id: z.string().describe('The operation id') }),
      responses: { 200: { description: 'The operation', schema: Operation } },
      errors: ['not_found'],
      handler: async ({ params, caller }) => {
        const row = await deps.operations.find(deps.db.read, params.id, caller.principalId);
        if (row === undefined)
          return fail('not_found', `There is no operation ${params.id}, or another API key created it.`);
        return { status: 200, body: operationView(row) };
      },
    }),
  ];
}
