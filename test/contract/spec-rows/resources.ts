// Specification 2. Resources and their fields, but for the instance: its rules, in the order of its sentences, and their tests.
import type { RowsBySection } from '../spec-rows.ts';

export const RESOURCES_ROWS: RowsBySection = {
  '2.1': [
    [
      'A page is data and next_cursor, which is null when no further page exists',
      'control-plane/base/http/cursors.test.ts',
      'an exactly full last page has no next cursor',
    ],
    ['limit: default 50, minimum 1, maximum 200', 'control-plane/base/http/cursors.test.ts', '%s is %d'],
    [
      'A walk by cursor shows every entry once, in order',
      'control-plane/base/http/cursors.test.ts',
      'of %d entries show every row once, in order',
    ],
    [
      'Idempotency-Key has at most 255 characters',
      'control-plane/base/http/idempotency.store.test.ts',
      'has 1 to 255 characters',
    ],
    [
      'Pages hold still while rows are inserted',
      'contract/catalog.store.test.ts',
      'a walk in pages never skips or repeats a row, whatever is listed meanwhile',
    ],
    [
      'Every list holds still between its pages',
      'contract/cursors.store.test.ts',
      '%s skips and repeats nothing while entries are made and deleted between its pages',
    ],
    [
      'No list with a cursor is left out of that',
      'contract/cursors.store.test.ts',
      'every route that takes a cursor is here',
    ],
  ],
  '2.3': [
    [
      'GPU types show the smallest VRAM on offer',
      'contract/catalog.store.test.ts',
      'a model that spans variants shows its smallest VRAM on offer',
    ],
    [
      'cpu_cores, ram_gb and storage_gb are representative',
      'contract/catalog.store.test.ts',
      'show the smallest host that is on offer',
    ],
    [
      '0 means unreported',
      'contract/catalog.store.test.ts',
      '0 is what nobody reports; a host that is silent does not hide what the others say',
    ],
  ],
  '2.4': [
    [
      'A pricing row tells disk_price_per_gb_hour, storage_gb and disk_configurable',
      'contract/launch.store.test.ts',
      'is told in the catalog',
    ],
    [
      'A pricing row carries the exact values of one offering and its live availability',
      'contract/catalog.store.test.ts',
      'has one row for each offering, with the price of one GPU and what is free now',
    ],
    [
      'tier=spot returns no offerings',
      'contract/catalog.store.test.ts',
      'tier=spot gives no offerings, on_demand is the default, and another tier is refused',
    ],
  ],
  '2.5': [
    [
      'An SSH key has id, name, fingerprint and created_at',
      'control-plane/base/accounts/ssh-keys.store.test.ts',
      'answers 201 with the fingerprint, and again with the same bytes',
    ],
    [
      'The fingerprint has the SHA256 form',
      'control-plane/base/accounts/ssh-keygen.test.ts',
      'a new %s key of %s bits has the fingerprint that ssh-keygen -lf prints',
    ],
  ],
  '2.6': [
    [
      'resource_id is null at creation',
      'control-plane/base/operations/operations.store.test.ts',
      'any sequence of moves stays within the table, and completed_at is set exactly at the end',
    ],
    [
      'A create carries the operation id in Operation-Id; resource_id is null',
      'contract/operations.store.test.ts',
      'a create answers 202 with the operation, pending and without a resource, and its id in the header',
    ],
    [
      'A failed operation has error.code and error.detail',
      'contract/operations.store.test.ts',
      'one that fails says why with a code and in words',
    ],
    [
      'An operation is visible only to the key that created it',
      'contract/coverage.test.ts',
      'an operation is visible only to the key that created it, not to others of the organisation',
    ],
  ],
  '2.7': [
    [
      'starts_at is the term start, ends_at its end, exclusive',
      'control-plane/rental/reservation-term.test.ts',
      'is active from starts_at on, and no longer at ends_at: the end is exclusive',
    ],
    [
      'renewal.expiring_soon is true when days_until_end is 14 or less',
      'control-plane/rental/reservation-term.test.ts',
      'the end is soon from 14 days before it: at 14 days, not a moment earlier, and never less than 0 days',
    ],
    [
      'renewal.mode auto_renew, manual or none',
      'control-plane/rental/reservation-term.test.ts',
      'with auto_renew is followed by a term of the same length: %s',
    ],
    [
      'reservation_id is a ULID',
      'control-plane/rental/reservations.store.test.ts',
      'sets its GPUs aside at once, on as few machines as possible, also where it begins later',
    ],
    [
      'A contract shows term, renewal, commitment and utilization, and no commercial terms',
      'contract/reservations.store.test.ts',
      'a contract shows its term, what it commits and how much of that is in use, and no commercial terms',
    ],
    [
      'instances[] are the non-terminated instances under the contract',
      'contract/reservations.store.test.ts',
      'its instances are shown until they have ended, booting while they start',
    ],
  ],
  '2.8': [
    [
      'cost_cents adds up to the charge in every bucket and grouping',
      'control-plane/money/usage.store.test.ts',
      'rows equal what the ledger has charged in every bucket and grouping, and windows cut anywhere add up',
    ],
    [
      'gpu_seconds count for reserved rentals too',
      'control-plane/money/usage.store.test.ts',
      'a reserved rental shows its GPU seconds at no cost',
    ],
    [
      'A row has bucket_start, the grouping key, gpu_seconds and cost_cents',
      'contract/usage.store.test.ts',
      'rows name the instance, or the GPU type where asked; running time counts up to now',
    ],
  ],
  '2.9': [
    [
      'An endpoint has id, url, event_types, enabled and created_at; its secret of 64 hexadecimal characters is shown once',
      'contract/webhooks.store.test.ts',
      'is made with 201 and a secret of 64 hexadecimal characters that is never shown again',
    ],
    [
      'A delivery history shows success or failure, response status and an excerpt of the answer',
      'contract/webhooks.store.test.ts',
      'shows each attempt with its answer, and where it stands',
    ],
  ],
  '2.16': [
    [
      'Environments have frameworks, versions, includes by CUDA variant (and base), and vm_images',
      'contract/environments.store.test.ts',
      'the list is open to everybody, and has frameworks, versions, contents and VM images as specified',
    ],
    [
      'The default version of a framework is taken where none is named',
      'contract/environments.store.test.ts',
      'takes the version that is named, else the default one',
    ],
    [
      'At most one version of a framework is the default',
      'control-plane/rental/launch/environments.test.ts',
      'with %s is refused with its line',
    ],
    [
      'Frameworks are usable as certified:<framework>, versions after the @',
      'control-plane/rental/launch/environments.test.ts',
      'each framework and version that is shown leads to an image with a fixed tag',
    ],
  ],
};
