// What all operator routes share: the shape of an answer, and the route options for the unix socket.
import { z } from 'zod';

/** One thing as an operator sees it: a table row of names and plain values. */
export type Fields = Record<string, string | number | boolean | null>;

export const AnyFields = z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()]));
export const listOf = <T extends z.ZodType>(entry: T) => z.strictObject({ data: z.array(entry) });
/** A trillion dollars: far above any payment, and far below the exact limit of a JSON number. */
const CENTS_MAX = 10 ** 14;
export const Cents = z.int().min(1).max(CENTS_MAX);
export const Id = z.strictObject({ id: z.string() });
/** The operation id of a route that does `verb` to a thing, like `adminSuspendMachine`. */
export const operationOf = (verb: string, noun: string): string =>
  `admin${verb.charAt(0).toUpperCase()}${verb.slice(1)}${noun}`;
export const operator = { scope: 'operator', idempotency: 'none', hidden: true, tag: 'admin' } as const;
