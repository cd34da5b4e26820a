// Sizes of images: one parameter of the model lists all that there are, since what an image costs may depend on it.
import type { z } from 'zod';
import type { ModelParameter } from '../../../shared/api/model.ts';

type Parameters = readonly z.infer<typeof ModelParameter>[];

const SIZE = /^([1-9][0-9]{0,4})x([1-9][0-9]{0,4})$/;

/** Why these cannot be the parameters of an image model; undefined where they can. */
export function wrongImageParameters(parameters: Parameters, isPricedBySize: boolean): string | undefined {
  const [size, ...more] = parameters;
  if (more.length > 0 || (size !== undefined && size.name !== 'size')) return 'may only have size for image models';
  if (size === undefined)
    return isPricedBySize ? 'must have size for a model that is priced by the megapixel' : undefined;
  const sizes = size.enum ?? [];
  if (size.type !== 'enum' || sizes.length === 0 || !sizes.every((each) => SIZE.test(each)))
    return 'must have an enum of sizes like 1024x1024';
  return sizes.includes(String(size.default)) ? undefined : 'must have one of its sizes as default';
}

/** What requests may name, the default first; none where the model makes images of one size that is its own affair. */
export function sizesOf({ parameters }: { parameters: Parameters }): string[] {
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
