// Specification 5. Authentication and 6. Events: its rules, in the order of its sentences, and their tests.
import type { RowsBySection } from '../spec-rows.ts';

export const AUTHENTICATION_AND_EVENTS_ROWS: RowsBySection = {
  '5': [
    [
      'Instance applications use HTTP Basic with connection.app_user and connection.app_password',
      'e2e/apps.test.ts',
      'the app URL shows the page to whoever has the login',
    ],
    ['Keys are sent as Authorization: Bearer', 'control-plane/base/http/server.test.ts', '401 for %s'],
    [
      'Platform scopes are written with a space after the colon',
      'control-plane/base/http/server.test.ts',
      '403 names the missing scope as the specification writes it',
    ],
    [
      'Keys carry the prefix svc_live_',
      'control-plane/base/accounts/accounts.store.test.ts',
      'are shown once, have 256 random bits, and are stored as a hash only',
    ],
    [
      'full_access covers the three inference scopes',
      'control-plane/base/accounts/accounts.store.test.ts',
      'full_access is the three inference scopes',
    ],
    [
      'Keys are made by others within their rights',
      'control-plane/base/accounts/api-keys.store.test.ts',
      'a key cannot give a scope that it lacks',
    ],
    [
      'A revoked key is invalid',
      'control-plane/base/accounts/api-keys.store.test.ts',
      'takes effect at the next request, and a second time it is gone',
    ],
    [
      'ssh_keys: read and ssh_keys: write are two scopes',
      'control-plane/base/accounts/ssh-keys.store.test.ts',
      'reading and writing are two scopes',
    ],
    [
      'A missing or invalid key receives 401',
      'contract/coverage.test.ts',
      '%s is 401 without a key, and with one that is unknown, revoked or expired',
    ],
    [
      'A key that lacks the scope receives 403',
      'contract/coverage.test.ts',
      '%s is 403 with every scope but its own, and names the one that is missing',
    ],
  ],
  '6.1': [
    [
      'Four lifecycle events are sent and no others',
      'control-plane/rental/webhooks/courier.store.test.ts',
      'holds the four public events and no others',
    ],
    [
      'An endpoint gets the types that it subscribed to',
      'control-plane/rental/webhooks/courier.store.test.ts',
      'has a row for each endpoint that wants the type, and none for another organisation',
    ],
    [
      'Each of the four public events fires at most once for an instance',
      'control-plane/rental/instances-random.store.test.ts',
      'no status leaves its table, no GPU is held twice, no charge beside running, no event twice, nothing is forgotten',
    ],
  ],
  '6.2': [
    [
      'An endpoint stands at a public address',
      'contract/webhooks-network.store.test.ts',
      'a name that leads inside is not called, and the history says so without naming the address',
    ],
    [
      'One POST of one JSON event with Svc-Signature, Svc-Event-Id and Content-Type, answered within 10 seconds',
      'control-plane/rental/webhooks/courier.store.test.ts',
      'carries the event, its id and a signature that the specification verifies, within its time limits',
    ],
    [
      'data.instance is the instance at the event',
      'control-plane/rental/webhooks/courier.store.test.ts',
      'freezes the body: what is sent later is the instance as it was then',
    ],
    [
      'Any status but 2xx is a failure',
      'control-plane/rental/webhooks/courier.store.test.ts',
      'fails by any answer but 2xx, redirects too, and its record says why',
    ],
    [
      'Svc-Event-Id is stable over retries',
      'control-plane/rental/webhooks/courier.store.test.ts',
      'is repeated with the same id and body, and a fresh time, after 30 s, 5 min, 30 min and 2 h',
    ],
    [
      'A further limit of 30 seconds holds for the whole attempt',
      'control-plane/base/outbound/outbound.test.ts',
      'timeout: a body that does not end; the status line in time does not help',
    ],
  ],
  '6.3': [
    [
      'A receiver verifies the signature over the raw body',
      'contract/webhooks-network.store.test.ts',
      'a receiver that knows only the specification verifies what arrives',
    ],
    [
      't=<unix_seconds>,v1=<hex>: HMAC-SHA256 over <t>.<raw body>',
      'control-plane/rental/webhooks/signature.test.ts',
      'the published vector holds, and the document of the API has it',
    ],
  ],
  '6.4': [
    [
      'A delivery can be retried by hand',
      'contract/webhooks.store.test.ts',
      'is one more attempt of the same delivery with the same event id, also after it was given up',
    ],
    [
      'A delivery is retried until it succeeds or is dead, whatever ends our process',
      'control-plane/rental/webhooks/crash.test.ts',
      'nothing is lost or reordered for a healthy endpoint over kill -9, while others hang and refuse',
    ],
    [
      '5 attempts, 30 seconds, 5 minutes, 30 minutes and 2 hours apart, then dead_lettered',
      'control-plane/rental/webhooks/schedule.test.ts',
      'is tried again after 30 s, 5 min, 30 min and 2 h, and given up after the fifth attempt',
    ],
    [
      'A sixth attempt 12 hours later where it is configured',
      'control-plane/rental/webhooks/schedule.test.ts',
      'has a sixth attempt after 12 h where the operator allows it',
    ],
    [
      'The attempts of a delivery span a day at most',
      'control-plane/rental/webhooks/schedule.test.ts',
      'is given up where its next attempt would be a day after the event',
    ],
  ],
};
