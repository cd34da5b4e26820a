// Lists: the query parameters that every list takes and the page that it answers with (specification 2.1).
import { z } from 'zod';
import { PAGE_DEFAULT, PAGE_MAX } from '../limits.ts';

/** Query parameters of every list. A list route spreads them into its strict query schema. */
export const pageParameters = {
  cursor: z.string().min(1).max(512).optional().describe('`next_cursor` of the page before'),
  limit: z.coerce.number().int().min(1).max(PAGE_MAX).default(PAGE_DEFAULT).describe('Entries on a page'),
};

export const PageQuery = z.strictObject(pageParameters);
export type PageQuery = z.infer<typeof PageQuery>;

export interface Page<T> {
  data: T[];
  /** Null on the last page. */
  next_cursor: string | null;
}

/** The response schema of a list of `entry`. */
export function pageSchema<T extends z.ZodType>(entry: T): z.ZodType<Page<z.output<T>>> {
  return z.strictObject({
    data: z.array(entry).describe('The entries of this page'),
    next_cursor: z.string().nullable().describe('Null when no further page exists'),
  });
}
