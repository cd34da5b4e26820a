// What all operator routes share: the shape of an answer, and the route options for the unix socket.
import { z } from 'zod';
import { ucentsFromText, UCENTS_PER_CENT } from '../../../shared/money.ts';
import { pageParameters } from '../../../shared/api/page.ts';
import { join, type Sql, sql } from '../db/db.ts';

/** One object as an operator sees it: a table row of names and plain values. */
export type Fields = Record<string, string | number | boolean | null>;

export const AnyFields = z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()]));
/** A list that is short by its nature. Lists that grow answer with pages and take `listParameters`. */
export const listOf = <T extends z.ZodType>(entry: T) => z.strictObject({ data: z.array(entry) });
const LIST_DEFAULT = 100;
const LIST_MAX = 1_000;
/** Spread into the strict query schema of a list that grows. An operator reads more at once than a customer. */
export const listParameters = {
  cursor: pageParameters.cursor,
  limit: z.coerce.number().int().min(1).max(LIST_MAX).default(LIST_DEFAULT),
};
export const ListQuery = z.strictObject(listParameters);
export type ListQuery = z.infer<typeof ListQuery>;
const SEARCH_CHARS_MAX = 255;
/** The query of a list whose rows an operator searches. */
export const SearchQuery = z.strictObject({
  ...listParameters,
  search: z.string().min(1).max(SEARCH_CHARS_MAX).optional(),
});
/**
 * The condition of a row that has the text in one of these columns. Without a text, all rows meet it. Only A to Z are found in upper and lower case,
 * because both databases change no other letters.
 */
export function isFound(text: string | undefined, columns: readonly Sql[]): Sql {
  if (text === undefined) return sql`1 = 1`;
  const lower = text.replaceAll(/[A-Z]/g, (letter) => letter.toLowerCase());
  const pattern = `%${lower.replaceAll(/[\\%_]/g, '\\$&')}%`;
  const tests = columns.map((column) => sql`lower(${column}) like ${pattern} escape '\\'`);
  return sql`(${join(tests, ' or ')})`;
}
/** A billion dollars: far above any payment. A database has microcents in 64 bits, which are 92 billion dollars for the sum of a balance. */
const CENTS_MAX = 10 ** 11;
const DOLLARS_MAX_UCENTS = BigInt(CENTS_MAX) * UCENTS_PER_CENT;
export const Cents = z.int().min(1).max(CENTS_MAX);
/** An exact amount as text. A JSON number could not hold every amount exactly. `readUcents` reads it. */
export const Dollars = z.string().superRefine((text, context) => {
  const ucents = ucentsFromText(text);
  if (typeof ucents === 'string') context.addIssue(ucents);
  else if (ucents > DOLLARS_MAX_UCENTS) context.addIssue('must be at most 1000000000.00');
});
/** The microcents of `Dollars`. */
export function readUcents(dollars: string): bigint {
  const ucents = ucentsFromText(dollars);
  if (typeof ucents === 'string') throw new Error(`an amount was not checked: ${dollars} ${ucents}`);
  return ucents;
}
export const Id = z.strictObject({ id: z.string() });
/** The operation id of a route that does `verb` to a thing, like `adminSuspendMachine`. */
export const operationOf = (verb: string, noun: string): string =>
  `admin${verb.charAt(0).toUpperCase()}${verb.slice(1)}${noun}`;
export const operator = { scope: 'operator', idempotency: 'none', hidden: true, tag: 'admin' } as const;
