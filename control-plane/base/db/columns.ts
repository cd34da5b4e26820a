// Decoders for the portable column kinds: whole numbers, money, flags, text and JSON kept as text.
import { z } from 'zod';

/** Counts, sizes and epoch ms. Refuses what a JavaScript number cannot hold exactly. */
export const int = z
  .union([z.bigint(), z.number()])
  .transform((value) => Number(value))
  .pipe(z.int());

/** Microcents: never a JavaScript number. */
export const ucents = z.union([z.bigint(), z.int().transform((value) => BigInt(value))]);

/** 0 or 1. */
export const flag = z.union([z.bigint(), z.number()]).transform((value) => Number(value) === 1);

export const text = z.string();

/** A JSON document stored as text, decoded and checked. */
export function json<T>(schema: z.ZodType<T>): z.ZodType<T> {
  return z
    .string()
    .transform((value): unknown => JSON.parse(value))
    .pipe(schema) as unknown as z.ZodType<T>;
}

/** The answer of `select count(*) as count`. */
export const countRow = z.object({ count: int });
