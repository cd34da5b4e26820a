// Pages of lists, and their opaque cursors. A cursor stores where the next page begins. It is signed, so that nobody can invent one or use it for
// another list.
import { createHmac, createSecretKey, timingSafeEqual } from 'node:crypto';
import { z } from 'zod';
import { failField } from '../../../shared/errors.ts';
import type { Page, PageQuery } from '../../../shared/api/page.ts';
import { type Sql, sql } from '../db/db.ts';

/** The last row of a page, in lists from new to old. */
export interface Cursor {
  createdMs: number;
  id: string;
}

/** What a query for a page returns: at most `count` rows, from the one after `from` on. */
export interface PageStart {
  /** Undefined for the first page. */
  from?: Cursor | undefined;
  /** One more than the page shows, so that the query tells whether there is another page. */
  count: number;
}

export interface Cursors {
  /**
   * The page that a request asks for. `list` names the list and, if that matters, its owner: a cursor is valid for this list alone.
   * @throws ServiceError `validation_failed` for a cursor of another list, or an invented one
   */
  page<R, T>(
    list: string,
    query: Pick<PageQuery, 'cursor' | 'limit'>,
    rows: (start: PageStart) => Promise<R[]>,
    view: PageView<R, T>,
  ): Promise<Page<T>>;
  /** Reads a cursor, for lists whose cursors store more than a row. @throws as `page` does */
  read(list: string, cursor: string | undefined): Cursor | undefined;
  /** Builds a page from up to `limit` + 1 rows. An extra row means that there is another page. */
  pageOf<R, T>(list: string, rows: R[], limit: number, view: PageView<R, T>): Page<T>;
}

export interface PageView<R, T> {
  at(row: R): Cursor;
  show(row: R): T;
}

const SIGNATURE_BYTES = 16;
/** Cursors that are kept: about 250 kB. */
const REMEMBERED_MAX = 1_000;
const Fields = z.tuple([z.int(), z.string()]);

/** `secret` has at least 32 random bytes and stays the same over restarts. */
export function openCursors(secret: Uint8Array): Cursors {
  const key = createSecretKey(secret);
  const sign = (list: string, position: string): Buffer =>
    createHmac('sha256', key).update(`cursor\n${list}\n${position}`).digest().subarray(0, SIGNATURE_BYTES);

  const encode = remembering((list: string, position: string): string => {
    const encoded = Buffer.from(position).toString('base64url');
    return `${encoded}.${sign(list, encoded).toString('base64url')}`;
  });

  const read: Cursors['read'] = (list, cursor) => {
    if (cursor === undefined) return undefined;
    const [position = '', signature = ''] = cursor.split('.');
    const given = Buffer.from(signature, 'base64url');
    const genuine = given.length === SIGNATURE_BYTES && timingSafeEqual(given, sign(list, position));
    if (!genuine) return failField('cursor', 'must be a next_cursor of this list');
    const [createdMs, id] = Fields.parse(JSON.parse(Buffer.from(position, 'base64url').toString()));
    return { createdMs, id };
  };
  const pageOf: Cursors['pageOf'] = (list, rows, limit, view) => {
    const shown = rows.slice(0, limit);
    const last = shown.at(-1);
    const more = rows.length > limit && last !== undefined;
    return {
      data: shown.map((row) => view.show(row)),
      next_cursor: more ? encode(list, positionOf(view.at(last))) : null,
    };
  };
  return {
    page: async (list, { cursor, limit }, rows, view) =>
      pageOf(list, await rows({ from: read(list, cursor), count: limit + 1 }), limit, view),
    read,
    pageOf,
  };
}

function positionOf({ createdMs, id }: Cursor): string {
  return JSON.stringify([createdMs, id]);
}

/**
 * Callers read the same page again and again, and the same position has the same cursor. A signature takes a tenth of the time of a page, so the
 * last cursors are kept.
 */
function remembering(encode: (list: string, position: string) => string): (list: string, position: string) => string {
  const known = new Map<string, string>();
  return (list, position) => {
    const key = `${list}\n${position}`;
    const found = known.get(key);
    if (found !== undefined) return found;
    if (known.size >= REMEMBERED_MAX) known.clear();
    const made = encode(list, position);
    known.set(key, made);
    return made;
  };
}

/** The cursor of a row in a list that is sorted by creation, from new to old. */
export function byCreation({ created_ms: createdMs, id }: { created_ms: number; id: string }): Cursor {
  return { createdMs, id };
}

/** The end of a query for a page, after `where ... and`: the rows after `from`, in their order, at most `count`. */
export function pageFrom(start: PageStart, order: 'asc' | 'desc' = 'desc'): Sql {
  return pageBy(start, { time: sql`created_ms`, id: sql`id`, order });
}

/** Does the same as `pageFrom` for a list that is sorted by other columns. */
export function pageBy(
  { from, count }: PageStart,
  { time, id, order = 'desc' }: { time: Sql; id: Sql; order?: 'asc' | 'desc' },
): Sql {
  const [direction, beyond] = order === 'desc' ? [sql`desc`, sql`<`] : [sql`asc`, sql`>`];
  const isAfter = from === undefined ? sql`1 = 1` : sql`(${time}, ${id}) ${beyond} (${from.createdMs}, ${from.id})`;
  return sql`${isAfter} order by ${time} ${direction}, ${id} ${direction} limit ${count}`;
}
