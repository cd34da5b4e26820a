// Specification 2.2 Instance: its rules, in the order of its sentences, and their tests.
import type { RowsBySection } from '../spec-rows.ts';

export const INSTANCE_FIELDS_ROWS: RowsBySection = {
  '2.2': [
    [
      'id, status, gpu_type, gpu_count, region, tier, price_per_hour and created_at are there at every station',
      'contract/instance-life.store.test.ts',
      'has exactly the fields of its station, from the request through an outage to its end',
    ],
    [
      'name, ready_at, terminated_at and reservation_id are there at every station, a value or null',
      'contract/instance-life.store.test.ts',
      'has exactly the fields of its station, from the request through an outage to its end',
    ],
    [
      'status goes from allocating through starting, running, unreachable and stopping to terminated',
      'contract/instance-life.store.test.ts',
      'has exactly the fields of its station, from the request through an outage to its end',
    ],
    [
      "status is stopped where the supplier's side ended it",
      'contract/instance-life.store.test.ts',
      "from the supplier's side is stopped: instance.terminated, billing ends, and a DELETE finds nothing (%s)",
    ],
    [
      'status is error where provisioning failed',
      'contract/instance-life.store.test.ts',
      'of provisioning that fails is error: instance.failed, with the reason of the operation, and nothing is billed',
    ],
    [
      'A reservation listing shows booting for an instance that starts',
      'contract/reservations.store.test.ts',
      'its instances are shown until they have ended, booting while they start',
    ],
    ['gpu_count is 1 to 8', 'contract/limits.store.test.ts', '%s: the last allowed values are honoured'],
    [
      'tier is on_demand',
      'contract/instance-life.store.test.ts',
      'has exactly the fields of its station, from the request through an outage to its end',
    ],
    [
      'tier is spot, where spot was asked for',
      'contract/environments.store.test.ts',
      'spot without an image is accepted, and its operation says that spot has no capacity',
    ],
    [
      'tier is reserved under a contract',
      'contract/reservations.store.test.ts',
      'its instances are shown until they have ended, booting while they start',
    ],
    [
      'price_per_hour is the rate of the whole instance, covering all GPUs',
      'contract/instance-life.store.test.ts',
      'has exactly the fields of its station, from the request through an outage to its end',
    ],
    [
      'name is that of the launch, of a later change, or null',
      'contract/instance-life.store.test.ts',
      'the change of its name answers the instance as it is then; null takes the name away',
    ],
    [
      'ready_at is null before it runs, and from then on the time when it first ran',
      'contract/instance-life.store.test.ts',
      'has exactly the fields of its station, from the request through an outage to its end',
    ],
    [
      'ready_at stays over an outage',
      'contract/instance-life.store.test.ts',
      'has exactly the fields of its station, from the request through an outage to its end',
    ],
    [
      'terminated_at is null until it ends',
      'contract/instance-life.store.test.ts',
      'has exactly the fields of its station, from the request through an outage to its end',
    ],
    [
      'disk_gb is present only if the placed capacity honours a configured size; the default is 100 GB',
      'contract/launch.store.test.ts',
      'left out: 100 GB where sizes are honoured, absent elsewhere, and no host is passed over',
    ],
    [
      'image is the reference pinned to its verified digest',
      'contract/images.store.test.ts',
      'an instance shows its image pinned to the verified digest, and that is what its host pulls',
    ],
    [
      'image is shown for custom-image launches only: certified launches never expose theirs',
      'contract/environments.store.test.ts',
      'of %s runs its image, which is not shown, and stays up',
    ],
    [
      'image is shown for custom-image launches only: template launches never expose theirs',
      'contract/templates.store.test.ts',
      'runs its image with its command, its variables and its port, and does not show the image',
    ],
    [
      'No failure of a template launch names its image',
      'contract/templates.store.test.ts',
      'that no host can pull fails elsewhere and at last without naming the image',
    ],
    [
      'reservation_id is null for on_demand',
      'contract/instance-life.store.test.ts',
      'has exactly the fields of its station, from the request through an outage to its end',
    ],
    [
      'reservation_id is null for spot',
      'contract/environments.store.test.ts',
      'spot without an image is accepted, and its operation says that spot has no capacity',
    ],
    [
      'reservation_id of a reserved instance is that of GET /v1/reservations',
      'contract/reservations.store.test.ts',
      'its instances are shown until they have ended, booting while they start',
    ],
    [
      'auto_terminate_hours is that of the launch and stays after the limit has fired',
      'contract/launch.store.test.ts',
      'counts from running, shows its end, and ends the rental like a DELETE with the limit as its reason',
    ],
    [
      'auto_terminate_hours is absent without a limit',
      'contract/launch.store.test.ts',
      'left out is absent, and nothing ends by itself',
    ],
    [
      'auto_terminate_at is ready_at + auto_terminate_hours, absent before it runs',
      'contract/instance-life.store.test.ts',
      'auto_terminate_at is ready_at and the limit: also during an outage, and not before it runs',
    ],
    [
      'auto_terminate_at is absent without a limit',
      'contract/launch.store.test.ts',
      'left out is absent, and nothing ends by itself',
    ],
    [
      'auto_terminate_at stays after a DELETE: the platform has not begun to act on an elapsed limit',
      'contract/instance-life.store.test.ts',
      'auto_terminate_at stays after a DELETE: only the limit itself takes it away',
    ],
    [
      'region is required, also of a launch that found no place: the one asked for, or that of the cheapest offer',
      'contract/instance-life.store.test.ts',
      'a launch %s that found no place shows a region: the one asked for, else of the cheapest offer',
    ],
    [
      'auto_terminate_at is absent once an elapsed limit is acted on',
      'contract/launch.store.test.ts',
      'counts from running, shows its end, and ends the rental like a DELETE with the limit as its reason',
    ],
    [
      'status_reason is absent while there is nothing to explain',
      'contract/instance-life.store.test.ts',
      'has exactly the fields of its station, from the request through an outage to its end',
    ],
    [
      'status_reason explains a running rental whose main process is over, and no longer than that',
      'contract/instance-life.store.test.ts',
      'status_reason tells that the main process is over while the rental runs, after an outage too, until it runs again',
    ],
    [
      'status_reason explains a running rental whose GPU its host has found broken, and that the time is not charged',
      'control-plane/rental/gpu-faults.store.test.ts',
      'is not charged and its supplier not paid until it is mended; it stays running, and its customer reads why',
    ],
    [
      'status_reason says why a launch failed',
      'contract/instance-life.store.test.ts',
      'of provisioning that fails is error: instance.failed, with the reason of the operation, and nothing is billed',
    ],
    [
      'status_reason says why a rental failed',
      'contract/instance-life.store.test.ts',
      'of a rental whose container fails is error: instance.failed, with what the host says',
    ],
    [
      'status_reason says that a runtime limit was reached',
      'contract/launch.store.test.ts',
      'counts from running, shows its end, and ends the rental like a DELETE with the limit as its reason',
    ],
    [
      'last_reachable_at is the last end-to-end check, absent before the first; it stops advancing when SSH has died',
      'contract/instance-life.store.test.ts',
      'last_reachable_at advances with every good probe, and stops with the first failed one',
    ],
    [
      'unreachable_since is the start of the confirmed outage, present exactly while unreachable',
      'contract/instance-life.store.test.ts',
      'has exactly the fields of its station, from the request through an outage to its end',
    ],
    [
      'unreachable_since is gone once the outage has ended the rental',
      'contract/instance-life.store.test.ts',
      'of an outage that outlasts its grace is error: instance.failed, and unreachable_since is gone',
    ],
    [
      'connection has hostname, port and ssh_command where one can connect, and is null elsewhere',
      'contract/instance-life.store.test.ts',
      'has exactly the fields of its station, from the request through an outage to its end',
    ],
    [
      'connection.app_url is https://<id>.{app_domain} for a custom image with a primary port',
      'contract/launch.store.test.ts',
      'are reached at URLs and public ports once the instance runs',
    ],
    [
      'connection.app_url of a template instance',
      'contract/templates.store.test.ts',
      'runs its image with its command, its variables and its port, and does not show the image',
    ],
    [
      'connection.terminal_url is there on running instances, with or without an application',
      'contract/launch.store.test.ts',
      'left out leave the console, and its login',
    ],
    [
      'connection.terminal_url is there only on running instances: not while unreachable',
      'contract/instance-life.store.test.ts',
      'has exactly the fields of its station, from the request through an outage to its end',
    ],
    [
      'connection.terminal_url is a browser console that needs no SSH key',
      'e2e/console.test.ts',
      'a shell in the container, in a terminal of the size of the window',
    ],
    [
      'connection.app_user is the user of app_url and terminal_url, absent where neither is served',
      'contract/launch.store.test.ts',
      'and the console need a domain of the operator: without it there is nothing to log in to but SSH',
    ],
    [
      'connection.app_user and app_password open app_url',
      'e2e/apps.test.ts',
      'the app URL shows the page to whoever has the login',
    ],
    [
      'app_password is in no read but include=credentials, never in a list or operation',
      'contract/launch.store.test.ts',
      'have a password that only include=credentials shows, and no list, operation or event',
    ],
    [
      'Which fields there are follows from the status, whatever has happened',
      'control-plane/rental/instances-random.store.test.ts',
      'no status leaves its table, no GPU is held twice, no charge beside running, no event twice, nothing is forgotten',
    ],
    [
      'The confirmed dead window is credited back by itself',
      'control-plane/rental/outage.store.test.ts',
      'of a silent host is confirmed after twenty seconds without life, and credited from the last proof of life',
    ],
    [
      'unreachable is a degraded reading of a running instance: it recovers by itself, with the same ready_at and no second instance.running',
      'control-plane/rental/outage.store.test.ts',
      'ends by itself: running and billed again, ready_at unchanged, no second instance.running',
    ],
    [
      'A rental that cannot be reached can be deleted, and nothing more is charged',
      'control-plane/rental/outage.store.test.ts',
      'can be deleted: terminated at once, nothing more is charged',
    ],
  ],
};
