// The routes of /v1/instances (specification 4.3).
import { z } from 'zod';
import { CreateInstance, Instance, InstanceName, RenameInstance } from '../../../shared/api/instance.ts';
import { InstanceRequest } from '../../../shared/api/instance-request.ts';
import { Operation } from '../../../shared/api/operation.ts';
import { pageParameters, pageSchema } from '../../../shared/api/page.ts';
import type { Db } from '../../base/db/db.ts';
import { assertMay } from '../../base/http/checks.ts';
import { byCreation, type Cursors, type PageStart } from '../../base/http/cursors.ts';
import { type Reply, type Route, route } from '../../base/http/route.ts';
import { type OperationRow, operationView } from '../../base/operations/operations.ts';
import { requestOf } from './asked.ts';
import type { Instances } from './instances.ts';

const ListQuery = z.strictObject({
  ...pageParameters,
  name: InstanceName.optional().describe('Only instances with exactly this name, also those that have ended'),
  status: Instance.shape.status
    .or(z.literal('live'))
    .optional()
    .describe(
      'Only instances with this status. live: those that have GPUs or wait for them, which are all but error, stopped and terminated. If left out: all',
    ),
});
const GetQuery = z.strictObject({
  include: z
    .enum(['credentials'])
    .optional()
    .describe('`credentials` adds connection.app_password. The role `read-only` does not get it'),
});
const InstanceId = z.strictObject({ id: z.string().describe('The instance id') });
const accepted = {
  description: 'The request is accepted. Follow the operation for the result',
  schema: Operation,
  headers: { 'Operation-Id': 'The operation id' },
};
const tag = 'Instances';

export function instanceRoutes(deps: { db: Db; cursors: Cursors; instances: Instances }): Route[] {
  return [listRoute(deps), createRoute(deps), getRoute(deps), requestRoute(deps), renameRoute(deps), deleteRoute(deps)];
}

function listRoute({ cursors, instances }: { cursors: Cursors; instances: Instances }): Route {
  return route({
    method: 'GET',
    path: '/v1/instances',
    operationId: 'listInstances',
    tag,
    summary: 'List instances, newest first',
    scope: 'instances:read',
    idempotency: 'none',
    query: ListQuery,
    responses: { 200: { description: 'A page of instances', schema: pageSchema(Instance) } },
    errors: [],
    handler: async ({ caller, query }) => {
      const { name, status } = query;
      const filters = `${name === undefined ? '' : `/${name}`}${status === undefined ? '' : `?${status}`}`;
      const rows = (start: PageStart) => instances.list(caller.orgId, { ...start, name, status });
      const body = await cursors.page(`instances/${caller.orgId}${filters}`, query, rows, {
        at: ({ instance }) => byCreation(instance),
        show: (found) => instances.show(found),
      });
      return { status: 200, body };
    },
  });
}

function createRoute({ instances }: { instances: Instances }): Route {
  return route({
    method: 'POST',
    path: '/v1/instances',
    operationId: 'createInstance',
    tag,
    summary: 'Launch an image, a template or an environment on GPUs',
    description:
      'The answer comes at once. The operation shows when the instance runs, and nothing is billed before that. If a template serves a model, the service checks that the model fits into the VRAM of the GPUs. If this check is not possible, the operation has `warnings`.',
    scope: 'instances:write',
    idempotency: 'required',
    spends: true,
    confirmsKey: true,
    body: CreateInstance,
    responses: { 202: accepted },
    errors: [
      'disk_exceeds_offering',
      'disk_unavailable',
      'environment_unavailable',
      'gpu_vram_too_small',
      'image_unavailable',
      'model_too_large',
      'insufficient_balance',
      'image_reference_invalid',
      'offering_unavailable',
      'registry_unreachable',
      'price_changed',
      'reservation/contract_inactive',
      'reservation/gpu_type_mismatch',
      'reservation/no_capacity',
      'reservation/no_contract',
      'ssh_keys/org_mismatch',
      'unavailable',
    ],
    handler: async ({ caller, body, settle }) =>
      acceptedReply(await instances.create(caller, body, (tx, operation) => settle(tx, acceptedReply(operation)))),
  });
}

function getRoute({ instances }: { instances: Instances }): Route {
  return route({
    method: 'GET',
    path: '/v1/instances/{id}',
    operationId: 'getInstance',
    tag,
    summary: 'Read an instance',
    scope: 'instances:read',
    idempotency: 'none',
    params: InstanceId,
    query: GetQuery,
    responses: { 200: { description: 'The instance', schema: Instance } },
    errors: ['not_found'],
    handler: async ({ caller, params, query }) => {
      const credentials = query.include === 'credentials';
      // The login opens a shell in which everything can be changed, so a person who only reads does not get it.
      if (credentials && caller.session !== undefined) assertMay(caller, 'instances:write');
      const found = await instances.get(caller.orgId, params.id);
      return { status: 200, body: instances.show(found, { credentials }) };
    },
  });
}

/** A command may hold secrets, and whoever may launch can read what a launch needs. So keys and people that only read do not get it. */
function requestRoute({ db }: { db: Db }): Route {
  return route({
    method: 'GET',
    path: '/v1/instances/{id}/request',
    operationId: 'getInstanceRequest',
    tag,
    summary: 'Read the request with which an instance was launched, without the values of its variables',
    description: 'With the values added as `env` and without `env_names`, it can be sent to POST /v1/instances again.',
    scope: 'instances:write',
    idempotency: 'none',
    params: InstanceId,
    responses: { 200: { description: 'The request', schema: InstanceRequest } },
    errors: ['not_found'],
    handler: async ({ caller, params }) => ({
      status: 200,
      body: await requestOf(db.read, caller.orgId, params.id),
    }),
  });
}

function renameRoute({ db, instances }: { db: Db; instances: Instances }): Route {
  return route({
    method: 'PATCH',
    path: '/v1/instances/{id}',
    operationId: 'renameInstance',
    tag,
    summary: 'Rename an instance',
    scope: 'instances:write',
    idempotency: 'optional',
    params: InstanceId,
    body: RenameInstance,
    responses: { 200: { description: 'The instance', schema: Instance } },
    errors: ['not_found'],
    handler: async ({ caller, params, body, settle }) => {
      await instances.get(caller.orgId, params.id);
      return db.tx('instances.rename', async (tx) => {
        await tx.lock('instance', params.id);
        const renamed = await instances.rename(tx, caller.orgId, params.id, body.name);
        const reply: Reply = { status: 200, body: instances.show(renamed) };
        await settle(tx, reply);
        return reply;
      });
    },
  });
}

function deleteRoute({ instances }: { instances: Instances }): Route {
  return route({
    method: 'DELETE',
    path: '/v1/instances/{id}',
    operationId: 'deleteInstance',
    tag,
    summary: 'Terminate an instance',
    description:
      'Charging ends with this request. If the instance is already stopping, the answer is the operation that the same API key started, or a new operation that ends together with the instance. If the instance has ended, the answer is 404 `not_found`.',
    scope: 'instances:write',
    idempotency: 'optional',
    params: InstanceId,
    responses: { 202: accepted },
    errors: ['not_found'],
    handler: async ({ caller, params, settle }) =>
      acceptedReply(await instances.remove(caller, params.id, (tx, operation) => settle(tx, acceptedReply(operation)))),
  });
}

function acceptedReply(operation: OperationRow): Reply {
  return { status: 202, headers: { 'Operation-Id': operation.id }, body: operationView(operation) };
}
