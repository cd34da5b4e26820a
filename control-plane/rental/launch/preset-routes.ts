// GET /v1/templates and GET /v1/environments: public lists of what can be launched without an own image (specification 2.16, 4.9).
import { Environments, Template } from '../../../shared/api/preset.ts';
import { PageQuery, pageSchema } from '../../../shared/api/page.ts';
import type { Cursors, PageStart } from '../../base/http/cursors.ts';
import { type Route, route } from '../../base/http/route.ts';
import { environmentsView } from './environments.ts';
import type { LaunchRoom } from './launch.ts';
import { templateView } from './templates.ts';

const tag = 'Catalog';

export function presetRoutes({ launch, cursors }: { launch: LaunchRoom; cursors: Cursors }): Route[] {
  return [
    route({
      method: 'GET',
      path: '/v1/templates',
      operationId: 'listTemplates',
      tag,
      summary: 'List the application templates, by id',
      description:
        'An id is the template_id of POST /v1/instances; env there sets the variables that are user_overridable.',
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
      tag,
      summary: 'Read the launch environments',
      description:
        'What `environment` of POST /v1/instances can name. Each is reached by SSH, and runs until it is deleted.',
      scope: 'none',
      idempotency: 'none',
      responses: { 200: { description: 'The environments', schema: Environments } },
      errors: [],
      handler: async () => ({ status: 200, body: environmentsView(launch.presets.environments) }),
    }),
  ];
}
