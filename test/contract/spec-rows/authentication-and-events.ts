// Specification 5. Authentication and 6. Events: its rules, in the order of its sentences, and their tests.
import type { RowsBySection } from '../spec-rows.ts';

export const AUTHENTICATION_AND_EVENTS_ROWS: RowsBySection = {
  '5': [
    [
      'Keys are created with the command-line login of the operator',
      'control-plane/admin/admin.test.ts',
      'are made, listed and revoked',
    ],
    ['Keys are sent as Authorization: Bearer', 'control-plane/base/http/server.test.ts', 'answers 401 for %s'],
    [
      'Keys carry the prefix svc_live_',
      'control-plane/base/accounts/accounts.store.test.ts',
      'are shown once, have 256 random bits, and are stored as a hash only',
    ],
    [
      'Keys are made by the operator at the command line',
      'control-plane/admin/admin.test.ts',
      'are made, listed and revoked',
    ],
    [
      'Keys are made by others within their rights',
      'control-plane/base/accounts/api-keys.store.test.ts',
      'a key cannot give a scope that it lacks',
    ],
    [
      'GET /v1/gpu-types and GET /v1/pricing need no authentication',
      'contract/scopes.test.ts',
      '%s needs no key, and does not mind one',
    ],
    [
      'serverless:read, serverless:write and billing:read are scopes of keys',
      'contract/scopes.test.ts',
      'a key may be made with the scope %s, as the specification writes it or without the space',
    ],
    [
      'full_access covers the three inference scopes',
      'control-plane/base/accounts/accounts.store.test.ts',
      'have the three inference scopes for full_access',
    ],
    [
      'full_access reads usage, and opens nothing else of the platform',
      'contract/scopes.test.ts',
      'reads usage, and may do nothing on the platform beside',
    ],
    [
      'Platform scopes are written with a space after the colon',
      'control-plane/base/http/server.test.ts',
      'answers 403 with the missing scope as the specification writes it',
    ],
    [
      'ssh_keys: read, ssh_keys: write, instances: read, instances: write, billing: read and webhooks: write open what they name, and nothing else does',
      'contract/scopes.test.ts',
      '%s alone opens %s %s, and all others do not',
    ],
    [
      'A scope that opens nothing yet cannot be granted',
      'contract/scopes.test.ts',
      'the scope %s cannot be granted before there is a route that it opens',
    ],
    [
      'Operations are visible only to the API key that created them',
      'contract/coverage.test.ts',
      'an operation is visible only to the key that created it, not to others of the organisation',
    ],
    [
      'An ssh_key_ids entry of another organisation is refused with 403 ssh_keys/org_mismatch',
      'contract/ssh-keys.store.test.ts',
      "another organisation's key is 403 ssh_keys/org_mismatch for every tier, and nothing is launched",
    ],
    [
      'Nothing of one organisation is seen by another',
      'contract/coverage.test.ts',
      "a stranger's lists hold nothing of what others have",
    ],
    [
      'Instance applications use HTTP Basic with connection.app_user and connection.app_password',
      'e2e/apps.test.ts',
      'the app URL shows the page to whoever has the login',
    ],
    ['The browser console uses the same HTTP Basic login', 'e2e/console.test.ts', 'without the login there is no page'],
    [
      'Webhook deliveries are signed',
      'contract/webhooks-network.store.test.ts',
      'a receiver that knows only the specification verifies what arrives',
    ],
    [
      'A key that lacks the scope receives 403',
      'contract/coverage.test.ts',
      '%s is 403 with every scope but its own, and names the one that is missing',
    ],
    [
      'A missing or invalid key receives 401',
      'contract/coverage.test.ts',
      '%s is 401 without a key, and with one that is unknown, revoked or expired',
    ],
    [
      'A revoked key is invalid',
      'control-plane/base/accounts/api-keys.store.test.ts',
      'takes effect with the next request, and a second revocation is answered with 404',
    ],
  ],
  '6.1': [
    [
      'Four lifecycle events are sent and no others',
      'control-plane/rental/webhooks/courier.store.test.ts',
      'holds the four public events and no others',
    ],
    [
      'An endpoint subscribes to a subset through event_types at its creation',
      'contract/webhooks.store.test.ts',
      'is made with 201 and a secret of 64 hexadecimal characters that is never shown again',
    ],
    [
      'An endpoint cannot subscribe to anything else',
      'contract/webhooks.store.test.ts',
      'is refused with the field and the rule: %j',
    ],
    [
      'An endpoint gets the types that it subscribed to',
      'control-plane/rental/webhooks/courier.store.test.ts',
      'has a row for each endpoint that wants the type, and none for another organisation',
    ],
    [
      'instance.creating: the operation is accepted and placement in flight',
      'control-plane/rental/webhooks/courier.store.test.ts',
      'freezes the body: what is sent later is the instance as it was then',
    ],
    [
      'instance.running: booted and SSH live, not before',
      'control-plane/rental/launch.store.test.ts',
      'runs once SSH works, bills from then to the delete, and frees the GPU when the host lets go',
    ],
    [
      'instance.running is not sent again after an outage',
      'control-plane/rental/outage.store.test.ts',
      'ends by itself: running and billed again, ready_at unchanged, no second instance.running',
    ],
    [
      'instance.terminated: customer terminate',
      'contract/instance-life.store.test.ts',
      'has exactly the fields of its station, from the request through an outage to its end',
    ],
    [
      'instance.terminated: supplier-side stop',
      'contract/instance-life.store.test.ts',
      "from the supplier's side is stopped: instance.terminated, billing ends, and a DELETE finds nothing (%s)",
    ],
    [
      'instance.terminated: a runtime limit',
      'contract/launch.store.test.ts',
      'counts from running, shows its end, and ends the rental like a DELETE with the limit as its reason',
    ],
    [
      'instance.failed: provisioning failed',
      'contract/instance-life.store.test.ts',
      'of provisioning that fails is error: instance.failed, with the reason of the operation, and nothing is billed',
    ],
    [
      'instance.failed: an unrecoverable error',
      'contract/instance-life.store.test.ts',
      'of a rental whose container fails is error: instance.failed, with what the host says',
    ],
    [
      'Each of the four public events fires at most once for an instance',
      'control-plane/rental/instances-random.store.test.ts',
      'no status leaves its table, no GPU is held twice, no charge beside running, no event twice, nothing is forgotten',
    ],
  ],
  '6.2': [
    [
      'An endpoint is an HTTPS URL at a public address',
      'contract/webhooks.store.test.ts',
      'is refused with the field and the rule: %j',
    ],
    [
      'A name that leads inside is not called',
      'contract/webhooks-network.store.test.ts',
      'a name that leads inside is not called, and the history says so without naming the address',
    ],
    [
      'One POST of one JSON event with Svc-Signature, Svc-Event-Id and Content-Type',
      'control-plane/rental/webhooks/courier.store.test.ts',
      'carries the event, its id and a signature that the specification verifies, within its time limits',
    ],
    [
      'Svc-Event-Id is stable over retries',
      'control-plane/rental/webhooks/courier.store.test.ts',
      'is repeated with the same id and body, and a fresh time, after 30 s, 5 min, 30 min and 2 h',
    ],
    [
      'Body: id, type, created_at and data.instance, as it was at the event',
      'control-plane/rental/webhooks/courier.store.test.ts',
      'freezes the body: what is sent later is the instance as it was then',
    ],
    [
      'Any 2xx status is a success; any other status and a timeout trigger a retry',
      'control-plane/rental/webhooks/courier.store.test.ts',
      'fails by any answer but 2xx, redirects and timeouts too, and its record says why',
    ],
    [
      'The receiver answers within 10 seconds',
      'control-plane/base/outbound/outbound.test.ts',
      'timeout: the status line does not come in time, counted from the sending of the request',
    ],
    [
      'A further limit of 30 seconds holds for the whole attempt',
      'control-plane/base/outbound/outbound.test.ts',
      'timeout: the body does not end, although the status line came in time',
    ],
  ],
  '6.3': [
    [
      't=<unix_seconds>,v1=<hex>: HMAC-SHA256 over <t>.<raw body>',
      'control-plane/rental/webhooks/signature.test.ts',
      'the published vector holds, and the document of the API has it',
    ],
    [
      'A receiver verifies the signature over the raw body',
      'contract/webhooks-network.store.test.ts',
      'a receiver that knows only the specification verifies what arrives',
    ],
    [
      'A timestamp more than 300 seconds away is stale and answered 400',
      'control-plane/rental/webhooks/signature.test.ts',
      'takes what is signed, up to 300 seconds away in either direction',
    ],
    [
      'A mismatch is answered 400',
      'control-plane/rental/webhooks/signature.test.ts',
      'answers 400 to another body, another secret, another time and no signature',
    ],
    [
      'A rotation of the secret leaves no gap',
      'control-plane/rental/webhooks/signature.test.ts',
      'takes either signature of a rotation',
    ],
  ],
  '6.4': [
    [
      '5 attempts, 30 seconds, 5 minutes, 30 minutes and 2 hours apart, then dead_lettered',
      'control-plane/rental/webhooks/schedule.test.ts',
      'is tried again after 30 s, 5 min, 30 min and 2 h, and given up after the fifth attempt',
    ],
    [
      'A sixth attempt 12 hours later if it is configured',
      'control-plane/rental/webhooks/schedule.test.ts',
      'has a sixth attempt after 12 h if the operator allows it',
    ],
    [
      'Any non-2xx response, any timeout and any other failure is retried: five attempts for each of them',
      'control-plane/rental/webhooks/schedule.test.ts',
      'is tried again after every kind of failure',
    ],
    [
      'A Retry-After ends no delivery: all attempts come within a day',
      'control-plane/rental/webhooks/schedule.test.ts',
      'of %d attempts gets all of them within a day, whatever Retry-After asks',
    ],
    [
      'The attempts span roughly 24 hours at most, also to an endpoint that fails again and again',
      'control-plane/rental/webhooks/endpoint-health.store.test.ts',
      'gives each of its deliveries five attempts within a day, however many there are',
    ],
    [
      '410 is retried like any failure, and the endpoint stays enabled',
      'control-plane/rental/webhooks/endpoint-health.store.test.ts',
      'is degraded by 410 and stays enabled, and its deliveries are tried like any',
    ],
    [
      'After the final failure the delivery is dead_lettered and retrying stops',
      'control-plane/rental/webhooks/courier.store.test.ts',
      'is repeated with the same id and body, and a fresh time, after 30 s, 5 min, 30 min and 2 h',
    ],
    [
      'A delivery is retried until it succeeds or is dead, whatever ends our process',
      'control-plane/rental/webhooks/crash.test.ts',
      'nothing is lost or reordered for a healthy endpoint over kill -9, while others hang and refuse',
    ],
    [
      'The delivery history shows every attempt',
      'contract/webhooks.store.test.ts',
      'shows each attempt with its answer, and where it stands',
    ],
    [
      'A delivery can be retried by hand',
      'contract/webhooks.store.test.ts',
      'is one more attempt of the same delivery with the same event id, also after it was given up',
    ],
  ],
};
