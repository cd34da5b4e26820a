// Decoders for the portable column kinds: whole numbers, money, flags, text and JSON kept as text.
import { z } from 'zod';

/**
 * Counts, sizes and epoch milliseconds. Refuses a value that a JavaScript number cannot hold exactly. It is a single transform because most
 * columns are of this kind and a pipeline would be slower.
 */
export const int = z.transform((value: unknown, context): number => {
  const number = typeof value === 'bigint' ? Number(value) : value;
  if (typeof number === 'number' && Number.isSafeInteger(number)) return number;
  context.issues.push({ code: 'custom', message: 'must be a whole number', input: value });
  return z.NEVER;
});

/** Microcents: never a JavaScript number. */
export const ucents = z.transform((value: unknown, context): bigint => {
  if (typeof value === 'bigint') return value;
  if (typeof value === 'number' && Number.isSafeInteger(value)) return BigInt(value);
  context.issues.push({ code: 'custom', message: 'must be a whole number', input: value });
  return z.NEVER;
});

/** An integer column that is 0 or 1. */
export const flag = int.transform((value) => value === 1);

export const text = z.string();

/** A JSON document stored as text, decoded and checked. */
export function json<T>(schema: z.ZodType<T>): z.ZodType<T> {
  return z
    .string()
    .transform((value): unknown => JSON.parse(value))
    .pipe(schema) as unknown as z.ZodType<T>;
}

/** The row of `select count(*) as count`. */
export const countRow = z.object({ count: int });

/** The row of `select id`. */
export const idRow = z.object({ id: text });

/** The row of `select blob_key`. */
export const blobKeyRow = z.object({ blob_key: text });
