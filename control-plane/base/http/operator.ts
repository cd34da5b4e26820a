// What all operator routes share: an answer as plain names and values, and the facts of a route on the unix socket.
import { z } from 'zod';

/** One thing as an operator sees it: names and plain values, a row of a table. */
export type Fields = Record<string, string | number | boolean | null>;

export const AnyFields = z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()]));
export const listOf = <T extends z.ZodType>(entry: T) => z.strictObject({ data: z.array(entry) });
/** A trillion dollars: far above any payment, far below what a JSON number holds exactly. */
const CENTS_MAX = 10 ** 14;
export const Cents = z.int().min(1).max(CENTS_MAX);
export const Id = z.strictObject({ id: z.string() });
/** Of a route that does `verb` to a thing: `adminSuspendMachine`. */
export const operationOf = (verb: string, noun: string): string =>
  `admin${verb.charAt(0).toUpperCase()}${verb.slice(1)}${noun}`;
export const operator = { scope: 'operator', idempotency: 'none', hidden: true, tag: 'admin' } as const;
