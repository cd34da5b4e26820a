// Specification 3. States and transitions: its rules, in the order of its sentences, and their tests.
import type { RowsBySection } from '../spec-rows.ts';

export const STATES_ROWS: RowsBySection = {
  '3.1': [
    [
      'allocating while GPUs are acquired, then starting: a host has taken it',
      'control-plane/rental/launch.store.test.ts',
      'runs once SSH works, bills from then to the delete, and frees the GPU when the host lets go',
    ],
    [
      'starting goes to running once it has booted and SSH is live: instance.running, ready_at',
      'contract/instance-life.store.test.ts',
      'has exactly the fields of its station, from the request through an outage to its end',
    ],
    [
      'A container that is up but has no SSH is not running',
      'control-plane/rental/launch.store.test.ts',
      'runs once SSH works, bills from then to the delete, and frees the GPU when the host lets go',
    ],
    [
      'A provisioning that fails goes to error: instance.failed, status_reason',
      'contract/instance-life.store.test.ts',
      'of provisioning that fails is error: instance.failed, with the reason of the operation, and nothing is billed',
    ],
    [
      'A host that fails is tried elsewhere first, never above the first price',
      'control-plane/rental/launch.store.test.ts',
      'hands the launch to another one, never above the first price',
    ],
    [
      'A container that is gone before it runs is started elsewhere at once',
      'control-plane/rental/plan.test.ts',
      'goes elsewhere at once where its container is %s before it runs',
    ],
    [
      'A host that does not answer is given up after a minute, and the next one has a minute too',
      'control-plane/rental/launch.store.test.ts',
      'to acknowledge the launch is given up after a minute, and so is each one after it',
    ],
    [
      'A rental that fails for good goes to error: instance.failed, status_reason',
      'contract/instance-life.store.test.ts',
      'of a rental whose container fails is error: instance.failed, with what the host says',
    ],
    [
      'DELETE of a running instance ends in terminated: billing stops, instance.terminated',
      'contract/instance-life.store.test.ts',
      'by a DELETE stops billing with the request, however long the host takes',
    ],
    [
      'DELETE passes through stopping, for five minutes at most',
      'control-plane/rental/launch.store.test.ts',
      'whose host never answers ends after five minutes',
    ],
    [
      'DELETE before it runs terminates at once, unbilled',
      'control-plane/rental/launch.store.test.ts',
      'while starting cancels the launch unbilled',
    ],
    [
      'A runtime limit ends a rental like a DELETE; status_reason records it, auto_terminate_hours stays, auto_terminate_at goes',
      'contract/launch.store.test.ts',
      'counts from running, shows its end, and ends the rental like a DELETE with the limit as its reason',
    ],
    [
      'A runtime limit ends a rental that is unreachable too',
      'control-plane/rental/plan.test.ts',
      'ends a rental that is %s at that very moment, not before',
    ],
    [
      'A confirmed outage goes to unreachable, unreachable_since set, the dead window credited',
      'control-plane/rental/outage.store.test.ts',
      'of a silent host is confirmed after twenty seconds without life, and credited from the last proof of life',
    ],
    [
      'A dead window that is credited is in no usage row',
      'control-plane/money/usage.store.test.ts',
      'time that was credited as dead does not appear in usage',
    ],
    [
      'unreachable goes back to running by itself, unreachable_since cleared',
      'contract/instance-life.store.test.ts',
      'has exactly the fields of its station, from the request through an outage to its end',
    ],
    [
      'unreachable goes to error when its grace window lapses',
      'contract/instance-life.store.test.ts',
      'of an outage that outlasts its grace is error: instance.failed, and unreachable_since is gone',
    ],
    [
      "A stop from the supplier's side goes to stopped, which is final",
      'contract/instance-life.store.test.ts',
      "from the supplier's side is stopped: instance.terminated, billing ends, and a DELETE finds nothing (%s)",
    ],
    [
      'An instance never leaves its table of statuses, and is charged exactly while it runs',
      'control-plane/rental/instances-random.store.test.ts',
      'no status leaves its table, no GPU is held twice, no charge beside running, no event twice, nothing is forgotten',
    ],
  ],
  '3.2': [
    [
      'An accepted request makes an operation that is pending',
      'contract/operations.store.test.ts',
      'a create answers 202 with the operation, pending and without a resource, and its id in the header',
    ],
    [
      'No operation leaves its table or is forgotten, whatever kinds of launches meet, over restarts',
      'control-plane/rental/instances-random.store.test.ts',
      'no status leaves its table, no GPU is held twice, no charge beside running, no event twice, nothing is forgotten',
    ],
    [
      'pending goes to in_progress when work starts, and resource_id populates',
      'contract/operations.store.test.ts',
      'it succeeds with the instance as its resource once that runs, and a delete has an operation of its own',
    ],
    [
      'in_progress goes to succeeded when the resource reaches its target state; completed_at set',
      'contract/operations.store.test.ts',
      'it succeeds with the instance as its resource once that runs, and a delete has an operation of its own',
    ],
    [
      'in_progress goes to failed when execution fails; error set',
      'contract/operations.store.test.ts',
      'one that fails says why with a code and in words',
    ],
    [
      'Any non-terminal operation goes to cancelled when its caller aborts it',
      'contract/operations.store.test.ts',
      'a launch that is deleted before it runs is cancelled, without an error and with its instance',
    ],
    [
      'succeeded, failed and cancelled are terminal',
      'control-plane/base/operations/operations.store.test.ts',
      'any sequence of moves stays within the table, and completed_at is set exactly at the end',
    ],
  ],
  '3.4': [
    [
      'Reservation status: pending, active, expired',
      'control-plane/rental/reservations.store.test.ts',
      'begins and ends by itself, and its end puts the GPUs on offer again',
    ],
    [
      'Reservation status: suspended',
      'control-plane/rental/reservations.store.test.ts',
      'is suspended and resumed, before its term too, and keeps its slots meanwhile',
    ],
    ['Reservation status: cancelled', 'control-plane/rental/reservations.store.test.ts', 'is cancelled for good'],
    [
      'Only active accepts new reserved launches: not pending, suspended or expired',
      'control-plane/rental/reserved-launches.store.test.ts',
      'with a contract that is pending, suspended or expired is contract_inactive, at both edges of the term',
    ],
    [
      'Only active accepts new reserved launches: not cancelled',
      'contract/reservations.store.test.ts',
      'a contract that is cancelled and still listed is one that is not active',
    ],
    [
      'A reservation never leaves its table of statuses, and its slots are there as long as it lives',
      'control-plane/rental/reservations-random.store.test.ts',
      'slots are as many as promised, nobody holds those of others, and no contract leaves its table',
    ],
    [
      'Community supplier status: active, suspended',
      'contract/community.store.test.ts',
      'an organisation is no supplier until it says so, and active from then on',
    ],
    [
      'Community machine status: pending_verification, then listed',
      'contract/community.store.test.ts',
      'shows what was declared and how it stands, from its registration on',
    ],
    [
      'Community machine status: suspended, by the operator, whatever its supplier does',
      'control-plane/fleet/listing.store.test.ts',
      'outlasts a delisting: a machine that was suspended, delisted and listed again waits for approval',
    ],
    [
      'Delisting a machine that is occupied gives draining: the existing rental keeps running and is never killed',
      'contract/community.store.test.ts',
      'an occupied machine drains: its rental keeps running, and the end of that delists it',
    ],
    [
      'Delisting an idle machine gives delisted at once and it leaves supply immediately',
      'contract/community.store.test.ts',
      'an idle machine is delisted at once and leaves supply; again is the same; listed again it is back',
    ],
    [
      'A machine never leaves its table of statuses, and drains exactly as long as somebody holds a GPU of it',
      'control-plane/rental/instances-random.store.test.ts',
      'no status leaves its table, no GPU is held twice, no charge beside running, no event twice, nothing is forgotten',
    ],
    [
      'After the final failed attempt a webhook delivery is dead_lettered and no longer retried',
      'control-plane/rental/webhooks/courier.store.test.ts',
      'is repeated with the same id and body, and a fresh time, after 30 s, 5 min, 30 min and 2 h',
    ],
    [
      'A delivery that is dead is shown as dead_lettered',
      'contract/webhooks.store.test.ts',
      'is one more attempt of the same delivery with the same event id, also after it was given up',
    ],
  ],
};
