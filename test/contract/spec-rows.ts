// The rules of the interface specification, each with the test that proves it. spec-rows.test.ts fails when a test is gone.
import { MENU_ROWS } from './spec-rows-menu.ts';

export interface SpecRow {
  /** Section of the specification. */
  section: string;
  rule: string;
  /** Below `test/`. */
  file: string;
  /** The title as it is written in the file. */
  test: string;
}

const HTTP = 'control-plane/base/http';
const ACCOUNTS = 'control-plane/base/accounts';

/** File -> rows of [section, rule, test]. */
const ROWS: Record<string, readonly [string, string, string][]> = {
  'e2e/apps.test.ts': [
    [
      '5',
      'Instance applications use HTTP Basic with connection.app_user and connection.app_password',
      'the app URL shows the page to whoever has the login',
    ],
  ],
  'contract/launch.store.test.ts': [
    ['8', 'gpu_count is 1 to 8, auto_terminate_hours 1 to 720, disk_gb 10 to 1000; ports, entrypoint', '%s'],
    [
      '4.3',
      'Every broken rule of the body is 422 and names its field',
      '%s: 422 that names the field, and nothing is made',
    ],
    [
      '7.2',
      'spot with image, auto_terminate_hours 0 and bounds are validation_failed',
      '%s: 422 that names the field, and nothing is made',
    ],
    [
      '4.3',
      'A gpu_type with no capable capacity is 422 image_unavailable',
      'a gpu_type that no host offers is image_unavailable',
    ],
    ['4.3', 'disk_gb narrows placement to capable capacity', 'goes only where it is honoured, at both of its bounds'],
    [
      '4.3',
      'No capable capacity for disk_gb is 422 disk_unavailable',
      'that nobody honours is disk_unavailable, with the field',
    ],
    [
      '4.3',
      "disk_gb above the pinned offering's storage_gb is 422 disk_exceeds_offering",
      'above the pinned offering is disk_exceeds_offering; a pin that honours none is disk_unavailable',
    ],
    [
      '2.2',
      'disk_gb is present only where the placed capacity honours a configured size; the default is 100 GB',
      'left out: 100 GB where sizes are honoured, absent elsewhere, and no host is passed over',
    ],
    [
      '4.3',
      'Disk beyond 100 GB is folded into the hourly rate, inside the cap and outside of the viewed price',
      'beyond 100 GB counts against the cap, and not against the viewed price',
    ],
    ['2.4', 'A pricing row tells disk_price_per_gb_hour, storage_gb and disk_configurable', 'is told in the catalog'],
    [
      '3.1',
      'A runtime limit ends a rental like a DELETE; status_reason records it, auto_terminate_hours stays, auto_terminate_at goes',
      'counts from running, shows its end, and ends the rental like a DELETE with the limit as its reason',
    ],
    [
      '2.2',
      'connection.app_url is https://<id>.{app_domain} for a custom image with a primary port',
      'are reached at URLs and public ports once the instance runs',
    ],
    [
      '2.2',
      'app_password is in no read but include=credentials, never in a list or operation',
      'have a password that only include=credentials shows, and no list, operation or event',
    ],
    ['2.2', 'auto_terminate_hours is absent without a limit', 'left out is absent, and nothing ends by itself'],
  ],
  [`${HTTP}/cursors.test.ts`]: [
    [
      '2.1',
      'A page is data and next_cursor, which is null when no further page exists',
      'an exactly full last page has no next cursor',
    ],
    ['2.1', 'limit: default 50, minimum 1, maximum 200', '%s is %d'],
    ['8', 'Page size above 200 or below 1 is refused', '%s is refused'],
    ['2.1', 'A walk by cursor shows every entry once, in order', 'of %d entries show every row once, in order'],
  ],
  [`${HTTP}/idempotency.store.test.ts`]: [
    ['2.1', 'Idempotency-Key has at most 255 characters', 'has 1 to 255 characters'],
    ['8', 'Idempotency-Key is required where the table says so', 'is required'],
    [
      '8',
      'An equal request has no second effect and gets the same answer',
      'gets the same bytes, the operation id and a mark, and has no second effect',
    ],
    ['8', 'Equal requests at the same time have one effect', 'fifty at once have one effect and one answer'],
  ],
  [`${HTTP}/limits.test.ts`]: [
    [
      '7.1',
      '429 carries Retry-After in whole seconds',
      'a key gets its burst, then 429 with the seconds to wait, then what has come back since',
    ],
    [
      '7.3',
      'rate_limit_exceeded is the per-second rate limit, per address too',
      'an address is limited with and without a key, also where there is nothing',
    ],
    ['8', 'Headers have a largest size', 'up to the limit are read, above it are 431'],
    ['7.1', 'What is no HTTP is answered by a problem document too', '%s is 400'],
  ],
  [`${HTTP}/server.test.ts`]: [
    ['7.1', 'Platform endpoints answer with problem documents of application/problem+json', '404 for an unknown path'],
    ['7.1', 'Retry-After is at least 1', 'Retry-After is whole seconds, at least one'],
    ['5', 'Keys are sent as Authorization: Bearer', '401 for %s'],
    [
      '5',
      'Platform scopes are written with a space after the colon',
      '403 names the missing scope as the specification writes it',
    ],
    ['8', 'Request bodies have a largest size', 'the largest body is read, one byte more is 413'],
    ['7.2', 'validation_failed names the fields, unknown ones too', 'unknown fields are named, at every depth'],
  ],
  [`${ACCOUNTS}/accounts.store.test.ts`]: [
    ['5', 'Keys carry the prefix svc_live_', 'are shown once, have 256 random bits, and are stored as a hash only'],
    ['5', 'full_access covers the three inference scopes', 'full_access is the three inference scopes'],
  ],
  [`${ACCOUNTS}/api-keys.store.test.ts`]: [
    ['5', 'Keys are made by others within their rights', 'a key cannot give a scope that it lacks'],
    ['5', 'A revoked key is invalid', 'takes effect at the next request, and a second time it is gone'],
    [
      '8',
      'A replay does not keep a secret in clear',
      'an equal request gets the same key again, and the database never holds it in clear',
    ],
  ],
  [`${ACCOUNTS}/ssh-keys.store.test.ts`]: [
    [
      '2.5',
      'An SSH key has id, name, fingerprint and created_at',
      'answers 201 with the fingerprint, and again with the same bytes',
    ],
    ['4.2', 'POST /v1/ssh-keys requires Idempotency-Key', 'needs an Idempotency-Key'],
    ['4.2', 'name and public_key are required strings', '%s is refused'],
    [
      '4.2',
      'Malformed keys are rejected',
      'a bad key names the field and the reason, and leaves the Idempotency-Key free',
    ],
    ['4.2', 'GET /v1/ssh-keys is a page', 'walks all pages newest first, and shows no other organisation'],
    ['5', 'ssh_keys: read and ssh_keys: write are two scopes', 'reading and writing are two scopes'],
  ],
  [`${ACCOUNTS}/ssh-keygen.test.ts`]: [
    [
      '2.5',
      'The fingerprint has the SHA256 form',
      'a new %s key of %s bits has the fingerprint that ssh-keygen -lf prints',
    ],
    [
      '4.2',
      'Keys must have the OpenSSH public-key format',
      'an RSA key of 1024 bits, a private key and a certificate are refused with the reason',
    ],
  ],
  'contract/ssh-keys.store.test.ts': [
    [
      '7.2',
      'ssh_keys/org_mismatch: 403 for a key of another organisation',
      "another organisation's key is 403 ssh_keys/org_mismatch, and nothing is launched",
    ],
    ['4.2', 'Deleting an already gone key is 404 not_found', 'deleting an already gone key is 404 not_found'],
    [
      '4.2',
      'A key in use can be deleted',
      'deleting a key that an instance uses is allowed and takes effect at the next connect',
    ],
  ],
  'contract/catalog.store.test.ts': [
    [
      '2.3',
      'GPU types show the smallest VRAM on offer',
      'a model that spans variants shows its smallest VRAM on offer',
    ],
    ['2.3', 'cpu_cores, ram_gb and storage_gb are representative', 'show the smallest host that is on offer'],
    ['2.3', '0 means unreported', '0 is what nobody reports; a host that is silent does not hide what the others say'],
    [
      '2.4',
      'A pricing row carries the exact values of one offering and its live availability',
      'has one row for each offering, with the price of one GPU and what is free now',
    ],
    [
      '2.4',
      'tier=spot returns no offerings',
      'tier=spot gives no offerings, on_demand is the default, and another tier is refused',
    ],
    ['9', 'Spot capacity is unavailable', 'machines of the tier spot never show'],
    ['4.1', 'Both lists take cursor and limit', '%s takes a limit from 1 to 200 and nothing unknown'],
    [
      '2.1',
      'Pages hold still while rows are inserted',
      'a walk in pages never skips or repeats a row, whatever is listed meanwhile',
    ],
    ['4.1', 'The catalog needs no authentication', 'nothing on offer is an empty page'],
  ],
  'control-plane/rental/reservation-term.test.ts': [
    [
      '2.7',
      'starts_at is the term start, ends_at its end, exclusive',
      'is active from starts_at on, and no longer at ends_at: the end is exclusive',
    ],
    [
      '2.7',
      'renewal.expiring_soon is true when days_until_end is 14 or less',
      'the end is soon from 14 days before it: at 14 days, not a moment earlier, and never less than 0 days',
    ],
    [
      '8',
      'Reservation expiring_soon: 14 days or fewer remain',
      'the end is soon from 14 days before it: at 14 days, not a moment earlier, and never less than 0 days',
    ],
    ['2.7', 'renewal.mode auto_renew, manual or none', 'with auto_renew is followed by a term of the same length: %s'],
  ],
  'control-plane/rental/reservations.store.test.ts': [
    [
      '2.7',
      'reservation_id is a ULID',
      'sets its GPUs aside at once, on as few machines as possible, also where it begins later',
    ],
    [
      '3.4',
      'Reservation status: pending, active, suspended, expired, cancelled',
      'begins and ends by itself, and its end puts the GPUs on offer again',
    ],
    [
      '3.4',
      'Only active accepts new reserved launches',
      'with a contract that is pending, suspended or expired is contract_inactive, at both edges of the term',
    ],
    [
      '7.2',
      'reservation/no_contract: the organisation holds no reservation contract',
      'without a contract is no_contract, also where the only one is cancelled or belongs to others',
    ],
    [
      '7.2',
      'reservation/contract_inactive: a contract exists but is not active, or outside its term',
      'with a contract that is pending, suspended or expired is contract_inactive, at both edges of the term',
    ],
    [
      '7.2',
      'reservation/gpu_type_mismatch: the contract does not cover the gpu_type, or no slot in the region matches',
      'for another GPU type or region is gpu_type_mismatch and says what is covered',
    ],
    [
      '7.2',
      'reservation/no_capacity: all slots allocated; no automatic fallback',
      'beyond the slots is no_capacity, never a GPU that is free beside them',
    ],
    [
      '4.3',
      'reserved launches cost nothing by the hour',
      'takes a slot, needs no balance, costs nothing and is metered',
    ],
  ],
  'control-plane/rental/reservations-random.store.test.ts': [
    [
      '3.4',
      'A reservation never leaves its table of statuses, and its slots are there as long as it lives',
      'slots are as many as promised, nobody holds those of others, and no contract leaves its table',
    ],
  ],
  'contract/reservations.store.test.ts': [
    ['4.4', 'GET /v1/reservations is a plain array, empty when none', 'without a contract the list is an empty array'],
    [
      '2.7',
      'A contract shows term, renewal, commitment and utilization, and no commercial terms',
      'a contract shows its term, what it commits and how much of that is in use, and no commercial terms',
    ],
    [
      '2.7',
      'instances[] are the non-terminated instances under the contract',
      'its instances are shown until they have ended, booting while they start',
    ],
    [
      '2.2',
      'reservation_id of a reserved instance is that of the contract; the list shows booting',
      'its instances are shown until they have ended, booting while they start',
    ],
    [
      '4.4',
      'Launching against a contract uses POST /v1/instances with tier reserved',
      'a launch is refused with 403, 403, 400 and 429, and each leaves nothing behind',
    ],
  ],
  'control-plane/money/buckets.test.ts': [
    ['4.6', 'Buckets are hour, day, week and month', 'the %s of %s begins at %s and ends at %s'],
    ['4.6', 'The default bucket depends on the length of the window', 'of %d ms has rows by %s'],
    ['8', 'Usage window: 30 days when start and end are omitted', 'is the last 30 days by day where nothing is said'],
  ],
  'control-plane/money/usage.store.test.ts': [
    [
      '2.8',
      'cost_cents adds up to the charge in every bucket and grouping',
      'rows equal what the ledger has charged in every bucket and grouping, and windows cut anywhere add up',
    ],
    ['3.1', 'Dead-window billing is credited', 'a dead window that is credited is gone from usage'],
    ['2.8', 'gpu_seconds count for reserved rentals too', 'a reserved rental shows its GPU seconds at no cost'],
  ],
  'contract/usage.store.test.ts': [
    [
      '2.8',
      'A row has bucket_start, the grouping key, gpu_seconds and cost_cents',
      'rows name the instance, or the GPU type where asked; running time counts up to now',
    ],
    [
      '4.6',
      'The default window is 30 days when start and end are omitted',
      'the default window is the last 30 days, cut to the millisecond',
    ],
    [
      '4.6',
      'start is inclusive, end exclusive',
      'start is inclusive and end exclusive, in the middle of an hour and with any offset',
    ],
    [
      '4.6',
      'GET /v1/usage is a page with cursor and limit',
      'pages show one moment: nothing is skipped or repeated while instances start, run on and end',
    ],
  ],
  'control-plane/base/operations/operations.store.test.ts': [
    [
      '3.2',
      'succeeded, failed and cancelled are terminal; completed_at and error are set with them',
      'any sequence of moves stays within the table, and completed_at is set exactly at the end',
    ],
    [
      '2.6',
      'resource_id is null at creation',
      'any sequence of moves stays within the table, and completed_at is set exactly at the end',
    ],
  ],
  'contract/images.store.test.ts': [
    ['4.3', 'A malformed image reference gives 400', 'malformed: %s is 400, nothing is asked and nothing made'],
    [
      '4.3',
      'image is verified before provisioning: unknown gives 422 image_unavailable, an outage 502 registry_unreachable, nothing billed',
      'that is %s: nothing is created and nothing billed',
    ],
    [
      '2.2',
      'image is the reference pinned to its verified digest',
      'an instance shows its image pinned to the verified digest, and that is what its host pulls',
    ],
    ['4.3', 'An empty entrypoint clears it and keeps the image CMD; an empty cmd clears that', '%s is enough'],
    ['7.2', 'An image with nothing to run is image_unavailable', '%s has nothing to run'],
    [
      '4.3',
      'registry_credential_id must be for the registry of the image (422)',
      'that is unknown, of another organisation, or for another registry refuses the launch by its name',
    ],
    [
      '4.9',
      'POST /v1/registry-credentials stores a registry credential',
      'is stored sealed, listed without its password, and deleted',
    ],
  ],
  'control-plane/rental/launch/images.test.ts': [
    ['4.3', 'A localhost or private-IP registry gives 400', '%s is refused without a request'],
    ['4.3', 'An image must be for linux/amd64', 'for other platforms alone is refused, naming them'],
    ['7.2', 'registry_unreachable: a registry outage during the image check', 'that answers %d is %s'],
  ],
  'control-plane/rental/launch/registry.docker.test.ts': [
    ['4.3', 'An image must be publicly pullable unless a login is named', 'shows the image to the right login alone'],
    ['7.2', 'image_unavailable: failed registry login', 'gives hosts what they pull with'],
  ],
  'e2e/private-image.test.ts': [
    [
      '4.3',
      'A private image is launched with registry_credential_id',
      'a private image runs with a stored login, pinned to its digest, and no file has the password',
    ],
  ],
  'contract/operations.store.test.ts': [
    [
      '2.6',
      'A create carries the operation id in Operation-Id; resource_id is null',
      'a create answers 202 with the operation, pending and without a resource, and its id in the header',
    ],
    [
      '3.2',
      'in_progress, then succeeded with resource_id and completed_at',
      'it succeeds with the instance as its resource once that runs, and a delete has an operation of its own',
    ],
    ['2.6', 'A failed operation has error.code and error.detail', 'one that fails says why with a code and in words'],
    [
      '3.2',
      'Any non-terminal operation may be cancelled',
      'a launch that is deleted before it runs is cancelled, without an error and with its instance',
    ],
    [
      '7.2',
      'operation_failed: all suppliers rejected the placement',
      'hosts that all reject the placement are operation_failed, with what went wrong on the last',
    ],
    [
      '4.3',
      'A pinned offering that is gone fails the launch explicitly and never places elsewhere',
      'a pinned offering that goes is offering_unavailable; one that is merely full says so, and nothing else is tried',
    ],
    ['4.5', 'GET /v1/operations/{id} of an unknown id is 404', 'an id that is none is 404'],
  ],
  'contract/webhooks.store.test.ts': [
    [
      '2.9',
      'An endpoint has id, url, event_types, enabled and created_at; its secret of 64 hexadecimal characters is shown once',
      'is made with 201 and a secret of 64 hexadecimal characters that is never shown again',
    ],
    [
      '2.9',
      'A delivery history shows success or failure, response status and an excerpt of the answer',
      'shows each attempt with its answer, and where it stands',
    ],
    [
      '4.7',
      'POST /v1/webhook-endpoints requires Idempotency-Key',
      'needs an Idempotency-Key, and an equal request makes no second one',
    ],
    ['4.7', 'url is https, event_types a subset of the four', 'is refused with the field and the rule: %j'],
    ['4.7', 'GET /v1/webhook-endpoints is a page', 'is listed in pages, newest first'],
    ['4.7', 'DELETE removes the endpoint', 'is deleted with 204, and then 404'],
    ['4.7', 'GET /v1/webhook-endpoints/{id}/deliveries is a page', 'is a page, newest first'],
    [
      '6.2',
      'An endpoint stands at a public address',
      'a name that leads inside is not called, and the history says so without naming the address',
    ],
    [
      '6.3',
      'A receiver verifies the signature over the raw body',
      'a receiver that knows only the specification verifies what arrives',
    ],
    [
      '6.4',
      'A delivery can be retried by hand',
      'is one more attempt of the same delivery with the same event id, also after it was given up',
    ],
  ],
  'control-plane/rental/webhooks/courier.store.test.ts': [
    ['6.1', 'Four lifecycle events are sent and no others', 'holds the four public events and no others'],
    [
      '6.1',
      'An endpoint gets the types that it subscribed to',
      'has a row for each endpoint that wants the type, and none for another organisation',
    ],
    [
      '6.2',
      'One POST of one JSON event with Svc-Signature, Svc-Event-Id and Content-Type, answered within 10 seconds',
      'carries the event, its id and a signature that the specification verifies, within its time limits',
    ],
    [
      '6.2',
      'data.instance is the instance at the event',
      'freezes the body: what is sent later is the instance as it was then',
    ],
    ['6.2', 'Any status but 2xx is a failure', 'fails by any answer but 2xx, redirects too, and its record says why'],
    [
      '6.2',
      'Svc-Event-Id is stable over retries',
      'is repeated with the same id and body, and a fresh time, after 30 s, 5 min, 30 min and 2 h',
    ],
  ],
  'control-plane/rental/webhooks/crash.test.ts': [
    [
      '6.4',
      'A delivery is retried until it succeeds or is dead, whatever ends our process',
      'nothing is lost or reordered for a healthy endpoint over kill -9, while others hang and refuse',
    ],
  ],
  'control-plane/rental/webhooks/schedule.test.ts': [
    [
      '6.4',
      '5 attempts, 30 seconds, 5 minutes, 30 minutes and 2 hours apart, then dead_lettered',
      'is tried again after 30 s, 5 min, 30 min and 2 h, and given up after the fifth attempt',
    ],
    [
      '6.4',
      'A sixth attempt 12 hours later where it is configured',
      'has a sixth attempt after 12 h where the operator allows it',
    ],
    [
      '6.4',
      'The attempts of a delivery span a day at most',
      'is given up where its next attempt would be a day after the event',
    ],
  ],
  'control-plane/base/outbound/outbound.test.ts': [
    [
      '8',
      'Webhook reply deadline: 10 seconds',
      'timeout: a status line that does not come, counted from the request being sent',
    ],
    [
      '6.2',
      'A further limit of 30 seconds holds for the whole attempt',
      'timeout: a body that does not end; the status line in time does not help',
    ],
  ],
  'control-plane/rental/webhooks/signature.test.ts': [
    [
      '6.3',
      't=<unix_seconds>,v1=<hex>: HMAC-SHA256 over <t>.<raw body>',
      'the published vector holds, and the document of the API has it',
    ],
    ['8', 'A signature is fresh for 5 minutes', 'takes what is signed, up to 300 seconds away in either direction'],
  ],
  'contract/coverage.test.ts': [
    [
      '5',
      'A missing or invalid key receives 401',
      '%s is 401 without a key, and with one that is unknown, revoked or expired',
    ],
    [
      '5',
      'A key that lacks the scope receives 403',
      '%s is 403 with every scope but its own, and names the one that is missing',
    ],
    [
      '7.2',
      'not_found: a missing resource, also where it is another organisation that has it',
      '%s is 404 for a stranger, as if there were nothing, and works for the owner',
    ],
    [
      '2.6',
      'An operation is visible only to the key that created it',
      'an operation is visible only to the key that created it, not to others of the organisation',
    ],
  ],
  'contract/openapi.test.ts': [
    ['9', 'All endpoints live under /v1', 'is OpenAPI 3.1 with the required members'],
    [
      '7.2',
      'Every code is documented with its status',
      'lists every error code of a route under its status, with Retry-After where waiting helps',
    ],
  ],
  'contract/requests.store.test.ts': [
    [
      '7.2',
      'Whatever breaks a bound is refused, and the field is named',
      '%s: one that the document forbids is refused, and the field is named',
    ],
    ['7.3', 'No request makes an internal error', '%s: none that the document allows is an error of ours'],
  ],
  'contract/launch-once.store.test.ts': [
    [
      '8',
      'Equal launches at the same time are one launch with one answer',
      'fifty equal launches at once are one launch, and are answered alike',
    ],
  ],
  'contract/cursors.store.test.ts': [
    [
      '2.1',
      'Every list holds still between its pages',
      '%s skips and repeats nothing while entries are made and deleted between its pages',
    ],
  ],
  'control-plane/rental/instances-random.store.test.ts': [
    [
      '3.1',
      'An instance never leaves its table of statuses, and is charged exactly while it runs',
      'no status leaves its table, no GPU is held twice, no charge beside running, no event twice, nothing is forgotten',
    ],
    [
      '6.1',
      'Each of the four public events fires at most once for an instance',
      'no status leaves its table, no GPU is held twice, no charge beside running, no event twice, nothing is forgotten',
    ],
  ],
};

export const SPEC_ROWS: readonly SpecRow[] = Object.entries({ ...ROWS, ...MENU_ROWS }).flatMap(([file, rows]) =>
  rows.map(([section, rule, test]) => ({ section, rule, file, test })),
);
