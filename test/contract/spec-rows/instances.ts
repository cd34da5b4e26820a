// Specification 4.3 Instances: its rules, in the order of its sentences, and their tests.
import type { RowsBySection } from '../spec-rows.ts';

export const INSTANCES_ROWS: RowsBySection = {
  '4.3': [
    [
      'ports: port 22 is reserved',
      'contract/limits.store.test.ts',
      '%s: the first forbidden values are refused, and make nothing',
    ],
    [
      'The reserved namespaces of env, PUBLIC_KEY and the SVC_ names, are refused (422)',
      'contract/launch.store.test.ts',
      '%s: 422 that names the field and the rule, and nothing is made',
    ],
    [
      'GET /v1/instances takes cursor and limit and answers a page of instances',
      'contract/cursors.store.test.ts',
      '%s skips and repeats nothing while entries are made and deleted between its pages',
    ],
    [
      'A list shows an instance as GET /v1/instances/{id} does',
      'contract/instance-life.store.test.ts',
      'has exactly the fields of its station, from the request through an outage to its end',
    ],
    [
      'POST /v1/instances requires an Idempotency-Key',
      'contract/limits.store.test.ts',
      'is required on POST %s, with 255 characters at most',
    ],
    [
      'POST answers 202 with Operation-Id and an operation that is pending and has no resource_id',
      'contract/operations.store.test.ts',
      'a create answers 202 with the operation, pending and without a resource, and its id in the header',
    ],
    [
      'Template deploys may add warnings',
      'contract/templates.store.test.ts',
      'that leaves little room is accepted with a warning, also for whoever follows the operation',
    ],
    [
      'include=credentials adds connection.app_password, and nothing else shows it',
      'contract/launch.store.test.ts',
      'have a password that only include=credentials shows, and no list, operation or event',
    ],
    [
      'PATCH and DELETE take an Idempotency-Key',
      'contract/limits.store.test.ts',
      'may be sent with %s of an instance, with 255 characters at most',
    ],
    [
      'PATCH changes the name',
      'contract/instance-life.store.test.ts',
      'the change of its name answers the instance as it is then; null takes the name away',
    ],
    [
      'name is the only mutable field',
      'contract/instances.store.test.ts',
      'PATCH changes the name and nothing else: %j is 422 that names the field',
    ],
    [
      'DELETE answers 202 with Operation-Id; an instance that is terminated already is 404 not_found',
      'contract/instances.store.test.ts',
      'answers 202 with its operation, in the header too; one that has ended is 404 not_found, and makes nothing',
    ],
    [
      'gpu_type, gpu_count and tier are required; every broken rule of the body is 422 and names its field',
      'contract/launch.store.test.ts',
      '%s: 422 that names the field and the rule, and nothing is made',
    ],
    [
      'All that is wrong with a body is told at once',
      'contract/launch.store.test.ts',
      'is told of all that is wrong with it, and of nothing else: %j',
    ],
    [
      'gpu_type is one of GET /v1/gpu-types',
      'contract/launch.store.test.ts',
      'a gpu_type that no host offers is image_unavailable, and nothing is made',
    ],
    [
      'gpu_type may be omitted with template_id: the cheapest eligible GPU is selected',
      'contract/templates.store.test.ts',
      'the cheapest GPU that is large enough and free is taken, and shown',
    ],
    ['gpu_count is 1 to 8', 'contract/limits.store.test.ts', '%s: the last allowed values are honoured'],
    [
      'spot is accepted but currently returns no capacity',
      'contract/environments.store.test.ts',
      'spot without an image is accepted, and its operation says that spot has no capacity',
    ],
    [
      'reserved requires an active contract for the GPU type and region',
      'contract/reservations.store.test.ts',
      'a launch is refused with 403, 403, 400 and 429, and each leaves nothing behind',
    ],
    [
      'gpu_type may be left out with template_id, with tier reserved too: the contract has the GPUs',
      'contract/reservations.store.test.ts',
      'a template without gpu_type gets the smallest GPU of the contract that is large enough and free',
    ],
    [
      'DELETE by another key of the organisation is 202 too, with an operation of its own while it is stopping',
      'contract/operations.store.test.ts',
      'a DELETE by another key while it is stopping has an operation of its own, which ends with the instance',
    ],
    [
      'reserved launches cost nothing by the hour',
      'control-plane/rental/reserved-launches.store.test.ts',
      'takes a slot, needs no balance, costs nothing and is metered',
    ],
    [
      'ssh_key_ids are the keys that are installed',
      'contract/ssh-keys.store.test.ts',
      'with ssh_key_ids those keys may connect and no others',
    ],
    [
      'region is preferred, best effort',
      'control-plane/rental/launch.store.test.ts',
      'prefers the region, goes elsewhere without it, and stays with a pin',
    ],
    [
      'name is shown',
      'contract/instance-life.store.test.ts',
      'has exactly the fields of its station, from the request through an outage to its end',
    ],
    [
      'offering_id pins the launch to one offering at its listed rate',
      'contract/prices.store.test.ts',
      'is launched on at its own rate, whatever is cheaper',
    ],
    [
      'A pinned offering that is gone refuses the launch',
      'contract/prices.store.test.ts',
      'that is not listed is refused, and nothing is made',
    ],
    [
      'A pinned offering that goes later fails the launch explicitly and never places elsewhere',
      'contract/operations.store.test.ts',
      'a pinned offering that goes is offering_unavailable; one that is merely full says so, and nothing else is tried',
    ],
    [
      'max_price_per_hour caps the price of the whole instance',
      'contract/prices.store.test.ts',
      'caps the price of the whole instance, at its edge',
    ],
    [
      'A cap is never dropped, whatever digits it has',
      'contract/prices.store.test.ts',
      'that was worked out in doubles is what was meant, and no less a cap',
    ],
    [
      'Capacity above the cap is skipped; without a pin or cap the rate is set at placement and can exceed the catalog row',
      'contract/prices.store.test.ts',
      'skips what is dearer, while without it the next dearer row is taken',
    ],
    [
      'The cap goes before the preferred region',
      'contract/prices.store.test.ts',
      'goes before the preferred region: what is dearer there is skipped for what is not elsewhere',
    ],
    [
      'The cap holds for a boot rescue, which never binds above the originally placed rate',
      'contract/prices.store.test.ts',
      'holds for a boot rescue too, which never costs more than the first place',
    ],
    [
      'viewed_price_per_hour: a launch-time price more than 0.01 above fails with price_changed, which carries the new price',
      'contract/prices.store.test.ts',
      'is of the whole instance; a refusal carries the new price and makes nothing',
    ],
    [
      'The viewed price holds at the placement, also a late one',
      'contract/prices.store.test.ts',
      'holds also where capacity comes up only after the launch was accepted',
    ],
    [
      'The viewed price is a refusal only and never raises what is charged',
      'contract/prices.store.test.ts',
      'never raises what is charged',
    ],
    [
      'A template runs with its variables, and is served at its app URL',
      'contract/templates.store.test.ts',
      'runs its image with its command, its variables and its port, and does not show the image',
    ],
    [
      'env with template_id accepts only keys the template marks user_overridable; others 422',
      'contract/templates.store.test.ts',
      'with %s is 422, names the field, and makes nothing',
    ],
    [
      'Secret values are redacted from operation metadata',
      'contract/templates.store.test.ts',
      'reaches the host, and is in no answer, table, event or log',
    ],
    [
      'environment omitted means the provider default',
      'contract/environments.store.test.ts',
      'of %s runs its image, which is not shown, and stays up',
    ],
    [
      'environment has a grammar',
      'contract/environments.store.test.ts',
      'of "%s" is malformed: 422 that says the grammar',
    ],
    [
      'certified, certified:<framework>, certified:<framework>@<version>, provider_template',
      'control-plane/rental/launch/environments.test.ts',
      '%s is %s',
    ],
    [
      'A well-formed environment, raw_vm too, that cannot be served gives 422 environment_unavailable',
      'contract/environments.store.test.ts',
      'of %s cannot be served: 422 environment_unavailable that says what can',
    ],
    [
      'An image must be publicly pullable unless a login is named',
      'control-plane/rental/launch/registry.docker.test.ts',
      'shows the image to the right login alone',
    ],
    [
      'An image must be for linux/amd64',
      'control-plane/rental/launch/images.test.ts',
      'for other platforms alone is refused, naming them',
    ],
    [
      'image is verified before provisioning: unknown gives 422 image_unavailable, an outage 502 registry_unreachable, no operation, nothing billed',
      'contract/images.store.test.ts',
      'that is %s: nothing is created and nothing billed',
    ],
    [
      'A malformed image reference gives 400',
      'contract/images.store.test.ts',
      'malformed: %s is 400, nothing is asked and nothing made',
    ],
    [
      'A localhost or private-IP registry gives 400',
      'control-plane/rental/launch/images.test.ts',
      '%s is refused without a request',
    ],
    [
      'image is pinned to the verified digest',
      'contract/images.store.test.ts',
      'an instance shows its image pinned to the verified digest, and that is what its host pulls',
    ],
    [
      'image excludes template_id',
      'contract/templates.store.test.ts',
      'with %s is 422, names the field, and makes nothing',
    ],
    [
      'cmd, entrypoint, ports and registry_credential_id require image; image excludes environment',
      'contract/environments.store.test.ts',
      'with %s is 422 that names the field',
    ],
    [
      'A gpu_type with no capable capacity is 422 image_unavailable',
      'contract/launch.store.test.ts',
      'a gpu_type that no host offers is image_unavailable, and nothing is made',
    ],
    [
      'cmd and entrypoint override those of the image; an empty array clears; env holds plain container variables',
      'contract/images.store.test.ts',
      'with %s is what the host is told',
    ],
    [
      'entrypoint drops the image CMD unless cmd is given; an empty one keeps it',
      'agent/runtime/shape.test.ts',
      'entrypoint %j and cmd %j',
    ],
    ['An image with nothing left to run is refused', 'contract/images.store.test.ts', '%s has nothing to run'],
    [
      'entrypoint has at most 32 arguments and 4 KB',
      'contract/limits.store.test.ts',
      '%s: the first forbidden values are refused, and make nothing',
    ],
    [
      'Keys near the reserved namespaces of env are free',
      'contract/launch.store.test.ts',
      'names that are near the reserved ones are free',
    ],
    [
      'Ports are reached at URLs and public ports; the primary one at the app URL',
      'contract/launch.store.test.ts',
      'are reached at URLs and public ports once the instance runs',
    ],
    [
      'The primary port is served behind the login of the instance',
      'e2e/apps.test.ts',
      'the app URL shows the page to whoever has the login',
    ],
    [
      'A private image is launched with registry_credential_id',
      'e2e/private-image.test.ts',
      'a private image runs with a stored login, pinned to its digest, and no file has the password',
    ],
    [
      'registry_credential_id must be for the registry of the image (422)',
      'contract/images.store.test.ts',
      'that is unknown, of another organisation, or for another registry refuses the launch by its name',
    ],
    [
      'A wrong login fails before anything is made, with 422 image_unavailable',
      'control-plane/rental/launch/images.test.ts',
      'that takes no wrong login for %s says so, and the login is not in the message',
    ],
    ['disk_gb is 10 to 1000', 'contract/limits.store.test.ts', '%s: the last allowed values are honoured'],
    [
      'disk_gb omitted means 100 GB, and placement is not narrowed',
      'contract/launch.store.test.ts',
      'left out: 100 GB where sizes are honoured, absent elsewhere, and no host is passed over',
    ],
    [
      'disk_gb narrows placement to capable capacity',
      'contract/launch.store.test.ts',
      'goes only where it is honoured, at both of its bounds',
    ],
    [
      'No capable capacity for disk_gb is 422 disk_unavailable',
      'contract/launch.store.test.ts',
      'that nobody honours is disk_unavailable, with the field',
    ],
    [
      "disk_gb above the pinned offering's storage_gb is 422 disk_exceeds_offering",
      'contract/launch.store.test.ts',
      'above the pinned offering is disk_exceeds_offering; a pin that honours none is disk_unavailable',
    ],
    [
      'Disk beyond 100 GB is folded into the hourly rate, inside the cap and outside of the viewed price',
      'contract/launch.store.test.ts',
      'beyond 100 GB counts against the cap, and not against the viewed price',
    ],
    [
      'auto_terminate_hours is 1 to 720; an explicit 0 is rejected',
      'contract/limits.store.test.ts',
      '%s: the first forbidden values are refused, and make nothing',
    ],
    [
      'auto_terminate_hours omitted means no limit',
      'contract/launch.store.test.ts',
      'left out is absent, and nothing ends by itself',
    ],
    [
      'The countdown of auto_terminate_hours starts at running',
      'contract/launch.store.test.ts',
      'counts from running, shows its end, and ends the rental like a DELETE with the limit as its reason',
    ],
    [
      'An oversized model on an explicit gpu_type returns 422 model_too_large, with vllm and sglang',
      'contract/templates.store.test.ts',
      'larger than the VRAM of an explicit gpu_type is model_too_large with both figures; at its edge it is not',
    ],
    [
      'The size of a model is that of the weights on the model hub',
      'control-plane/rental/launch/model-hub.test.ts',
      'as %s are those that servers load, once',
    ],
    [
      'Auto-select raises its VRAM floor instead of model_too_large',
      'contract/templates.store.test.ts',
      'raises the floor of the GPU that is chosen, with room to work',
    ],
    [
      'Gated, private or unknown repositories are never blocked; the 202 carries a warning',
      'contract/templates.store.test.ts',
      'that %s is never blocked, and the answer has a warning',
    ],
    [
      'An explicit gpu_type below the min_vram_gb of the template returns 422 gpu_vram_too_small',
      'contract/templates.store.test.ts',
      'below the min_vram_gb of the template is gpu_vram_too_small, at it is not',
    ],
    [
      'A registry outage during a template launch gives 502 registry_unreachable',
      'contract/templates.store.test.ts',
      'whose registry is away is 502, and whose image is gone is 422; neither names the image',
    ],
  ],
};
