// Templates: curated applications. They are read from the operator's file and checked at the start. Customers see a part of them. For one launch,
// the customer's values go into the variables of the template, and the variables into its arguments (pure).
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { EnvKey, isReservedEnv, Ports } from '../../../shared/api/instance.ts';
import type { Template as TemplateView } from '../../../shared/api/preset.ts';
import { parseYamlConfig, readNamed } from '../../../shared/yaml-config.ts';
import { ImageName } from './reference.ts';
import { failField, type FieldError, failFields } from '../../../shared/errors.ts';
import { LAUNCH_BYTES_MAX } from '../../../shared/limits.ts';

const Variable = z.strictObject({
  description: z.string().min(1),
  default: z.string().optional(),
  /** True if a launch must give the variable a value that is not empty. */
  required: z.boolean().default(false),
  /** True if customers may set the variable. */
  user_overridable: z.boolean().default(false),
  /** True for a secret. It must not be part of a command line, because every program in the container could read it there. */
  secret: z.boolean().default(false),
});
type Variable = z.infer<typeof Variable>;

/** Text with `${NAME}` for a variable. A list within the list is left out if one of its variables has no value. */
const Arguments = z.array(z.union([z.string().min(1), z.array(z.string().min(1)).min(1)])).min(1);
export type Arguments = z.infer<typeof Arguments>;

/** The variable for the number of GPUs of the launch, for use in arguments. */
const GPU_COUNT = 'GPU_COUNT';
/** The variable that names the model of a template that serves a model of the model hub. */
export const MODEL = 'MODEL';

const Template = z
  .strictObject({
    id: z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/, 'must be lower-case letters, digits and dashes'),
    title: z.string().min(1),
    description: z.string().min(1),
    image: ImageName,
    min_vram_gb: z.int().min(0).default(0),
    /** True if the template serves the model that its variable MODEL names, on all GPUs together. */
    serves_model: z.boolean().default(false),
    /** `entrypoint` and `cmd` replace the image's own. If one is missing, the image's own is used. */
    entrypoint: Arguments.optional(),
    cmd: Arguments.optional(),
    ports: Ports.default([]),
    env: z.record(EnvKey, Variable).default({}),
  })
  .superRefine(refuseInconsistent);
export type Template = z.infer<typeof Template>;

const TemplatesFile = z.strictObject({
  templates: z.array(Template).superRefine((templates, context) => {
    templates.forEach(({ id }, index) => {
      if (templates.findIndex((other) => other.id === id) === index) return;
      context.addIssue({ code: 'custom', path: [index, 'id'], message: `the id ${id} is used twice` });
    });
  }),
});

const SHIPPED = new URL('templates.yaml', import.meta.url);

/** The templates of a file, by id. @throws Error that lists every problem of the file with its line */
export function readTemplates(file: string | undefined): Map<string, Template> {
  const text = readNamed('templates_file', file ?? fileURLToPath(SHIPPED), (path) => readFileSync(path, 'utf8'));
  const { templates } = parseYamlConfig(text, TemplatesFile, file ?? 'templates.yaml');
  return new Map(templates.map((template) => [template.id, template]));
}

/** The view leaves out the image, which customers never see. */
export function templateView({ id, title, description, min_vram_gb, ports, env }: Template): TemplateView {
  const primary = ports.find((port) => port.primary === true);
  return {
    id,
    title,
    description,
    min_vram_gb,
    primary_port: primary?.port ?? null,
    env: Object.entries(env).map(([key, variable]) => ({
      key,
      description: variable.description,
      ...(variable.default === undefined ? {} : { default: variable.default }),
      required: variable.required,
      user_overridable: variable.user_overridable,
      secret: variable.secret,
    })),
  };
}

export interface Filled {
  /** The environment variables of the container. */
  env: Record<string, string>;
  /** Replaces the entrypoint of the image; null: the image's own is used. */
  entrypoint: string[] | null;
  cmd: string[] | null;
}

/** @throws ServiceError `validation_failed` that names every wrong variable as `env.KEY`, or `env` if all together are too large */
export function fillTemplate(template: Template, given: Record<string, string>, gpuCount: number): Filled {
  const errors = [...unwanted(template, given), ...missing(template, given)];
  if (errors.length > 0) failFields(errors);
  const defaults = Object.entries(template.env).flatMap(([key, { default: value }]): [string, string][] =>
    value === undefined ? [] : [[key, value]],
  );
  const env = { ...Object.fromEntries(defaults), ...given };
  const values = { ...env, [GPU_COUNT]: String(gpuCount) };
  const filled = (list: Arguments | undefined): string[] | null =>
    list === undefined ? null : list.flatMap((argument) => fillArgument(argument, values));
  const all = { env, entrypoint: filled(template.entrypoint), cmd: filled(template.cmd) };
  if (Buffer.byteLength(JSON.stringify(all)) > LAUNCH_BYTES_MAX) {
    failField('env', `must have at most ${LAUNCH_BYTES_MAX} bytes as JSON, with the arguments that repeat its values`);
  }
  return all;
}

/** The variables that an argument names. */
function variablesIn(text: string): string[] {
  return [...text.matchAll(/\$\{(\w+)\}/g)].map(([, name = '']) => name);
}

function refuseInconsistent(template: z.infer<typeof Template>, context: z.RefinementCtx): void {
  const refuse = (path: (string | number)[], message: string): void =>
    context.addIssue({ code: 'custom', path, message });
  if (Object.hasOwn(template.env, GPU_COUNT)) refuse(['env', GPU_COUNT], 'is the number of GPUs already');
  if (template.serves_model && template.env[MODEL]?.required !== true) {
    refuse(['serves_model'], `needs a required variable ${MODEL}`);
  }
  for (const [key, variable] of Object.entries(template.env)) {
    const wrong = isReservedEnv(key) ? 'is a reserved name' : wrongAbout(variable);
    if (wrong !== undefined) refuse(['env', key], wrong);
  }
  for (const list of ['entrypoint', 'cmd'] as const) {
    template[list]?.forEach((argument, index) => {
      const wrong = wrongArgument(argument, template.env);
      if (wrong !== undefined) refuse([list, index], wrong);
    });
  }
}

function wrongAbout({ required, user_overridable: isTheirs, secret, default: value }: Variable): string | undefined {
  if (required && !isTheirs) return 'is required, so it must be user_overridable';
  if (required && value !== undefined) return 'has a default, so it is not required';
  if (secret && value !== undefined) return 'is secret, so it must have no default: every customer could read that';
  return undefined;
}

function wrongArgument(argument: Arguments[number], env: Record<string, Variable>): string | undefined {
  const names = [argument].flat().flatMap(variablesIn);
  for (const name of names.filter((each) => each !== GPU_COUNT)) {
    const variable = env[name];
    if (variable === undefined) return `names the variable ${name}, which env does not have`;
    if (variable.secret) return `holds the secret ${name}, which every program in the container could read there`;
    const canLack = !variable.required && (variable.default ?? '') === '';
    if (canLack && !Array.isArray(argument)) {
      return `needs ${name}, which may have no value: put it into a list of its own, to be left out then`;
    }
  }
  return undefined;
}

function unwanted({ id, env }: Template, given: Record<string, string>): FieldError[] {
  const theirs = Object.keys(env).filter((key) => env[key]?.user_overridable === true);
  const can = theirs.length === 0 ? 'it has none that can be set' : `those that can be set are ${theirs.join(', ')}`;
  return Object.keys(given)
    .filter((key) => !theirs.includes(key))
    .map((key) => ({ field: `env.${key}`, rule: `cannot be set for the template ${id}; ${can}` }));
}

function missing({ id, env }: Template, given: Record<string, string>): FieldError[] {
  return Object.entries(env)
    .filter(([key, { required }]) => required && (given[key] ?? '') === '')
    .map(([key, { description }]) => ({
      field: `env.${key}`,
      rule: `is required by the template ${id}: ${description}`,
    }));
}

function fillArgument(argument: string | readonly string[], values: Record<string, string>): string[] {
  const parts = [argument].flat();
  if (Array.isArray(argument) && parts.flatMap(variablesIn).some((name) => (values[name] ?? '') === '')) return [];
  return parts.map((text) => text.replaceAll(/\$\{(\w+)\}/g, (_whole, name: string) => values[name] ?? ''));
}
