// Fills a template for one launch: the customer's values go into its variables, and the variables into its arguments. Pure.
import { failField, type FieldError, failFields } from '../../../shared/errors.ts';
import { LAUNCH_BYTES_MAX } from '../../../shared/limits.ts';
import { type Arguments, GPU_COUNT, type Template, variablesIn } from './templates.ts';

export interface Filled {
  /** The environment variables of the container. */
  env: Record<string, string>;
  /** Null: the image's own. */
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
