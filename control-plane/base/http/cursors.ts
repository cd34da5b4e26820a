// Opaque page cursors. A cursor stores where the next page begins. It is signed, so that nobody can invent one or use it for another list.
import { createHmac, createSecretKey, timingSafeEqual } from 'node:crypto';
import { z } from 'zod';
import { failField } from '../../../shared/errors.ts';
import type { Page } from '../../../shared/api/page.ts';
import { type Sql, sql } from '../db/db.ts';

/** The last row of a page, in lists from new to old. */
export interface Cursor {
  createdMs: number;
  id: string;
}

export interface Cursors {
  /** @throws ServiceError `validation_failed` for a cursor of another list, or an invented one */
  read(list: string, cursor: string | undefined): Cursor | undefined;
  /**
   * Builds a page from up to `limit` + 1 rows. An extra row means that there is another page.
   * `list` names the list and, if that matters, its owner. `read` needs the same value.
   */
  pageOf<R, T>(list: string, rows: R[], limit: number, view: PageView<R, T>): Page<T>;
}

export interface PageView<R, T> {
  at(row: R): Cursor;
  show(row: R): T;
}

const SIGNATURE_BYTES = 16;
const Fields = z.tuple([z.int(), z.string()]);

/** `secret` has at least 32 random bytes and stays the same over restarts. */
export function openCursors(secret: Uint8Array): Cursors {
  const key = createSecretKey(secret);
  const sign = (list: string, position: string): Buffer =>
    createHmac('sha256', key).update(`cursor\n${list}\n${position}`).digest().subarray(0, SIGNATURE_BYTES);

  const encode = (list: string, { createdMs, id }: Cursor): string => {
    const position = Buffer.from(JSON.stringify([createdMs, id])).toString('base64url');
    return `${position}.${sign(list, position).toString('base64url')}`;
  };

  return {
    read: (list, cursor) => {
      if (cursor === undefined) return undefined;
      const [position = '', signature = ''] = cursor.split('.');
      const given = Buffer.from(signature, 'base64url');
      const genuine = given.length === SIGNATURE_BYTES && timingSafeEqual(given, sign(list, position));
      if (!genuine) return failField('cursor', 'must be a next_cursor of this list');
      const [createdMs, id] = Fields.parse(JSON.parse(Buffer.from(position, 'base64url').toString()));
      return { createdMs, id };
    },
    pageOf: (list, rows, limit, view) => {
      const shown = rows.slice(0, limit);
      const last = shown.at(-1);
      const more = rows.length > limit && last !== undefined;
      return { data: shown.map((row) => view.show(row)), next_cursor: more ? encode(list, view.at(last)) : null };
    },
  };
}

/** A `where` condition for rows older than `position`, or for all rows without one. Use it with `order by created_ms desc, id desc`. */
export function olderThan(position: Cursor | undefined): Sql {
  return position === undefined ? sql`1 = 1` : sql`(created_ms, id) < (${position.createdMs}, ${position.id})`;
}
