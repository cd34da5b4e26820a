// GET /v1/models and GET /v1/models/{id} (specification 4.8).
import { z } from 'zod';
import { Model, ModelList, ModelsQuery } from '../../../shared/api/model.ts';
import { type Route, route } from '../../base/http/route.ts';
import type { Catalog } from './catalog.ts';
import { callableView, modelView, type WakesOf } from './view.ts';

const tag = 'Inference';
const scope = 'serverless:read';

export interface CatalogRoutesDeps {
  catalog: Catalog;
  wakes: WakesOf;
}

export function modelRoutes({ catalog, wakes }: CatalogRoutesDeps): Route[] {
  return [
    route({
      method: 'GET',
      path: '/v1/models',
      operationId: 'listModels',
      tag,
      summary: 'List the models',
      description:
        'The answer has all models at once. A chat model whose `pricing` has `economy_` prices has an economy tier. A call selects it with `<id>:economy`.',
      scope,
      idempotency: 'none',
      query: ModelsQuery,
      responses: { 200: { description: 'The models', schema: ModelList } },
      errors: [],
      handler: async ({ query: { modality } }) => {
        const shown = catalog.models.filter((model) => modality === undefined || model.modality === modality);
        return { status: 200, body: { object: 'list', data: shown.map((model) => modelView(model, wakes)) } };
      },
    }),
    route({
      method: 'GET',
      path: '/v1/models/{id}',
      idHasSlashes: true,
      operationId: 'getModel',
      tag,
      summary: 'Read a model',
      scope,
      idempotency: 'none',
      params: z.strictObject({
        id: z
          .string()
          .describe(
            'The id or an alias of the model. Append `:economy` to read that tier alone. The slash may be sent as it is or as %2F',
          ),
      }),
      responses: { 200: { description: 'The model', schema: Model } },
      errors: ['model_not_found'],
      handler: async ({ params }) => ({ status: 200, body: callableView(catalog.get(params.id), wakes) }),
    }),
  ];
}
