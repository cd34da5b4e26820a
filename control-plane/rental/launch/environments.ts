// Environments: certified images to log in to. They are read from the operator's file, checked at the start, and found by name (specification 4.3).
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import {
  CudaVariant,
  type Environments as EnvironmentsView,
  type FrameworkVersion,
  IncludeItem,
} from '../../../shared/api/preset.ts';
import { fail } from '../../../shared/errors.ts';
import { parseYamlConfig, readNamed } from '../../../shared/yaml-config.ts';
import { ImageName } from './reference.ts';

const Includes = z.array(IncludeItem);
const CERTIFIED = /^certified(?::([^@]+)(?:@(.+))?)?$/;

const Version = z.strictObject({
  id: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]*$/, 'must be letters, digits, ".", "_" and "-"'),
  label: z.string().min(1),
  variant: CudaVariant,
  image: ImageName,
  default: z.boolean().default(false),
});

const Framework = z
  .strictObject({
    includes: z.partialRecord(CudaVariant, Includes),
    versions: z.array(Version).min(1),
  })
  .superRefine(({ versions, includes }, context) => {
    versions.forEach(({ id, variant, default: isDefault }, index) => {
      const refuse = (member: string, message: string): void =>
        context.addIssue({ code: 'custom', path: ['versions', index, member], message });
      if (versions.findIndex((other) => other.id === id) < index) refuse('id', `the version ${id} is there twice`);
      const first = versions.findIndex((other) => other.default);
      if (isDefault && first < index) refuse('default', 'is true for more than one version');
      if (includes[variant] === undefined) refuse('variant', `includes says nothing about ${variant}`);
    });
  });

const Base = z
  .partialRecord(
    CudaVariant,
    z.strictObject({ image: ImageName, includes: Includes, default: z.boolean().default(false) }),
  )
  .refine((base) => Object.values(base).filter((one) => one.default).length === 1, 'must have exactly one default');

const EnvironmentsFile = z
  .strictObject({
    /** The environment of `provider_template`, and of a launch that names nothing. */
    default: z.string().regex(CERTIFIED, 'must be certified, certified:<framework> or certified:<framework>@<version>'),
    base: Base,
    frameworks: z
      .record(z.string().regex(/^[a-z0-9][a-z0-9._-]*$/, 'is no name of a framework'), Framework)
      .refine((frameworks) => !Object.hasOwn(frameworks, 'base'), 'must not have one that is called base'),
  })
  .superRefine((file, context) => {
    const found = findCertified(file, file.default);
    if ('why' in found) context.addIssue({ code: 'custom', path: ['default'], message: found.why });
  });
export type Environments = z.infer<typeof EnvironmentsFile>;

const SHIPPED = new URL('environments.yaml', import.meta.url);

/** @throws Error that lists every problem of the file with its line */
export function readEnvironments(file: string | undefined): Environments {
  const text = readNamed('environments_file', file ?? fileURLToPath(SHIPPED), (path) => readFileSync(path, 'utf8'));
  return parseYamlConfig(text, EnvironmentsFile, file ?? 'environments.yaml');
}

/**
 * The image of the environment that a launch names. `named` is undefined if it names none.
 * @throws ServiceError `environment_unavailable`
 */
export function imageOf(environments: Environments, named: string | undefined): string {
  if (named?.startsWith('raw_vm') === true) {
    return unavailable(
      named,
      'no host on offer runs virtual machines; use certified, or an own image, and log in by SSH as root',
    );
  }
  const text = named === undefined || named === 'provider_template' ? environments.default : named;
  const found = findCertified(environments, text);
  return 'image' in found ? found.image : unavailable(text, found.why);
}

export function environmentsView({ base, frameworks }: Environments): EnvironmentsView {
  const each = <T>(view: (framework: z.infer<typeof Framework>) => T): Record<string, T> =>
    Object.fromEntries(Object.entries(frameworks).map(([id, framework]) => [id, view(framework)]));
  const baseIncludes = Object.entries(base).map(([variant, { includes }]) => [variant, includes]);
  return {
    frameworks: Object.keys(frameworks),
    versions: each(({ versions }) => versions.map(versionView)),
    includes: { base: Object.fromEntries(baseIncludes), ...each(({ includes }) => includes) },
    vm_images: {},
  };
}

/** The view leaves out the image, which customers never see. */
function versionView({ id, label, variant, default: isDefault }: z.infer<typeof Version>): FrameworkVersion {
  return { id, label, variant, default: isDefault };
}

/** `why` names the environments that exist. */
function findCertified({ base, frameworks }: Environments, text: string): { image: string } | { why: string } {
  const [, name, versionId] = CERTIFIED.exec(text) ?? [];
  if (name === undefined) {
    const one = Object.values(base).find((each) => each.default);
    return one === undefined ? { why: 'there is no default base' } : { image: one.image };
  }
  const framework = Object.hasOwn(frameworks, name) ? frameworks[name] : undefined;
  if (framework === undefined) {
    return { why: `there is no framework ${name}; there are ${Object.keys(frameworks).join(', ') || 'none'}` };
  }
  const { versions } = framework;
  const version = versions.find(({ id, default: isDefault }) =>
    versionId === undefined ? isDefault : id === versionId,
  );
  if (version !== undefined) return { image: version.image };
  const there = versions.map(({ id }) => id).join(', ');
  return {
    why:
      versionId === undefined
        ? `${name} has no default version; name one of ${there} after an @`
        : `there is no version ${versionId} of ${name}; there are ${there}`,
  };
}

function unavailable(named: string, why: string): never {
  return fail('environment_unavailable', {
    detail: `The environment ${named} cannot be served: ${why}. GET /v1/environments lists them.`,
    errors: [{ field: 'environment', rule: why }],
  });
}
