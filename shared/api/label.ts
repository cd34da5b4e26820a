// Names that people give, and words that they choose freely.
import { z } from 'zod';

/** One line of text. */
export function label(lengthMax: number): z.ZodString {
  return z
    .string()
    .min(1)
    .max(lengthMax)
    .regex(/^\P{Cc}*$/u, 'must not contain control characters');
}
