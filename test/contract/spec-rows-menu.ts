// Rows of spec-rows.ts about templates and environments.

/** File -> rows of [section, rule, test]. */
export const MENU_ROWS: Record<string, readonly [string, string, string][]> = {
  'contract/environments.store.test.ts': [
    [
      '2.16',
      'Environments have frameworks, versions, includes by CUDA variant (and base), and vm_images',
      'the list is open to everybody, and has frameworks, versions, contents and VM images as specified',
    ],
    [
      '4.9',
      'GET /v1/environments returns the Environments object',
      'the list is open to everybody, and has frameworks, versions, contents and VM images as specified',
    ],
    [
      '2.16',
      'The default version of a framework is taken where none is named',
      'takes the version that is named, else the default one',
    ],
    ['4.3', 'environment omitted means the provider default', 'of %s runs its image, which is not shown, and stays up'],
    [
      '2.2',
      'image is shown for custom-image launches only: certified launches never expose theirs',
      'of %s runs its image, which is not shown, and stays up',
    ],
    ['4.3', 'environment has a grammar', 'of "%s" is malformed: 422 that says the grammar'],
    [
      '4.3',
      'A well-formed environment that cannot be served gives 422 environment_unavailable',
      'of %s cannot be served: 422 environment_unavailable that says what can',
    ],
    [
      '7.2',
      'environment_unavailable: well-formed environment the placed machine cannot serve',
      'of %s cannot be served: 422 environment_unavailable that says what can',
    ],
    [
      '4.3',
      'cmd, entrypoint, ports and registry_credential_id require image; image excludes environment',
      'with %s is 422 that names the field',
    ],
    [
      '4.3',
      'spot is accepted but currently returns no capacity',
      'spot without an image is accepted, and its operation says that spot has no capacity',
    ],
  ],
  'control-plane/rental/launch/environments.test.ts': [
    ['2.16', 'At most one version of a framework is the default', 'with %s is refused with its line'],
    [
      '2.16',
      'Frameworks are usable as certified:<framework>, versions after the @',
      'each framework and version that is shown leads to an image with a fixed tag',
    ],
    ['4.3', 'certified, certified:<framework>, certified:<framework>@<version>, provider_template', '%s is %s'],
  ],
  'contract/templates.store.test.ts': [
    [
      '4.3',
      'A template runs with its variables, and is served at its app URL',
      'runs its image with its command, its variables and its port, and does not show the image',
    ],
    [
      '2.2',
      'image is shown for custom-image launches only: template launches never expose theirs',
      'that no host can pull fails elsewhere and at last without naming the image',
    ],
    [
      '4.3',
      'env with template_id accepts only keys the template marks user_overridable; others 422',
      'with %s is 422, names the field, and makes nothing',
    ],
    [
      '7.2',
      'image combined with template_id or environment; non-overridable template env key: 422',
      'with %s is 422, names the field, and makes nothing',
    ],
    [
      '4.3',
      'Secret values are redacted from operation metadata',
      'reaches the host, and is in no answer, table, event or log',
    ],
    [
      '4.3',
      'gpu_type may be omitted with template_id: the cheapest eligible GPU is selected',
      'the cheapest GPU that is large enough and free is taken, and shown',
    ],
    [
      '4.3',
      'An explicit gpu_type below the min_vram_gb of the template returns 422 gpu_vram_too_small',
      'below the min_vram_gb of the template is gpu_vram_too_small, at it is not',
    ],
    [
      '7.2',
      'gpu_vram_too_small: explicit gpu_type VRAM below template min_vram_gb',
      'below the min_vram_gb of the template is gpu_vram_too_small, at it is not',
    ],
    [
      '4.3',
      'An oversized model on an explicit gpu_type returns 422 model_too_large',
      'larger than the VRAM of an explicit gpu_type is model_too_large with both figures; at its edge it is not',
    ],
    [
      '7.2',
      "model_too_large: template model weights exceed the explicit GPU's VRAM",
      'larger than the VRAM of an explicit gpu_type is model_too_large with both figures; at its edge it is not',
    ],
    [
      '4.3',
      'Auto-select raises its VRAM floor instead of model_too_large',
      'raises the floor of the GPU that is chosen, with room to work',
    ],
    [
      '4.3',
      'Gated, private or unknown repositories are never blocked; the 202 carries a warning',
      'that %s is never blocked, and the answer has a warning',
    ],
    [
      '4.3',
      'A registry outage during a template launch gives 502 registry_unreachable',
      'whose registry is away is 502, and whose image is gone is 422; neither names the image',
    ],
  ],
  'control-plane/rental/launch/model-hub.test.ts': [
    ['4.3', 'The size of a model is that of the weights on the model hub', 'as %s are those that servers load, once'],
  ],
};
