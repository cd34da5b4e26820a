// Reads the operator's files again: models, templates, environments, and the limits of the configuration.
import { type Route, route } from '../base/http/route.ts';
import { AnyFields, type Fields, operator } from './fields.ts';

export interface ReloadCommand {
  /** All of them or, if there is a mistake in one, none. @throws ServiceError `validation_failed` that names file and line */
  reload(): Promise<Fields>;
}

export function reloadRoutes({ reload }: ReloadCommand): Route[] {
  return [
    route({
      ...operator,
      method: 'POST',
      path: '/admin/reload',
      operationId: 'adminReload',
      summary: 'Read models, templates, environments and limits again, without a restart',
      responses: { 200: { description: 'What there is now', schema: AnyFields } },
      errors: [],
      handler: async () => ({ status: 200, body: await reload() }),
    }),
  ];
}
