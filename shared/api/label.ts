// Names that people give, and words that they choose freely.
import { z } from 'zod';

/** Control characters, and marks that change the direction of text. Names in Arabic or Hebrew need no such mark. */
const ONE_LINE = /^[^\p{Cc}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]*$/u;

/** A visible character: neither white space nor a sign without a form, as U+200B is. An empty text breaks only the rule of the length. */
const NOT_BLANK = /^$|[^\s\p{Cf}]/u;

/** One line of text that people can see. */
export function label(lengthMax: number): z.ZodString {
  return z
    .string()
    .min(1)
    .max(lengthMax)
    .regex(ONE_LINE, 'must not contain control characters')
    .regex(NOT_BLANK, 'must not be blank');
}
