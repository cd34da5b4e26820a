// Specification of serverless inference (2.10 to 2.14, 4.8, 7.3 and what belongs to it): its rules and their tests.
import type { RowsBySection } from '../spec-rows.ts';

export const INFERENCE_ROWS: RowsBySection = {
  '2.10': [
    [
      'A model has id, object, owned_by, modality, status and pricing, and the optional members that are known of it',
      'contract/models.test.ts',
      'has the members of the specification',
    ],
    [
      'per_image_microcents is exact, per_image_cents rounds sub-cent prices to 0',
      'contract/models.test.ts',
      'shows exact prices, and whole cents rounded down beside them',
    ],
    [
      'A model list is {object: list, data}',
      'contract/models.test.ts',
      'has all of them at once, by id, with nothing of their servers',
    ],
  ],
  '4.8': [
    ['GET /v1/models takes modality', 'contract/models.test.ts', 'of the modality %s'],
    [
      'GET /v1/models/{id} finds a model by its id or an alias, the slash written either way',
      'contract/models.test.ts',
      'is found as %s',
    ],
    ['The suffix :economy selects the economy tier', 'control-plane/models/catalog.test.ts', '%s for %s: %s'],
  ],
  '7.1': [
    [
      'Whatever an inference endpoint refuses is the envelope',
      'contract/requests.store.test.ts',
      '%s: whatever JSON comes is never an error of ours',
    ],
    ['Unknown inference paths are the envelope', 'contract/models.test.ts', 'where there is nothing: %s'],
  ],
  '7.3': [
    [
      'unsupported_parameter is 400 invalid_request_error; param names the parameter, the message the version',
      'control-plane/base/http/refusals.test.ts',
      '400 unsupported_parameter names the unknown member first: %j',
    ],
    [
      'A missing or invalid key is 401',
      'control-plane/base/http/refusals.test.ts',
      '401 invalid_api_key without a key, as Bearer',
    ],
    [
      'A key that lacks the scope is 403',
      'control-plane/base/http/refusals.test.ts',
      '403 insufficient_scope names the scope',
    ],
    [
      'insufficient balance is 402',
      'control-plane/base/http/refusals.test.ts',
      '402 insufficient_balance is not to be sent again',
    ],
    [
      'A request that fails validation is 422',
      'control-plane/base/http/refusals.test.ts',
      '422 validation_failed names the member by its path',
    ],
    [
      'request_too_large',
      'control-plane/base/http/refusals.test.ts',
      '413 request_too_large above the bound of the route, which it names; at the bound it is read',
    ],
    [
      'rate_limit_exceeded in the envelope',
      'control-plane/base/http/refusals.test.ts',
      '429 rate_limit_exceeded with Retry-After',
    ],
    [
      'An internal error is 500',
      'control-plane/base/http/refusals.test.ts',
      '500 internal_error quotes the request, and nothing of the bug',
    ],
    ['model_not_found is 404', 'contract/models.test.ts', 'is not found as %s'],
  ],
};
