// Specification 4. Endpoints, but for instances: its rules, in the order of its sentences, and their tests.
import type { RowsBySection } from '../spec-rows.ts';

export const ENDPOINTS_ROWS: RowsBySection = {
  '4': [['Bodies are JSON', 'control-plane/base/http/server.test.ts', '415 for a body of type %s']],
  '4.1': [
    [
      'GET /v1/gpu-types and GET /v1/pricing need no authentication',
      'contract/catalog.store.test.ts',
      '%s is open to everybody, whatever key comes along',
    ],
    [
      'Both take cursor and limit',
      'contract/catalog.store.test.ts',
      '%s takes a limit from 1 to 200 and nothing unknown',
    ],
    [
      'GET /v1/gpu-types is a page of GPU type',
      'contract/catalog.store.test.ts',
      'are walked in pages by name, also when a type appears or goes on the way',
    ],
    [
      'GET /v1/gpu-types without an offer is an empty page',
      'contract/catalog.store.test.ts',
      'nothing on offer is an empty page',
    ],
    [
      'GET /v1/pricing is a page of pricing rows',
      'contract/catalog.store.test.ts',
      'a walk in pages never skips or repeats a row, whatever is listed meanwhile',
    ],
  ],
  '4.2': [
    [
      'DELETE /v1/ssh-keys/{id} of an already gone key is 404 not_found',
      'contract/ssh-keys.store.test.ts',
      'deleting an already gone key is 404 not_found',
    ],
    [
      'GET /v1/ssh-keys is a page of SSH key, newest first',
      'control-plane/base/accounts/ssh-keys.store.test.ts',
      'walks all pages newest first, and shows no other organisation',
    ],
    [
      'GET /v1/ssh-keys takes a limit of 1 and of 200',
      'control-plane/base/accounts/ssh-keys.store.test.ts',
      '%s is accepted',
    ],
    [
      'POST /v1/ssh-keys requires Idempotency-Key',
      'control-plane/base/accounts/ssh-keys.store.test.ts',
      'needs an Idempotency-Key',
    ],
    ['name and public_key are required strings', 'control-plane/base/accounts/ssh-keys.store.test.ts', '%s is refused'],
    ['public_key has the OpenSSH public-key format', 'control-plane/base/accounts/public-key.test.ts', '%s'],
    [
      'public_key as ssh-keygen writes it',
      'control-plane/base/accounts/ssh-keygen.test.ts',
      'a new %s key of %s bits has the fingerprint that ssh-keygen -lf prints',
    ],
    [
      'What is no OpenSSH public key is rejected',
      'control-plane/base/accounts/ssh-keygen.test.ts',
      'an RSA key of 1024 bits, a private key and a certificate are refused with the reason',
    ],
    [
      'Malformed keys are rejected with the field',
      'control-plane/base/accounts/ssh-keys.store.test.ts',
      'refuses a bad key with the field and the reason, and leaves the Idempotency-Key free',
    ],
    [
      'POST /v1/ssh-keys answers 201 with the SSH key',
      'control-plane/base/accounts/ssh-keys.store.test.ts',
      'answers 201 with the fingerprint, and a repeat gets the same bytes',
    ],
    [
      'Deleting an already gone key is 404 not_found',
      'contract/ssh-keys.store.test.ts',
      'deleting an already gone key is 404 not_found',
    ],
    [
      'A key in use can be deleted',
      'contract/ssh-keys.store.test.ts',
      'deleting a key that an instance uses is allowed and takes effect at the next connect',
    ],
    [
      'At least one SSH key is needed for SSH access',
      'contract/ssh-keys.store.test.ts',
      'a launch without any key is accepted, and nobody may connect until one is registered',
    ],
  ],
  '4.4': [
    [
      'GET /v1/reservations is a plain array, empty when none',
      'contract/reservations.store.test.ts',
      'without a contract the list is an empty array',
    ],
    [
      'GET /v1/reservations is not a page, and there is no self-serve checkout',
      'contract/reservations.store.test.ts',
      'there is no checkout, and no page: nothing can be sent to the list',
    ],
    [
      'GET /v1/reservations lists all contracts, newest first',
      'contract/reservations.store.test.ts',
      'contracts are listed newest first with how each is renewed, also those that have not begun or are over',
    ],
    [
      'GET /v1/reservations shows contracts of the own organisation alone',
      'contract/reservations.store.test.ts',
      'a contract is seen by its organisation alone',
    ],
    [
      'Launching against a contract uses POST /v1/instances with tier reserved',
      'contract/reservations.store.test.ts',
      'its instances are shown until they have ended, booting while they start',
    ],
    [
      'A launch that no contract covers is refused',
      'contract/reservations.store.test.ts',
      'a launch is refused with 403, 403, 400 and 429, and each leaves nothing behind',
    ],
  ],
  '4.5': [
    [
      'GET /v1/operations/{id} answers the operation',
      'contract/operations.store.test.ts',
      'it succeeds with the instance as its resource once that runs, and a delete has an operation of its own',
    ],
    [
      'GET /v1/operations/{id} of an unknown id is 404 not_found',
      'contract/operations.store.test.ts',
      'an id that is none is 404',
    ],
    [
      'The suggested polling backoff is 1, 2, 4, 8, 16, then 30 seconds',
      'contract/openapi.test.ts',
      'tells how often to ask about an operation',
    ],
    [
      'GET /v1/operations/{id} is 404 not_found across API keys',
      'contract/coverage.test.ts',
      'an operation is visible only to the key that created it, not to others of the organisation',
    ],
  ],
  '4.6': [
    [
      'start and end are any ISO 8601 date or date-time, with or without an offset',
      'contract/usage.store.test.ts',
      '%s is a moment',
    ],
    [
      'bucket is hour, day, week or month, in UTC; weeks start on Monday',
      'control-plane/money/buckets.test.ts',
      'the %s of %s begins at %s and ends at %s',
    ],
    [
      'The default bucket depends on the length of the window',
      'control-plane/money/buckets.test.ts',
      'of %d ms has rows by %s',
    ],
    [
      'group_by is instance_id, the default, or gpu_type',
      'contract/usage.store.test.ts',
      'rows name the instance, or the GPU type where asked; running time counts up to now',
    ],
    [
      'start is inclusive, end exclusive, both ISO 8601',
      'contract/usage.store.test.ts',
      'start is inclusive and end exclusive, in the middle of an hour and with any offset',
    ],
    ['What is no bucket, grouping or window is refused', 'contract/usage.store.test.ts', '%s'],
    [
      'GET /v1/usage is a page with cursor and limit',
      'contract/usage.store.test.ts',
      'pages show one moment: nothing is skipped or repeated while instances start, run on and end',
    ],
    ['A cursor of usage belongs to its question', 'contract/usage.store.test.ts', 'a cursor belongs to its question'],
    [
      'The default window is 30 days when start and end are omitted',
      'contract/usage.store.test.ts',
      'the default window is the last 30 days, cut to the millisecond',
    ],
    [
      'Nobody sees the usage of another organisation',
      'control-plane/money/usage.store.test.ts',
      'no organisation sees the usage of another one',
    ],
  ],
  '4.7': [
    [
      'POST /v1/webhook-endpoints requires Idempotency-Key',
      'contract/webhooks.store.test.ts',
      'needs an Idempotency-Key, and an equal request makes no second one',
    ],
    [
      'url is https, event_types a list of the four',
      'contract/webhooks.store.test.ts',
      'is refused with the field and the rule: %j',
    ],
    [
      'POST /v1/webhook-endpoints answers 201 with the endpoint and its secret, shown once',
      'contract/webhooks.store.test.ts',
      'is made with 201 and a secret of 64 hexadecimal characters that is never shown again',
    ],
    [
      'GET /v1/webhook-endpoints lists the endpoints',
      'contract/webhooks.store.test.ts',
      'is listed in pages, newest first',
    ],
    [
      'DELETE /v1/webhook-endpoints/{id} removes the endpoint',
      'contract/webhooks.store.test.ts',
      'is deleted with 204, and then 404',
    ],
    [
      'What is removed gets no events',
      'contract/webhooks.store.test.ts',
      'that is deleted gets nothing more, not even what waited',
    ],
    [
      'GET /v1/webhook-endpoints/{id}/deliveries is the delivery history',
      'contract/webhooks.store.test.ts',
      'shows each attempt with its answer, and where it stands',
    ],
    ['The delivery history is a page, newest first', 'contract/webhooks.store.test.ts', 'is a page, newest first'],
  ],
  '4.9': [
    [
      'GET /v1/environments returns the Environments object',
      'contract/environments.store.test.ts',
      'the list is open to everybody, and has frameworks, versions, contents and VM images as specified',
    ],
    [
      'POST /v1/registry-credentials stores a registry credential',
      'contract/images.store.test.ts',
      'is stored sealed, listed without its password, and deleted',
    ],
    [
      'Fields of a registry credential have rules',
      'contract/images.store.test.ts',
      'with a wrong %s is refused by its name',
    ],
    [
      'PATCH /v1/instances/{id} answers the instance',
      'contract/instance-life.store.test.ts',
      'the change of its name answers the instance as it is then; null takes the name away',
    ],
    [
      'DELETE /v1/ssh-keys/{id} answers 204 without a body',
      'control-plane/base/accounts/ssh-keys.store.test.ts',
      'answers 204, then 404',
    ],
    [
      'GET /v1/webhook-endpoints answers a page of endpoints without their secrets',
      'contract/webhooks.store.test.ts',
      'is made with 201 and a secret of 64 hexadecimal characters that is never shown again',
    ],
    [
      'DELETE /v1/webhook-endpoints/{id} answers 204 without a body',
      'contract/webhooks.store.test.ts',
      'is deleted with 204, and then 404',
    ],
  ],
};
