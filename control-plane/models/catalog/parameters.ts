// Parameters of models: what the operator may write for videos and images, which values a request may have, and which parameters a model
// supports. One parameter of an image model lists all its sizes, because the price may depend on the size.
import type { z } from 'zod';
import type { ModelParameter } from '../../../shared/api/model.ts';
import { fail } from '../../../shared/errors.ts';
import { IMAGES_MAX, IMAGES_PIXELS_MAX } from '../../../shared/limits.ts';

type Parameter = z.infer<typeof ModelParameter>;

/** A value of a parameter of a video, such as `seconds`. A request may set them all besides its prompt. */
export type ParameterValue = string | number | boolean;

/** The longest clip in seconds. */
const SECONDS_MAX = 3_600;
const SIZE = /^([1-9][0-9]{0,4})x([1-9][0-9]{0,4})$/;

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

/** Why these parameters are wrong for an image model; undefined if they are right. */
export function wrongImageParameters(parameters: readonly Parameter[], isPricedBySize: boolean): string | undefined {
  const [size, ...more] = parameters;
  if (more.length > 0 || (size !== undefined && size.name !== 'size')) return 'may only have size for image models';
  if (size === undefined)
    return isPricedBySize ? 'must have size for a model that is priced by the megapixel' : undefined;
  const sizes = size.enum ?? [];
  if (size.type !== 'enum' || sizes.length === 0 || !sizes.every((each) => SIZE.test(each)))
    return 'must have an enum of sizes like 1024x1024';
  const tooLarge = sizes.find((each) => imagesMax(each) < 1);
  if (tooLarge !== undefined) return `must have sizes of at most ${IMAGES_PIXELS_MAX} pixels, unlike ${tooLarge}`;
  return sizes.includes(String(size.default)) ? undefined : 'must have one of its sizes as default';
}

/** The sizes that a request may name, the default first; empty if the model has one fixed size. */
export function sizesOf({ parameters }: { parameters: readonly Parameter[] }): string[] {
  const [size] = parameters;
  if (size === undefined) return [];
  const standard = String(size.default);
  return [standard, ...(size.enum ?? []).filter((each) => each !== standard)];
}

/** Pixels of a size like 1024x768. */
export function pixelsOf(size: string): bigint {
  const [, width = '0', height = '0'] = SIZE.exec(size) ?? [];
  return BigInt(width) * BigInt(height);
}

/**
 * How many images of a size one request may ask for. All of them fit into the largest answer that is read. An answer that is too large costs the
 * caller nothing, so its images would be made for nothing.
 */
export function imagesMax(size: string): number {
  return Math.min(IMAGES_MAX, Number(BigInt(IMAGES_PIXELS_MAX) / pixelsOf(size)));
}

interface Supporting {
  id: string;
  supported_parameters: readonly string[];
}

/** @throws ServiceError `unsupported_parameter` naming the first of `members` that the model does not take */
export function assertSupported(members: readonly string[], model: Supporting): void {
  const field = members.find((name) => !model.supported_parameters.includes(name));
  if (field !== undefined) failUnsupported(field, model);
}

/** @throws ServiceError `unsupported_parameter` */
export function failUnsupported(field: string, { id }: Supporting): never {
  return fail('unsupported_parameter', {
    detail: `${id} does not support ${field} in v1.1 of the inference API. GET /v1/models/${id} shows what it takes.`,
    errors: [{ field, rule: 'is not supported' }],
  });
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
