// Specification 7. Errors, 8. Limits and 9. Versioning: its rules, in the order of its sentences, and their tests.
import type { RowsBySection } from '../spec-rows.ts';

export const ERRORS_AND_LIMITS_ROWS: RowsBySection = {
  '7.1': [
    [
      '429 carries Retry-After in whole seconds',
      'control-plane/base/http/limits.test.ts',
      'a key gets its burst, then 429 with the seconds to wait, then what has come back since',
    ],
    ['What is no HTTP is answered by a problem document too', 'control-plane/base/http/limits.test.ts', '%s is 400'],
    [
      'Platform endpoints answer with problem documents of application/problem+json',
      'control-plane/base/http/server.test.ts',
      '404 for an unknown path',
    ],
    [
      'Retry-After is at least 1',
      'control-plane/base/http/server.test.ts',
      'Retry-After is whole seconds, at least one',
    ],
  ],
  '7.2': [
    [
      'spot with image, auto_terminate_hours 0 and bounds are validation_failed',
      'contract/launch.store.test.ts',
      '%s: 422 that names the field, and nothing is made',
    ],
    [
      'validation_failed names the fields, unknown ones too',
      'control-plane/base/http/server.test.ts',
      'unknown fields are named, at every depth',
    ],
    [
      'ssh_keys/org_mismatch: 403 for a key of another organisation',
      'contract/ssh-keys.store.test.ts',
      "another organisation's key is 403 ssh_keys/org_mismatch, and nothing is launched",
    ],
    [
      'reservation/no_contract: the organisation holds no reservation contract',
      'control-plane/rental/reservations.store.test.ts',
      'without a contract is no_contract, also where the only one is cancelled or belongs to others',
    ],
    [
      'reservation/contract_inactive: a contract exists but is not active, or outside its term',
      'control-plane/rental/reservations.store.test.ts',
      'with a contract that is pending, suspended or expired is contract_inactive, at both edges of the term',
    ],
    [
      'reservation/gpu_type_mismatch: the contract does not cover the gpu_type, or no slot in the region matches',
      'control-plane/rental/reservations.store.test.ts',
      'for another GPU type or region is gpu_type_mismatch and says what is covered',
    ],
    [
      'reservation/no_capacity: all slots allocated; no automatic fallback',
      'control-plane/rental/reservations.store.test.ts',
      'beyond the slots is no_capacity, never a GPU that is free beside them',
    ],
    ['An image with nothing to run is image_unavailable', 'contract/images.store.test.ts', '%s has nothing to run'],
    [
      'registry_unreachable: a registry outage during the image check',
      'control-plane/rental/launch/images.test.ts',
      'that answers %d is %s',
    ],
    [
      'image_unavailable: failed registry login',
      'control-plane/rental/launch/registry.docker.test.ts',
      'gives hosts what they pull with',
    ],
    [
      'operation_failed: all suppliers rejected the placement',
      'contract/operations.store.test.ts',
      'hosts that all reject the placement are operation_failed, with what went wrong on the last',
    ],
    [
      'not_found: a missing resource, also where it is another organisation that has it',
      'contract/coverage.test.ts',
      '%s is 404 for a stranger, as if there were nothing, and works for the owner',
    ],
    [
      'Every code is documented with its status',
      'contract/openapi.test.ts',
      'lists every error code of a route under its status, with Retry-After where waiting helps',
    ],
    [
      'Whatever breaks a bound is refused, and the field is named',
      'contract/requests.store.test.ts',
      '%s: one that the document forbids is refused, and the field is named',
    ],
    [
      'environment_unavailable: well-formed environment the placed machine cannot serve',
      'contract/environments.store.test.ts',
      'of %s cannot be served: 422 environment_unavailable that says what can',
    ],
    [
      'image combined with template_id or environment; non-overridable template env key: 422',
      'contract/templates.store.test.ts',
      'with %s is 422, names the field, and makes nothing',
    ],
    [
      'gpu_vram_too_small: explicit gpu_type VRAM below template min_vram_gb',
      'contract/templates.store.test.ts',
      'below the min_vram_gb of the template is gpu_vram_too_small, at it is not',
    ],
    [
      "model_too_large: template model weights exceed the explicit GPU's VRAM",
      'contract/templates.store.test.ts',
      'larger than the VRAM of an explicit gpu_type is model_too_large with both figures; at its edge it is not',
    ],
  ],
  '7.3': [
    [
      'rate_limit_exceeded is the per-second rate limit, per address too',
      'control-plane/base/http/limits.test.ts',
      'an address is limited with and without a key, also where there is nothing',
    ],
    [
      'No request makes an internal error',
      'contract/requests.store.test.ts',
      '%s: none that the document allows is an error of ours',
    ],
  ],
  '8': [
    [
      'gpu_count is 1 to 8, auto_terminate_hours 1 to 720, disk_gb 10 to 1000; ports, entrypoint',
      'contract/launch.store.test.ts',
      '%s',
    ],
    ['Page size above 200 or below 1 is refused', 'control-plane/base/http/cursors.test.ts', '%s is refused'],
    [
      'Idempotency-Key is required where the table says so',
      'control-plane/base/http/idempotency.store.test.ts',
      'is required',
    ],
    [
      'An equal request has no second effect and gets the same answer',
      'control-plane/base/http/idempotency.store.test.ts',
      'gets the same bytes, the operation id and a mark, and has no second effect',
    ],
    [
      'Equal requests at the same time have one effect',
      'control-plane/base/http/idempotency.store.test.ts',
      'fifty at once have one effect and one answer',
    ],
    [
      'A process that dies between an effect and its answer: an equal request gets that answer from the next one',
      'e2e/idempotency.test.ts',
      'kill -9 between the effect of a launch and its reply: the next process tells what was done',
    ],
    [
      'Every answer to an Idempotency-Key outlives its process, byte for byte, with the secrets in it',
      'e2e/idempotency.test.ts',
      '%s that is killed with its reply: the next process gives the same answer, byte for byte',
    ],
    [
      'Headers have a largest size',
      'control-plane/base/http/limits.test.ts',
      'up to the limit are read, above it are 431',
    ],
    [
      'Request bodies have a largest size',
      'control-plane/base/http/server.test.ts',
      'the largest body is read, one byte more is 413',
    ],
    [
      'A replay does not keep a secret in clear',
      'control-plane/base/accounts/api-keys.store.test.ts',
      'an equal request gets the same key again, and the database never holds it in clear',
    ],
    [
      'Reservation expiring_soon: 14 days or fewer remain',
      'control-plane/rental/reservation-term.test.ts',
      'the end is soon from 14 days before it: at 14 days, not a moment earlier, and never less than 0 days',
    ],
    [
      'Usage window: 30 days when start and end are omitted',
      'control-plane/money/buckets.test.ts',
      'is the last 30 days by day where nothing is said',
    ],
    [
      'Webhook reply deadline: 10 seconds',
      'control-plane/base/outbound/outbound.test.ts',
      'timeout: a status line that does not come, counted from the request being sent',
    ],
    [
      'A signature is fresh for 5 minutes',
      'control-plane/rental/webhooks/signature.test.ts',
      'takes what is signed, up to 300 seconds away in either direction',
    ],
    [
      'Equal launches at the same time are one launch with one answer',
      'contract/launch-once.store.test.ts',
      'fifty equal launches at once are one launch, and are answered alike',
    ],
  ],
  '9': [
    ['Spot capacity is unavailable', 'contract/catalog.store.test.ts', 'machines of the tier spot never show'],
    ['All endpoints live under /v1', 'contract/openapi.test.ts', 'is OpenAPI 3.1 with the required members'],
  ],
};
