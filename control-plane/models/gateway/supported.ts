// Members of a request that some models take and others do not.
import { fail } from '../../../shared/errors.ts';
import type { CatalogModel } from '../catalog/models.ts';

/** @throws ServiceError `unsupported_parameter` naming the first of `members` that the model does not take */
export function assertSupported(
  members: readonly string[],
  { id, supported_parameters: supported }: CatalogModel,
): void {
  const field = members.find((name) => !supported.includes(name));
  if (field === undefined) return;
  fail('unsupported_parameter', {
    detail: `${id} does not support ${field}. GET /v1/models/${id} lists supported_parameters.`,
    errors: [{ field, rule: 'is not supported' }],
  });
}
