// Specification 3. States and transitions: its rules, in the order of its sentences, and their tests.
import type { RowsBySection } from '../spec-rows.ts';

export const STATES_ROWS: RowsBySection = {
  '3.1': [
    [
      'A runtime limit ends a rental like a DELETE; status_reason records it, auto_terminate_hours stays, auto_terminate_at goes',
      'contract/launch.store.test.ts',
      'counts from running, shows its end, and ends the rental like a DELETE with the limit as its reason',
    ],
    [
      'Dead-window billing is credited',
      'control-plane/money/usage.store.test.ts',
      'a dead window that is credited is gone from usage',
    ],
    [
      'An instance never leaves its table of statuses, and is charged exactly while it runs',
      'control-plane/rental/instances-random.store.test.ts',
      'no status leaves its table, no GPU is held twice, no charge beside running, no event twice, nothing is forgotten',
    ],
  ],
  '3.2': [
    [
      'succeeded, failed and cancelled are terminal; completed_at and error are set with them',
      'control-plane/base/operations/operations.store.test.ts',
      'any sequence of moves stays within the table, and completed_at is set exactly at the end',
    ],
    [
      'in_progress, then succeeded with resource_id and completed_at',
      'contract/operations.store.test.ts',
      'it succeeds with the instance as its resource once that runs, and a delete has an operation of its own',
    ],
    [
      'Any non-terminal operation may be cancelled',
      'contract/operations.store.test.ts',
      'a launch that is deleted before it runs is cancelled, without an error and with its instance',
    ],
  ],
  '3.4': [
    [
      'Reservation status: pending, active, suspended, expired, cancelled',
      'control-plane/rental/reservations.store.test.ts',
      'begins and ends by itself, and its end puts the GPUs on offer again',
    ],
    [
      'Only active accepts new reserved launches',
      'control-plane/rental/reservations.store.test.ts',
      'with a contract that is pending, suspended or expired is contract_inactive, at both edges of the term',
    ],
    [
      'A reservation never leaves its table of statuses, and its slots are there as long as it lives',
      'control-plane/rental/reservations-random.store.test.ts',
      'slots are as many as promised, nobody holds those of others, and no contract leaves its table',
    ],
  ],
};
