// Specification 4.3 Instances: its rules, in the order of its sentences, and their tests.
import type { RowsBySection } from '../spec-rows.ts';

export const INSTANCES_ROWS: RowsBySection = {
  '4.3': [
    [
      'Every broken rule of the body is 422 and names its field',
      'contract/launch.store.test.ts',
      '%s: 422 that names the field, and nothing is made',
    ],
    [
      'A gpu_type with no capable capacity is 422 image_unavailable',
      'contract/launch.store.test.ts',
      'a gpu_type that no host offers is image_unavailable',
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
      'reserved launches cost nothing by the hour',
      'control-plane/rental/reservations.store.test.ts',
      'takes a slot, needs no balance, costs nothing and is metered',
    ],
    [
      'A malformed image reference gives 400',
      'contract/images.store.test.ts',
      'malformed: %s is 400, nothing is asked and nothing made',
    ],
    [
      'image is verified before provisioning: unknown gives 422 image_unavailable, an outage 502 registry_unreachable, nothing billed',
      'contract/images.store.test.ts',
      'that is %s: nothing is created and nothing billed',
    ],
    [
      'An empty entrypoint clears it and keeps the image CMD; an empty cmd clears that',
      'contract/images.store.test.ts',
      '%s is enough',
    ],
    [
      'registry_credential_id must be for the registry of the image (422)',
      'contract/images.store.test.ts',
      'that is unknown, of another organisation, or for another registry refuses the launch by its name',
    ],
    [
      'A localhost or private-IP registry gives 400',
      'control-plane/rental/launch/images.test.ts',
      '%s is refused without a request',
    ],
    [
      'An image must be for linux/amd64',
      'control-plane/rental/launch/images.test.ts',
      'for other platforms alone is refused, naming them',
    ],
    [
      'An image must be publicly pullable unless a login is named',
      'control-plane/rental/launch/registry.docker.test.ts',
      'shows the image to the right login alone',
    ],
    [
      'A private image is launched with registry_credential_id',
      'e2e/private-image.test.ts',
      'a private image runs with a stored login, pinned to its digest, and no file has the password',
    ],
    [
      'A pinned offering that is gone fails the launch explicitly and never places elsewhere',
      'contract/operations.store.test.ts',
      'a pinned offering that goes is offering_unavailable; one that is merely full says so, and nothing else is tried',
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
      'A well-formed environment that cannot be served gives 422 environment_unavailable',
      'contract/environments.store.test.ts',
      'of %s cannot be served: 422 environment_unavailable that says what can',
    ],
    [
      'cmd, entrypoint, ports and registry_credential_id require image; image excludes environment',
      'contract/environments.store.test.ts',
      'with %s is 422 that names the field',
    ],
    [
      'spot is accepted but currently returns no capacity',
      'contract/environments.store.test.ts',
      'spot without an image is accepted, and its operation says that spot has no capacity',
    ],
    [
      'certified, certified:<framework>, certified:<framework>@<version>, provider_template',
      'control-plane/rental/launch/environments.test.ts',
      '%s is %s',
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
      'gpu_type may be omitted with template_id: the cheapest eligible GPU is selected',
      'contract/templates.store.test.ts',
      'the cheapest GPU that is large enough and free is taken, and shown',
    ],
    [
      'An explicit gpu_type below the min_vram_gb of the template returns 422 gpu_vram_too_small',
      'contract/templates.store.test.ts',
      'below the min_vram_gb of the template is gpu_vram_too_small, at it is not',
    ],
    [
      'An oversized model on an explicit gpu_type returns 422 model_too_large',
      'contract/templates.store.test.ts',
      'larger than the VRAM of an explicit gpu_type is model_too_large with both figures; at its edge it is not',
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
      'A registry outage during a template launch gives 502 registry_unreachable',
      'contract/templates.store.test.ts',
      'whose registry is away is 502, and whose image is gone is 422; neither names the image',
    ],
    [
      'The size of a model is that of the weights on the model hub',
      'control-plane/rental/launch/model-hub.test.ts',
      'as %s are those that servers load, once',
    ],
  ],
};
