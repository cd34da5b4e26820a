// Sizes of images. One parameter of the model lists all sizes, because the price may depend on the size.
import type { z } from 'zod';
import type { ModelParameter } from '../../../shared/api/model.ts';

type Parameters = readonly z.infer<typeof ModelParameter>[];

const SIZE = /^([1-9][0-9]{0,4})x([1-9][0-9]{0,4})$/;

/** Why these parameters are wrong for an image model; undefined if they are right. */
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

/** The sizes that a request may name, the default first; empty if the model has one fixed size. */
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
