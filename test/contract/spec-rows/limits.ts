// Specification 8. Limits and 9. Versioning: its rules, in the order of its sentences, and their tests.
import type { RowsBySection } from '../spec-rows.ts';

export const LIMITS_ROWS: RowsBySection = {
  '8': [
    ['Page size: minimum 1, maximum 200', 'contract/limits.store.test.ts', 'of every list that takes one is 1 to 200'],
    ['Page size: default 50', 'contract/limits.store.test.ts', 'is 50 if the request names no limit'],
    [
      'Idempotency-Key: at most 255 characters, required on POST /v1/ssh-keys, /v1/instances and /v1/webhook-endpoints',
      'contract/limits.store.test.ts',
      'is required on POST %s, with 255 characters at most',
    ],
    [
      'Idempotency-Key: sent on PATCH and DELETE instance',
      'contract/limits.store.test.ts',
      'may be sent with %s of an instance, with 255 characters at most',
    ],
    [
      'An equal request has no second effect and gets the same answer',
      'control-plane/base/http/idempotency.store.test.ts',
      'gets the same bytes, the operation id and the replay header, and has no second effect',
    ],
    [
      'Equal requests at the same time have one effect',
      'control-plane/base/http/idempotency.store.test.ts',
      'sent fifty times at once has one effect and one answer',
    ],
    [
      'A process that dies between an effect and its answer: an equal request gets that answer from the next one',
      'e2e/idempotency.test.ts',
      'kill -9 between the effect of a launch and its reply: the next process returns the result',
    ],
    [
      'Every answer to an Idempotency-Key outlives its process, byte for byte, with the secrets in it',
      'e2e/idempotency.test.ts',
      '%s that is killed with its reply: the next process gives the same answer, byte for byte',
    ],
    [
      'Equal launches at the same time are one launch with one answer',
      'contract/launch-once.store.test.ts',
      'fifty equal launches at once are one launch, and are answered alike',
    ],
    [
      'A replay does not keep a secret in clear',
      'control-plane/base/accounts/api-keys.store.test.ts',
      'returns the same key for a repeated request, and the database never stores it in the clear',
    ],
    [
      'gpu_count 1 to 8, auto_terminate_hours 1 to 720, disk_gb 10 to 1000; ports, entrypoint: what is allowed',
      'contract/limits.store.test.ts',
      '%s: the last allowed values are honoured',
    ],
    [
      'gpu_count 1 to 8, auto_terminate_hours 1 to 720, disk_gb 10 to 1000; ports, entrypoint: what is forbidden',
      'contract/limits.store.test.ts',
      '%s: the first forbidden values are refused, and make nothing',
    ],
    [
      'disk_gb: default and included allowance 100',
      'contract/launch.store.test.ts',
      'left out: 100 GB where sizes are honoured, absent elsewhere, and no host is passed over',
    ],
    [
      'Price tolerance: 0.01 $/hr over viewed_price_per_hour',
      'contract/limits.store.test.ts',
      'the price may be 0.01 above the one that was viewed, and not a hundred-millionth more',
    ],
    [
      'Reservation expiring_soon: 14 days or fewer remain',
      'contract/reservations.store.test.ts',
      'a contract that ends in %d ms has %d days until its end, and expires soon: %s',
    ],
    [
      'Webhook reply deadline: 10 seconds',
      'control-plane/base/outbound/outbound.test.ts',
      'timeout: the status line does not come in time, counted from the sending of the request',
    ],
    [
      'Signature freshness: 5 minutes',
      'control-plane/rental/webhooks/signature.test.ts',
      'takes what is signed, up to 300 seconds away in either direction',
    ],
    [
      'Webhook attempts: 5',
      'control-plane/rental/webhooks/schedule.test.ts',
      'is tried again after 30 s, 5 min, 30 min and 2 h, and given up after the fifth attempt',
    ],
    [
      'Usage window: 30 days when start and end are omitted',
      'contract/usage.store.test.ts',
      'the default window is the last 30 days, cut to the millisecond',
    ],
    [
      'Everything else in a launch has a bound of its own',
      'contract/limits.store.test.ts',
      '%s: the first values beyond are refused, and make nothing',
    ],
    [
      'The largest launches fit into what a host is sent, so that nobody keeps it from hearing of others',
      'contract/largest-launch.store.test.ts',
      'a launch of the largest body on each GPU of the largest machine fits into what the host is sent',
    ],
    [
      'Whatever a launch holds that is taken, its host can decode it',
      'contract/requests.store.test.ts',
      'whatever launch is taken, its host can decode what it should run',
    ],
    [
      'Request bodies have a largest size',
      'control-plane/base/http/server.test.ts',
      'a body of the largest size is read, and one more byte is answered with 413',
    ],
    [
      'Headers have a largest size',
      'control-plane/base/http/limits.test.ts',
      'up to the limit are read, above it the answer is 431',
    ],
  ],
  '9': [
    [
      'Model status coming_soon, deprecated and active describe the lifecycle of the catalog',
      'control-plane/models/catalog.test.ts',
      '%s for %s: %s',
    ],
    [
      'The spot tier stays in the enumerations',
      'contract/environments.store.test.ts',
      'spot without an image is accepted, and its operation says that spot has no capacity',
    ],
    [
      'An unsupported-parameter error message refers to v1.1 of the inference surface',
      'contract/chat.store.test.ts',
      'with what is not supported: %j, by name',
    ],
    ['All endpoints live under /v1', 'contract/openapi.test.ts', 'is OpenAPI 3.1 with the required members'],
    [
      'Spot capacity is unavailable: no offering shows',
      'contract/catalog.store.test.ts',
      'machines of the tier spot never show',
    ],
    [
      'Spot is soft-deprecated: a launch that asks for it is told to use on_demand',
      'contract/environments.store.test.ts',
      'spot without an image is accepted, and its operation says that spot has no capacity',
    ],
  ],
};
