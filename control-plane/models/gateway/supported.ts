// Refuses parameters that a model does not support.
import { fail } from '../../../shared/errors.ts';
import type { CatalogModel } from '../catalog/models.ts';

/** @throws ServiceError `unsupported_parameter` naming the first of `members` that the model does not take */
export function assertSupported(members: readonly string[], model: CatalogModel): void {
  const field = members.find((name) => !model.supported_parameters.includes(name));
  if (field !== undefined) failUnsupported(field, model);
}

/** @throws ServiceError `unsupported_parameter` */
export function failUnsupported(field: string, { id }: CatalogModel): never {
  return fail('unsupported_parameter', {
    detail: `${id} does not support ${field} in v1.1 of the inference API. GET /v1/models/${id} shows what it takes.`,
    errors: [{ field, rule: 'is not supported' }],
  });
}
