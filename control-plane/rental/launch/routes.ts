// The endpoints of this room: public lists of what can be launched without an own image (GET /v1/templates and GET /v1/environments, specification
// 2.16, 4.9), and the stored logins for registries.
import { z } from 'zod';
import { PageQuery, pageSchema } from '../../../shared/api/page.ts';
import { RegistryCredential, RegistryCredentialCreate } from '../../../shared/api/registry-credential.ts';
import { isoTime } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Db } from '../../base/db/db.ts';
import { byCreation, type Cursors, type PageStart } from '../../base/http/cursors.ts';
import { type Route, route } from '../../base/http/route.ts';
import type { LaunchRoom } from './launch.ts';
import type { CredentialRow } from './credentials.ts';
import { Environments, Template } from '../../../shared/api/preset.ts';
import { environmentsView } from './environments.ts';
import { templateView } from './templates.ts';

export function presetRoutes({ launch, cursors }: { launch: LaunchRoom; cursors: Cursors }): Route[] {
  return [
    route({
      method: 'GET',
      path: '/v1/templates',
      operationId: 'listTemplates',
      tag: 'Catalog',
      summary: 'List the application templates, by id',
      description:
        'Send the id of a template as `template_id` in POST /v1/instances. `env` of that request sets the variables that are `user_overridable`.',
      scope: 'none',
      idempotency: 'none',
      query: PageQuery,
      responses: { 200: { description: 'A page of templates', schema: pageSchema(Template) } },
      errors: [],
      handler: async ({ query }) => {
        const byId = [...launch.presets.templates.values()].toSorted((a, b) => (a.id < b.id ? -1 : 1));
        const rows = async ({ from, count }: PageStart) =>
          byId.filter(({ id }) => id > (from?.id ?? '')).slice(0, count);
        const body = await cursors.page('templates', query, rows, {
          at: ({ id }) => ({ createdMs: 0, id }),
          show: templateView,
        });
        return { status: 200, body };
      },
    }),
    route({
      method: 'GET',
      path: '/v1/environments',
      operationId: 'getEnvironments',
      tag: 'Catalog',
      summary: 'Read the launch environments',
      description:
        'The values that `environment` of POST /v1/instances can have. You log in to an environment by SSH. It runs until its instance is deleted.',
      scope: 'none',
      idempotency: 'none',
      responses: { 200: { description: 'The environments', schema: Environments } },
      errors: [],
      handler: async () => ({ status: 200, body: environmentsView(launch.presets.environments) }),
    }),
  ];
}

const tag = 'Registry credentials';

export function registryCredentialRoutes(deps: { db: Db; launch: LaunchRoom; cursors: Cursors }): Route[] {
  const { db, cursors } = deps;
  const { credentials } = deps.launch;
  const list = route({
    method: 'GET',
    path: '/v1/registry-credentials',
    operationId: 'listRegistryCredentials',
    tag,
    summary: 'List the stored registry logins of the organisation, newest first',
    scope: 'registry_credentials:read',
    idempotency: 'none',
    query: PageQuery,
    responses: { 200: { description: 'A page of credentials', schema: pageSchema(RegistryCredential) } },
    errors: [],
    handler: async ({ caller, query }) => {
      const name = `registry-credentials/${caller.orgId}`;
      const rows = (start: PageStart) => credentials.list(db.read, caller.orgId, start);
      return { status: 200, body: await cursors.page(name, query, rows, { at: byCreation, show }) };
    },
  });
  const create = route({
    method: 'POST',
    path: '/v1/registry-credentials',
    operationId: 'createRegistryCredential',
    tag,
    summary: 'Store a login for private images',
    description:
      'The login is first used when a launch names it. A stored login cannot be changed. Store a new login and delete the old one instead.',
    scope: 'registry_credentials:write',
    idempotency: 'optional',
    body: RegistryCredentialCreate,
    responses: { 201: { description: 'The credential', schema: RegistryCredential } },
    errors: ['conflict'],
    handler: ({ caller, body, settle }) =>
      db.tx('registry_credentials.add', async (tx) => {
        await tx.lock('org', caller.orgId);
        const reply = { status: 201, body: show(await credentials.add(tx, caller.orgId, body)) };
        await settle(tx, reply);
        return reply;
      }),
  });
  const remove = route({
    method: 'DELETE',
    path: '/v1/registry-credentials/{id}',
    operationId: 'deleteRegistryCredential',
    tag,
    summary: 'Delete a stored registry login',
    description: 'Running instances continue. A launch that uses the login and has not pulled its image yet fails.',
    scope: 'registry_credentials:write',
    idempotency: 'none',
    params: z.strictObject({ id: z.string().describe('The id of the credential') }),
    responses: { 204: { description: 'It is gone' } },
    errors: ['not_found'],
    handler: async ({ caller, params }) => {
      const gone = await db.tx('registry_credentials.remove', (tx) => credentials.remove(tx, caller.orgId, params.id));
      return gone ? { status: 204 } : fail('not_found', `There is no registry credential ${params.id}.`);
    },
  });
  return [list, create, remove];
}

function show(row: CredentialRow): RegistryCredential {
  return {
    id: row.id,
    name: row.name,
    registry: row.registry,
    username: row.username,
    created_at: isoTime(row.created_ms),
  };
}
