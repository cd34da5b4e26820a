// Specification 7. Errors: its rules, in the order of its sentences, and their tests.
import type { RowsBySection } from '../spec-rows.ts';

export const ERRORS_ROWS: RowsBySection = {
  '7.1': [
    [
      'Inference endpoints have the envelope for 431, 408 and what is no HTTP too',
      'control-plane/base/http/limits.test.ts',
      'for headers that are too large, in one packet or in many',
    ],
    [
      'Fine-tuning is a family of inference by its errors, deposits one of the platform',
      'contract/models.test.ts',
      'and platform paths keep their problem documents, also those that look alike',
    ],
    [
      'No message and no part of the document recommends a value that is refused',
      'contract/openapi.test.ts',
      'recommends no value that is refused',
    ],
    [
      'Whatever a platform endpoint refuses is a problem document of application/problem+json',
      'contract/requests.store.test.ts',
      '%s: none that the document allows is an error of ours',
    ],
    [
      'A problem document has type, title, status, detail, instance, code, request_id and errors; unknown paths have one too',
      'control-plane/base/http/server.test.ts',
      '404 for an unknown path',
    ],
    ['What is no HTTP is answered by a problem document too', 'control-plane/base/http/limits.test.ts', '%s is 400'],
    [
      '429 carries Retry-After in whole seconds',
      'control-plane/base/http/limits.test.ts',
      'a key may send its burst, then gets 429 with the seconds to wait, then may send what has refilled since',
    ],
    [
      'Retry-After is at least 1',
      'control-plane/base/http/server.test.ts',
      'Retry-After is in whole seconds and at least one',
    ],
    [
      'A 503 may carry Retry-After',
      'contract/launch.store.test.ts',
      'without a public port that is free it is 503 with the seconds to wait, and nothing is made',
    ],
  ],
  '7.2': [
    [
      'reservation/no_contract is 403, contract_inactive 403, gpu_type_mismatch 400, no_capacity 429',
      'contract/reservations.store.test.ts',
      'a launch is refused with 403, 403, 400 and 429, and each leaves nothing behind',
    ],
    [
      'reservation/no_contract: the organisation holds no reservation contract',
      'control-plane/rental/reserved-launches.store.test.ts',
      'without a contract is no_contract, also if the only one belongs to others',
    ],
    [
      'reservation/contract_inactive: a contract exists but is pending, suspended, expired or outside its term',
      'control-plane/rental/reserved-launches.store.test.ts',
      'with a contract that is pending, suspended or expired is contract_inactive, at both edges of the term',
    ],
    [
      'reservation/contract_inactive: also one that is cancelled and still listed',
      'contract/reservations.store.test.ts',
      'a contract that is cancelled and still listed is one that is not active',
    ],
    [
      'reservation/gpu_type_mismatch: the contract does not cover the gpu_type, or no slot in the region matches',
      'control-plane/rental/reserved-launches.store.test.ts',
      'for another GPU type or region is gpu_type_mismatch and says what is covered',
    ],
    [
      'reservation/no_capacity: all slots allocated; no automatic fallback',
      'control-plane/rental/reserved-launches.store.test.ts',
      'beyond the slots is no_capacity, never a GPU that is free beside them',
    ],
    [
      'ssh_keys/org_mismatch: 403 for a key of another organisation, in all tiers',
      'contract/ssh-keys.store.test.ts',
      "another organisation's key is 403 ssh_keys/org_mismatch for every tier, and nothing is launched",
    ],
    [
      'not_found: a missing resource, also if it is another organisation that has it',
      'contract/coverage.test.ts',
      '%s is 404 for a stranger, as if there were nothing, and works for the owner',
    ],
    [
      'not_found: deleting an already gone SSH key',
      'contract/ssh-keys.store.test.ts',
      'deleting an already gone key is 404 not_found',
    ],
    [
      'not_found: deleting an already terminated instance',
      'contract/instances.store.test.ts',
      'answers 202 with its operation, in the header too; one that has ended is 404 not_found, and makes nothing',
    ],
    [
      'not_found: operations of another API key',
      'contract/coverage.test.ts',
      'an operation is visible only to the key that created it, not to others of the organisation',
    ],
    [
      'validation_failed: bounds of disk_gb and auto_terminate_hours, explicit auto_terminate_hours 0',
      'contract/limits.store.test.ts',
      '%s: the first forbidden values are refused, and make nothing',
    ],
    [
      'validation_failed: spot with image',
      'contract/launch.store.test.ts',
      '%s: 422 that names the field and the rule, and nothing is made',
    ],
    [
      'validation_failed names the fields, unknown ones too',
      'control-plane/base/http/server.test.ts',
      'unknown fields are named at every depth',
    ],
    [
      'Whatever breaks a bound is refused, and the field is named',
      'contract/requests.store.test.ts',
      '%s: one that the document forbids is refused, and the field is named',
    ],
    [
      'disk_unavailable is 422: no offering of the gpu_type honours disk_gb',
      'contract/launch.store.test.ts',
      'that nobody honours is disk_unavailable, with the field',
    ],
    [
      "disk_exceeds_offering is 422: disk_gb above the pinned offering's storage_gb",
      'contract/launch.store.test.ts',
      'above the pinned offering is disk_exceeds_offering; a pin that honours none is disk_unavailable',
    ],
    [
      'environment_unavailable is 422: a well-formed environment that the placed machine cannot serve',
      'contract/environments.store.test.ts',
      'of %s cannot be served: 422 environment_unavailable that says what can',
    ],
    [
      'image_unavailable is 422: an unknown image, a failed registry login',
      'contract/images.store.test.ts',
      'that is %s: nothing is created and nothing billed',
    ],
    [
      'image_unavailable is 422: no capable capacity',
      'contract/launch.store.test.ts',
      'a gpu_type that no host offers is image_unavailable, and nothing is made',
    ],
    [
      'image_unavailable: a failed registry login, at a real registry',
      'control-plane/rental/launch/registry.docker.test.ts',
      'shows the image to the right login alone',
    ],
    [
      "model_too_large is 422: template model weights exceed the explicit GPU's VRAM",
      'contract/templates.store.test.ts',
      'larger than the VRAM of an explicit gpu_type is model_too_large with both figures; at its edge it is not',
    ],
    [
      'gpu_vram_too_small is 422: explicit gpu_type VRAM below template min_vram_gb',
      'contract/templates.store.test.ts',
      'below the min_vram_gb of the template is gpu_vram_too_small, at it is not',
    ],
    [
      '422: image combined with template_id; a template env key that cannot be overridden',
      'contract/templates.store.test.ts',
      'with %s is 422, names the field, and makes nothing',
    ],
    [
      '422: image combined with environment',
      'contract/environments.store.test.ts',
      'with %s is 422 that names the field',
    ],
    [
      '422: reserved env namespace, invalid env keys, empty strings in cmd or entrypoint',
      'contract/launch.store.test.ts',
      '%s: 422 that names the field and the rule, and nothing is made',
    ],
    [
      '422: registry mismatch',
      'contract/images.store.test.ts',
      'that is unknown, of another organisation, or for another registry refuses the launch by its name',
    ],
    [
      '400: malformed image reference',
      'contract/images.store.test.ts',
      'malformed: %s is 400, nothing is asked and nothing made',
    ],
    [
      '400: an image reference that is too long to be one',
      'contract/images.store.test.ts',
      'that is longer than 512 characters is 400, and of 512 is read',
    ],
    [
      'registry_unreachable is 502: a registry outage during the image check',
      'contract/images.store.test.ts',
      'that is %s: nothing is created and nothing billed',
    ],
    [
      'A registry that answers with an error, or limits us, is an outage',
      'control-plane/rental/launch/images.test.ts',
      'that answers %d is %s',
    ],
    [
      'price_changed carries the new price',
      'contract/prices.store.test.ts',
      'is of the whole instance; a refusal carries the new price and makes nothing',
    ],
    [
      'insufficient_balance is 402',
      'contract/prices.store.test.ts',
      'a launch whose first ten minutes the balance does not cover is 402, and makes nothing; one that it just covers runs',
    ],
    [
      'operation_failed: all suppliers rejected the placement',
      'contract/operations.store.test.ts',
      'hosts that all reject the placement are operation_failed, with what went wrong on the last',
    ],
    [
      'Every code is documented with its status',
      'contract/openapi.test.ts',
      'lists every error code of a route under its status, with Retry-After where waiting helps',
    ],
  ],
  '7.3': [
    [
      'rate_limit_exceeded is the per-second rate limit, per address too',
      'control-plane/base/http/limits.test.ts',
      'an address is limited with and without a key, also on unknown paths',
    ],
    [
      'No request makes an internal error',
      'contract/requests.store.test.ts',
      '%s: whatever JSON comes is never an error of ours',
    ],
  ],
};
