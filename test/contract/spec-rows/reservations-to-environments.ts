// Specification 2.7 Reservation contract to 2.16 Launch environments: its rules, in the order of its sentences, and their tests.
import type { RowsBySection } from '../spec-rows.ts';

export const RESERVATIONS_TO_ENVIRONMENTS_ROWS: RowsBySection = {
  '2.7': [
    [
      'reservation_id is a ULID',
      'control-plane/rental/reservations.store.test.ts',
      'that begins within the lead time sets its GPUs aside at once, on as few machines as possible',
    ],
    [
      'title, starts_at, ends_at, status, renewal, commitment, utilization and instances are there',
      'contract/reservations.store.test.ts',
      'a contract shows its term, what it commits and how much of that is in use, and no commercial terms',
    ],
    [
      'starts_at is the term start, ends_at its end, exclusive',
      'control-plane/rental/reservation-term.test.ts',
      'is active from starts_at on, and no longer at ends_at: the end is exclusive',
    ],
    [
      'starts_at and ends_at are those of the running term after a renewal',
      'control-plane/rental/reservations.store.test.ts',
      'with auto_renew goes on with a term of the same length and keeps its slots',
    ],
    [
      'status is pending, active or cancelled',
      'contract/reservations.store.test.ts',
      'contracts are listed newest first with how each is renewed, also those that have not begun or are over',
    ],
    [
      'status is suspended',
      'control-plane/rental/reservations.store.test.ts',
      'is suspended and resumed, before its term too, and keeps its slots meanwhile',
    ],
    [
      'status is expired',
      'control-plane/rental/reservations.store.test.ts',
      'begins and ends by itself, and its end puts the GPUs on offer again',
    ],
    [
      'renewal.mode is auto_renew, manual or none',
      'contract/reservations.store.test.ts',
      'contracts are listed newest first with how each is renewed, also those that have not begun or are over',
    ],
    [
      'renewal.mode auto_renew: a term of the same length follows',
      'control-plane/rental/reservation-term.test.ts',
      'with auto_renew is followed by a term of the same length: %s',
    ],
    [
      'renewal.days_until_end counts to ends_at; expiring_soon is true when it is 14 or less',
      'contract/reservations.store.test.ts',
      'the end of a contract is soon from 14 days before it',
    ],
    [
      'renewal.days_until_end counts begun days, and is never negative',
      'control-plane/rental/reservation-term.test.ts',
      'the end is soon from 14 days before it: at 14 days, not a moment earlier, and never less than 0 days',
    ],
    [
      'commitment[] has gpu_type, gpu_count and region',
      'contract/reservations.store.test.ts',
      'a contract shows its term, what it commits and how much of that is in use, and no commercial terms',
    ],
    [
      'utilization: allocated and committed GPUs, and their quotient from 0.0 to 1.0',
      'contract/reservations.store.test.ts',
      'a contract shows its term, what it commits and how much of that is in use, and no commercial terms',
    ],
    [
      'instances[] are non-terminated: one that failed is among them until it is deleted',
      'contract/reservations.store.test.ts',
      'an instance that failed is shown as error until it is deleted, and takes no slot',
    ],
    [
      'instances[] are the non-terminated instances with instance_id, hostname, gpu_count and status',
      'contract/reservations.store.test.ts',
      'its instances are shown until they have ended, booting while they start',
    ],
    [
      'What outlives its contract is still shown and counted',
      'control-plane/rental/reservations.store.test.ts',
      'goes on, and its GPUs come free at their release: it %s',
    ],
    [
      'Commercial terms are omitted',
      'contract/reservations.store.test.ts',
      'a contract shows its term, what it commits and how much of that is in use, and no commercial terms',
    ],
  ],
  '2.8': [
    [
      'The grouping key is gpu_type or instance_id',
      'contract/usage.store.test.ts',
      'rows name the instance, or the GPU type where asked; running time counts up to now',
    ],
    [
      'bucket_start is the start of the time bucket',
      'control-plane/money/buckets.test.ts',
      'the %s of %s begins at %s and ends at %s',
    ],
    [
      'A row has bucket_start, the grouping key, gpu_seconds and cost_cents',
      'contract/usage.store.test.ts',
      'rows name the instance, or the GPU type where asked; running time counts up to now',
    ],
    [
      'gpu_seconds count for reserved rentals too',
      'control-plane/money/usage.store.test.ts',
      'a launch under a contract shows its GPU seconds without cost',
    ],
    [
      'cost_cents adds up to the charge in every bucket and grouping',
      'control-plane/money/usage.store.test.ts',
      'rows equal the charges in the ledger in every bucket and grouping, and windows that are cut anywhere add up',
    ],
  ],
  '2.9': [
    [
      'An endpoint has id, url, event_types, enabled and created_at',
      'contract/webhooks.store.test.ts',
      'is made with 201 and a secret of 64 hexadecimal characters that is never shown again',
    ],
    ['url is an HTTPS target', 'contract/webhooks.store.test.ts', 'is refused with the field and the rule: %j'],
    [
      'secret has 64 hexadecimal characters and is returned only in the creation response',
      'contract/webhooks.store.test.ts',
      'is made with 201 and a secret of 64 hexadecimal characters that is never shown again',
    ],
    [
      'event_types is a subset of the four event types',
      'contract/webhooks.store.test.ts',
      'is refused with the field and the rule: %j',
    ],
    [
      'enabled tells whether events are sent',
      'contract/webhooks.store.test.ts',
      'gets nothing; what waited is sent once it is enabled again',
    ],
    [
      'A delivery history shows success or failure, response status and an excerpt of the answer',
      'contract/webhooks.store.test.ts',
      'shows each attempt with its answer, and where it stands',
    ],
  ],
  '2.16': [
    [
      'frameworks, versions, includes and vm_images',
      'contract/environments.store.test.ts',
      'the list is open to everybody, and has frameworks, versions, contents and VM images as specified',
    ],
    [
      'frameworks are ids usable as certified:<framework>',
      'control-plane/rental/launch/environments.test.ts',
      'each framework and version that is shown leads to an image with a fixed tag',
    ],
    [
      'includes are told by framework, and for base, by CUDA variant',
      'control-plane/rental/launch/environments.test.ts',
      'every version has a CUDA variant whose contents are told, and no image is shown',
    ],
    [
      'FrameworkVersion: id is the token after the @, and variant the CUDA variant',
      'contract/environments.store.test.ts',
      'takes the version that is named, else the default one',
    ],
    [
      'FrameworkVersion: id, label, variant and default',
      'contract/environments.store.test.ts',
      'the list is open to everybody, and has frameworks, versions, contents and VM images as specified',
    ],
    [
      'FrameworkVersion: at most one default of a framework',
      'control-plane/rental/launch/environments.test.ts',
      'with %s is refused with its line',
    ],
    [
      'IncludeItem: name, and version, absent for unpinned components',
      'contract/environments.store.test.ts',
      'the list is open to everybody, and has frameworks, versions, contents and VM images as specified',
    ],
  ],
};
