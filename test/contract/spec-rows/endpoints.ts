// Specification 4. Endpoints, but for instances: its rules, in the order of its sentences, and their tests.
import type { RowsBySection } from '../spec-rows.ts';

export const ENDPOINTS_ROWS: RowsBySection = {
  '4.1': [
    [
      'Both lists take cursor and limit',
      'contract/catalog.store.test.ts',
      '%s takes a limit from 1 to 200 and nothing unknown',
    ],
    ['The catalog needs no authentication', 'contract/catalog.store.test.ts', 'nothing on offer is an empty page'],
  ],
  '4.2': [
    [
      'POST /v1/ssh-keys requires Idempotency-Key',
      'control-plane/base/accounts/ssh-keys.store.test.ts',
      'needs an Idempotency-Key',
    ],
    ['name and public_key are required strings', 'control-plane/base/accounts/ssh-keys.store.test.ts', '%s is refused'],
    [
      'Malformed keys are rejected',
      'control-plane/base/accounts/ssh-keys.store.test.ts',
      'a bad key names the field and the reason, and leaves the Idempotency-Key free',
    ],
    [
      'GET /v1/ssh-keys is a page',
      'control-plane/base/accounts/ssh-keys.store.test.ts',
      'walks all pages newest first, and shows no other organisation',
    ],
    [
      'Keys must have the OpenSSH public-key format',
      'control-plane/base/accounts/ssh-keygen.test.ts',
      'an RSA key of 1024 bits, a private key and a certificate are refused with the reason',
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
  ],
  '4.4': [
    [
      'GET /v1/reservations is a plain array, empty when none',
      'contract/reservations.store.test.ts',
      'without a contract the list is an empty array',
    ],
    [
      'Launching against a contract uses POST /v1/instances with tier reserved',
      'contract/reservations.store.test.ts',
      'a launch is refused with 403, 403, 400 and 429, and each leaves nothing behind',
    ],
  ],
  '4.5': [
    [
      'GET /v1/operations/{id} of an unknown id is 404',
      'contract/operations.store.test.ts',
      'an id that is none is 404',
    ],
  ],
  '4.6': [
    [
      'Buckets are hour, day, week and month',
      'control-plane/money/buckets.test.ts',
      'the %s of %s begins at %s and ends at %s',
    ],
    [
      'The default bucket depends on the length of the window',
      'control-plane/money/buckets.test.ts',
      'of %d ms has rows by %s',
    ],
    [
      'The default window is 30 days when start and end are omitted',
      'contract/usage.store.test.ts',
      'the default window is the last 30 days, cut to the millisecond',
    ],
    [
      'start is inclusive, end exclusive',
      'contract/usage.store.test.ts',
      'start is inclusive and end exclusive, in the middle of an hour and with any offset',
    ],
    [
      'GET /v1/usage is a page with cursor and limit',
      'contract/usage.store.test.ts',
      'pages show one moment: nothing is skipped or repeated while instances start, run on and end',
    ],
  ],
  '4.7': [
    [
      'POST /v1/webhook-endpoints requires Idempotency-Key',
      'contract/webhooks.store.test.ts',
      'needs an Idempotency-Key, and an equal request makes no second one',
    ],
    [
      'url is https, event_types a subset of the four',
      'contract/webhooks.store.test.ts',
      'is refused with the field and the rule: %j',
    ],
    ['GET /v1/webhook-endpoints is a page', 'contract/webhooks.store.test.ts', 'is listed in pages, newest first'],
    ['DELETE removes the endpoint', 'contract/webhooks.store.test.ts', 'is deleted with 204, and then 404'],
    [
      'GET /v1/webhook-endpoints/{id}/deliveries is a page',
      'contract/webhooks.store.test.ts',
      'is a page, newest first',
    ],
  ],
  '4.9': [
    [
      'POST /v1/registry-credentials stores a registry credential',
      'contract/images.store.test.ts',
      'is stored sealed, listed without its password, and deleted',
    ],
    [
      'GET /v1/environments returns the Environments object',
      'contract/environments.store.test.ts',
      'the list is open to everybody, and has frameworks, versions, contents and VM images as specified',
    ],
  ],
};
