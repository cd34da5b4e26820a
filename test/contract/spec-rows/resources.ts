// Specification 2.1 Conventions and 2.3 GPU type to 2.6 Operation: its rules, in the order of its sentences, and their tests.
import type { RowsBySection } from '../spec-rows.ts';

export const RESOURCES_ROWS: RowsBySection = {
  '2.1': [
    [
      'Inference resources use Unix-second integers, platform resources date-time strings',
      'contract/openapi.test.ts',
      'calls every time a date-time, and answers it in UTC',
    ],
    [
      'A list answers pages of data and next_cursor, and takes cursor and limit',
      'contract/openapi.test.ts',
      'gives every page the same members, and every list of pages the same cursor and limit',
    ],
    ['limit: default 50, minimum 1, maximum 200', 'control-plane/base/http/cursors.test.ts', '%s is %d'],
    [
      'A page without a limit has 50 entries',
      'contract/cursors.store.test.ts',
      'a page has 50 entries if no limit is named',
    ],
    [
      'limit below 1 or above 200 is refused',
      'contract/catalog.store.test.ts',
      '%s takes a limit from 1 to 200 and nothing unknown',
    ],
    [
      'next_cursor is null when no further page exists',
      'control-plane/base/http/cursors.test.ts',
      'an exactly full last page has no next cursor',
    ],
    [
      'A walk by cursor shows every entry once, in order',
      'control-plane/base/http/cursors.test.ts',
      'of %d entries show every row once, in order',
    ],
    [
      'Every list holds still between its pages, and what is new comes before what has been seen',
      'contract/cursors.store.test.ts',
      '%s skips and repeats nothing while entries are made and deleted between its pages',
    ],
    [
      'No list with a cursor is left out of that',
      'contract/cursors.store.test.ts',
      'every route that takes a cursor is here',
    ],
    [
      'Pages of offerings hold still while rows are inserted',
      'contract/catalog.store.test.ts',
      'a walk in pages never skips or repeats a row, whatever is listed meanwhile',
    ],
    ['A cursor belongs to its list', 'contract/catalog.store.test.ts', 'a cursor of one list is none of the other'],
    [
      'A cursor belongs to its organisation',
      'control-plane/base/accounts/ssh-keys.store.test.ts',
      'refuses the cursor of another organisation and an invented one',
    ],
    [
      'Timestamps are ISO 8601 UTC strings',
      'contract/openapi.test.ts',
      'calls every time a date-time, and answers it in UTC',
    ],
    [
      'Idempotency-Key has at most 255 characters',
      'control-plane/base/http/idempotency.store.test.ts',
      'has 1 to 255 characters',
    ],
  ],
  '2.3': [
    [
      'gpu_type is a canonical identifier, vram_gb the nameplate VRAM of one GPU',
      'control-plane/fleet/known-gpus.test.ts',
      '%s with %d MiB is a %s of %d GB',
    ],
    [
      'A model that nobody knows has a gpu_type too, made of its own name',
      'control-plane/fleet/known-gpus.test.ts',
      '%s is unknown and keeps its own name',
    ],
    [
      'vram_gb is the smallest on offer for a model that spans variants',
      'contract/catalog.store.test.ts',
      'a model that spans variants shows its smallest VRAM on offer',
    ],
    [
      'architecture, absent for a model that nobody knows',
      'contract/catalog.store.test.ts',
      'a model that nobody knows has no architecture',
    ],
    [
      'cpu_cores, ram_gb and storage_gb are representative',
      'contract/catalog.store.test.ts',
      'show the smallest host that is on offer',
    ],
    [
      'cpu_cores, ram_gb and storage_gb: 0 means unreported',
      'contract/catalog.store.test.ts',
      '0 is what nobody reports; a host that is silent does not hide what the others say',
    ],
    [
      'instance_disk_gb is the size of a launch where sizes are honoured',
      'contract/launch.store.test.ts',
      'is told in the catalog',
    ],
    [
      'instance_disk_gb is 0 if the size is unknown',
      'contract/catalog.store.test.ts',
      'show the smallest host that is on offer',
    ],
    [
      'disk_configurable is true when one offering of several accepts a custom disk_gb',
      'contract/launch.store.test.ts',
      'is told in the catalog',
    ],
    [
      'disk_configurable is false if no offering does',
      'contract/catalog.store.test.ts',
      'show the smallest host that is on offer',
    ],
    [
      'Exact values of each offering are carried by the pricing rows',
      'contract/launch.store.test.ts',
      'is told in the catalog',
    ],
  ],
  '2.4': [
    [
      'A pricing row has gpu_type, region, tier on_demand, price_per_hour, available and offering_id',
      'contract/catalog.store.test.ts',
      'has one row for each offering, with the price of one GPU and what is free now',
    ],
    [
      'tier=spot returns no offerings',
      'contract/catalog.store.test.ts',
      'tier=spot gives no offerings, on_demand is the default, and another tier is refused',
    ],
    [
      'price_per_hour is that of one GPU, exactly',
      'contract/catalog.store.test.ts',
      'has one row for each offering, with the price of one GPU and what is free now',
    ],
    [
      'available is the live count: held GPUs do not count, and a host that is away has no row',
      'contract/catalog.store.test.ts',
      'has one row for each offering, with the price of one GPU and what is free now',
    ],
    [
      'GPUs that a foreign process uses are not listed',
      'control-plane/fleet/supply.store.test.ts',
      'excludes GPUs that a foreign process uses or that the host reports as lost',
    ],
    [
      'A machine is listed while it is approved and online',
      'control-plane/fleet/supply.store.test.ts',
      'appears with approval and link, and disappears if either is gone',
    ],
    [
      'offering_id pins a launch to the row',
      'contract/catalog.store.test.ts',
      'the offering_id of a row pins a launch to it, at its rate',
    ],
    [
      'A pricing row tells disk_price_per_gb_hour, storage_gb and disk_configurable',
      'contract/launch.store.test.ts',
      'is told in the catalog',
    ],
  ],
  '2.5': [
    [
      'An SSH key has id, name, fingerprint and created_at',
      'control-plane/base/accounts/ssh-keys.store.test.ts',
      'answers 201 with the fingerprint, and a repeat gets the same bytes',
    ],
    [
      'The fingerprint has the SHA256 form',
      'control-plane/base/accounts/ssh-keygen.test.ts',
      'a new %s key of %s bits has the fingerprint that ssh-keygen -lf prints',
    ],
  ],
  '2.6': [
    [
      'operation_id is a UUID',
      'contract/operations.store.test.ts',
      'a create answers 202 with the operation, pending and without a resource, and its id in the header',
    ],
    [
      'kind is instance.create for a creation',
      'contract/operations.store.test.ts',
      'a create answers 202 with the operation, pending and without a resource, and its id in the header',
    ],
    [
      'kind is instance.delete for a deletion',
      'contract/operations.store.test.ts',
      'it succeeds with the instance as its resource once that runs, and a delete has an operation of its own',
    ],
    [
      'state is pending, in_progress or succeeded',
      'contract/operations.store.test.ts',
      'it succeeds with the instance as its resource once that runs, and a delete has an operation of its own',
    ],
    ['state is failed', 'contract/operations.store.test.ts', 'one that fails says why with a code and in words'],
    [
      'state is cancelled',
      'contract/operations.store.test.ts',
      'a launch that is deleted before it runs is cancelled, without an error and with its instance',
    ],
    [
      'resource_id is null at creation',
      'contract/operations.store.test.ts',
      'a create answers 202 with the operation, pending and without a resource, and its id in the header',
    ],
    [
      'resource_id is there once in_progress, and when succeeded',
      'contract/operations.store.test.ts',
      'it succeeds with the instance as its resource once that runs, and a delete has an operation of its own',
    ],
    [
      'resource_id of a deletion is null while pending too',
      'contract/operations.store.test.ts',
      'it succeeds with the instance as its resource once that runs, and a delete has an operation of its own',
    ],
    [
      'created_at stays, updated_at is the last change',
      'contract/operations.store.test.ts',
      'it succeeds with the instance as its resource once that runs, and a delete has an operation of its own',
    ],
    [
      'completed_at is null until a final state',
      'control-plane/base/operations/operations.store.test.ts',
      'any sequence of moves stays within the table, and completed_at is set exactly at the end',
    ],
    [
      'A failed operation has error.code and error.detail',
      'contract/operations.store.test.ts',
      'one that fails says why with a code and in words',
    ],
    [
      'A placement that all hosts reject fails with operation_failed',
      'contract/operations.store.test.ts',
      'hosts that all reject the placement are operation_failed, with what went wrong on the last',
    ],
    [
      'error is absent from a success',
      'contract/operations.store.test.ts',
      'it succeeds with the instance as its resource once that runs, and a delete has an operation of its own',
    ],
    [
      'error is absent from a cancellation',
      'contract/operations.store.test.ts',
      'a launch that is deleted before it runs is cancelled, without an error and with its instance',
    ],
    [
      'The response to a create carries the operation id in Operation-Id',
      'contract/operations.store.test.ts',
      'a create answers 202 with the operation, pending and without a resource, and its id in the header',
    ],
    [
      'The response to a delete carries the operation id in Operation-Id',
      'contract/operations.store.test.ts',
      'it succeeds with the instance as its resource once that runs, and a delete has an operation of its own',
    ],
    [
      'An operation is visible only to the key that created it; other keys get 404 not_found',
      'contract/coverage.test.ts',
      'an operation is visible only to the key that created it, not to others of the organisation',
    ],
  ],
};
