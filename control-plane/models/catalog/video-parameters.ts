// Parameters of a video model: everything that a request may set besides its prompt, for example `seconds`.
import type { z } from 'zod';
import type { ModelParameter } from '../../../shared/api/model.ts';

type Parameter = z.infer<typeof ModelParameter>;

/** A value of a parameter. */
export type ParameterValue = string | number | boolean;

/** The longest clip in seconds. */
const SECONDS_MAX = 3_600;

/** Why these parameters are wrong for a video model; undefined if they are right. */
export function wrongVideoParameters(parameters: readonly Parameter[]): string | undefined {
  const names = parameters.map(({ name }) => name);
  if (new Set(names).size < names.length) return 'must name each parameter once';
  const seconds = parameters.find(({ name }) => name === 'seconds');
  if (seconds === undefined) return 'must have seconds for video models: it says how long a clip may be';
  const { type, min = 0, max = Infinity, default: standard } = seconds;
  if (type !== 'int' || standard === undefined || min < 1 || max > SECONDS_MAX)
    return `must have seconds of the type int, with a default, a min of at least 1 and a max of at most ${SECONDS_MAX}`;
  return parameters.map(wrongParameter).find((wrong) => wrong !== undefined);
}

/** The rule that a value breaks, as text that follows the parameter's name; undefined if the value is right. */
export function brokenRule({ type, enum: values = [], min, max }: Parameter, value: unknown): string | undefined {
  switch (type) {
    case 'int':
      if (typeof value !== 'number' || !Number.isSafeInteger(value)) return 'must be an integer';
      if (min !== undefined && value < min) return `must be at least ${min}`;
      return max !== undefined && value > max ? `must be at most ${max}` : undefined;
    case 'bool':
      return typeof value === 'boolean' ? undefined : 'must be true or false';
    case 'string':
      return typeof value === 'string' ? undefined : 'must be a string';
    case 'enum':
      return typeof value === 'string' && values.includes(value) ? undefined : `must be one of ${values.join(', ')}`;
  }
}

function wrongParameter(parameter: Parameter): string | undefined {
  const { name, type, enum: values = [], min, max, default: standard } = parameter;
  if (!/^[a-z][a-z0-9_]{0,63}$/.test(name)) return 'must have names of small letters, digits and underscores';
  if (name === 'model' || name === 'prompt') return `must not have ${name}, which every request has`;
  if ((type === 'enum') !== values.length > 0) return `must have an enum for ${name} exactly if that is its type`;
  if (type !== 'int' && (min !== undefined || max !== undefined))
    return `must have min and max for ${name} only as an int`;
  const broken = standard === undefined ? undefined : brokenRule(parameter, standard);
  return broken === undefined ? undefined : `has a default of ${name} that breaks its own rule: it ${broken}`;
}
